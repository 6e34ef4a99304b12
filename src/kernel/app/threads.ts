import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { messageOf } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { ThreadPlan } from '../core/plan.ts';
import { isActive, type ThreadRecord, type ThreadResult } from '../core/thread.ts';
import { threadNotFound } from '../core/thread-errors.ts';
import { isKnown } from '../log/tree.ts';
import { withFamily } from '../threads/family/family-cost.ts';
import { signedEnd } from '../threads/family/signed-end.ts';
import type { ThreadDocument } from '../threads/thread-document.ts';
import { assertOutsideThreads } from './ancestry.ts';
import type { ExecuteDirectiveRequest } from './api/rye.ts';
import type {
  ExecuteToolRequest,
  ListedThread,
  LogMark,
  PulledThread,
  SignedRecords,
  ThreadDetails,
  ThreadListFilter,
  ThreadsService,
  ThreadVerification,
  ToolRunResult,
  UnverifiedLine,
  UnverifiedPart,
} from './api/threads.ts';
import { withLabel, withWorkingTime } from './child-label.ts';
import { learnWords } from './feature.ts';
import { threadFiles } from './thread-files.ts';
import {
  countThreads,
  descendantsOf,
  listThreads,
  resolveThreadId,
  unlistedFolders,
} from './thread-list.ts';
import { markLog } from './verification/parts.ts';
import { acceptHead, verifyThread } from './verification/thread.ts';
import type { Workspace } from './workspace.ts';

/** Planning, running and looking at threads. */
export class Threads implements ThreadsService {
  readonly #workspace: Workspace;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  async plan(
    request: ExecuteDirectiveRequest,
    options?: { readonly needsModel?: boolean },
  ): Promise<ThreadPlan> {
    const { planDirective } = await import('./thread-runs.ts');
    return await planDirective(this.#workspace, request, options);
  }

  async assertModel(threadId: string): Promise<void> {
    const { modelsOf } = await import('./models.ts');
    const { document } = await this.show(threadId);
    if (document) await modelsOf(this.#workspace).assertReady(document);
  }

  async execute(request: ExecuteDirectiveRequest): Promise<ThreadResult> {
    const { executeDirective } = await import('./thread-runs.ts');
    return await executeDirective(this.#workspace, request);
  }

  async warmUp(request?: ExecuteDirectiveRequest): Promise<void> {
    const { warmUp } = await import('./thread-runs.ts');
    await warmUp(this.#workspace, request);
  }

  async executeTool(request: ExecuteToolRequest): Promise<ToolRunResult> {
    const { runTool } = await import('./run-tool.ts');
    return await runTool(this.#workspace, request);
  }

  async list(filter?: ThreadListFilter): Promise<readonly ListedThread[]> {
    const { projectPath } = this.#workspace.options;
    const threads = await listThreads(this.#workspace.store, filter);
    return threads.map((thread) => withLabel(projectPath, thread));
  }

  async count(filter?: ThreadListFilter): Promise<number> {
    return await countThreads(this.#workspace.store.registry, filter);
  }

  async descendants(threadIds: readonly string[]): Promise<readonly ThreadRecord[]> {
    return await descendantsOf(this.#workspace.store.registry, threadIds);
  }

  async unlisted(): Promise<readonly string[]> {
    const { options, store } = this.#workspace;
    return await unlistedFolders(options.projectPath, store.registry);
  }

  async resolveId(part: string): Promise<string> {
    // a thread that is on disk needs no registry to be found
    if (isOnDisk(this.#workspace, part)) return part;
    const { store, clock } = this.#workspace;
    return await resolveThreadId(store.registry, part, clock.now());
  }

  async session(threadId: string): Promise<readonly string[]> {
    // a project without a registry knows of no handoff
    if (!this.#workspace.isRegistryMade) return [threadId];
    const { registry } = this.#workspace.store;
    if ((await registry.get(threadId)) === undefined) return [threadId];
    return (await registry.chain(threadId)).map(({ thread_id: id }) => id);
  }

  async show(threadId: string): Promise<ThreadDetails> {
    const { store } = this.#workspace;
    const { registry, logs, deliveries } = store;
    const { projectPath } = this.#workspace.options;
    const found = await registry.get(threadId);
    if (!found) throw threadNotFound(threadId);
    const { noticeChanges } = await import('./guards.ts');
    await noticeChanges(this.#workspace);
    const files = threadFiles(this.#workspace);
    const thread = await signedEnd({ store, files }, found, await registry.runOf(threadId));
    const read = await readDocument(async () => await files.readDocument(threadId));
    const children = await registry.list({ parentId: threadId, order: 'oldest first' });
    return {
      thread: withWorkingTime(
        projectPath,
        withLabel(projectPath, await withFamily(registry, thread)),
      ),
      document: read.document,
      children: await Promise.all(
        children.map(async (child) => withLabel(projectPath, await withFamily(registry, child))),
      ),
      deliveries: (await deliveries.list(threadId))
        .filter(({ state }) => state !== 'closed')
        .map(({ tries: _tries, decisions: _decisions, ...delivery }) => delivery),
      active_turn: (isActive(thread.status) && (await deliveries.activeTurn(threadId))) || null,
      chain: await Promise.all(
        (await registry.chain(threadId)).map((link) => withFamily(registry, link)),
      ),
      paths: {
        thread: files.folder(threadId),
        transcript: logs.location(threadId),
        knowledge: files.knowledgePath(thread.directive, threadId),
      },
      explanation: read.problem ?? this.#explain(thread),
      unverified: await unverifiedParts(this.#workspace, threadId),
    };
  }

  async *logs(
    threadId: string,
    options: { tail?: number; since?: number; follow?: boolean; signal?: AbortSignal } = {},
  ): AsyncIterable<LogEvent | UnknownEvent> {
    await learnWords(this.#workspace);
    yield* this.#ownLog(threadId, options);
    // a number of events and a place in the log refer to one thread, unless it is followed anyway
    const isPart = options.tail !== undefined || options.since !== undefined;
    if (isPart && options.follow !== true) return;
    const successor = await this.#successorOf(threadId);
    if (successor === null || options.signal?.aborted) return;
    const { follow = false, signal } = options;
    let isNew = false;
    for await (const event of this.logs(successor, { follow, ...(signal ? { signal } : {}) })) {
      // what it was given of this thread's log has been shown
      isNew ||= event.event_type === 'thread_continued' || event.thread_id !== successor;
      if (isNew) yield event;
    }
  }

  async #successorOf(threadId: string): Promise<string | null> {
    const record = await this.#workspace.store.registry.get(threadId);
    return record?.continuation_thread_id ?? null;
  }

  async *#ownLog(
    threadId: string,
    options: { tail?: number; since?: number; follow?: boolean; signal?: AbortSignal },
  ): AsyncIterable<LogEvent | UnknownEvent> {
    const { logs, registry } = this.#workspace.store;
    const { tail, since = 0, follow = false, signal } = options;
    const run = await registry.runOf(threadId);
    const follows = follow && !(await this.#isOver(threadId, run));
    let last = since;
    // a thread that has just been started has no log yet
    if (!follows || (await logs.size(threadId)) !== undefined) {
      const past =
        tail === undefined ? logs.since(threadId, since) : await logs.tail(threadId, tail);
      for await (const event of past) {
        if (event.seq <= since) continue;
        last = event.seq;
        yield event;
      }
    }
    if (follows) yield* this.#restOf(threadId, run, { since: last, signal });
  }

  /** Follows a run from a place in the log to its end. */
  async *#restOf(
    threadId: string,
    run: number,
    { since, signal }: { readonly since: number; readonly signal: AbortSignal | undefined },
  ): AsyncIterable<LogEvent | UnknownEvent> {
    const { logs, registry } = this.#workspace.store;
    // an abort during replay never reaches the listener below
    if (signal?.aborted === true) return;
    const stop = new AbortController();
    signal?.addEventListener('abort', () => stop.abort(), { once: true, signal: stop.signal });
    void this.#untilOver(threadId, run, stop);
    try {
      for await (const event of logs.follow(threadId, { since, signal: stop.signal })) {
        const isLater = isKnown(event, 'run_started') && event.payload.run > run;
        if (isLater && (await registry.endOf(threadId, run))) return;
        yield event;
      }
    } finally {
      stop.abort();
    }
    // fails for a start that failed without a log
    if (!signal?.aborted && (await logs.size(threadId)) === undefined) {
      yield* logs.since(threadId, since);
    }
  }

  async *unverified(threadId: string): AsyncIterable<UnverifiedLine> {
    const parts = await unverifiedParts(this.#workspace, threadId);
    yield* unverifiedLines(this.#workspace, threadId, parts);
  }

  async verify(threadId: string): Promise<ThreadVerification> {
    return await verifyThread(this.#workspace, threadFiles(this.#workspace), threadId);
  }

  async mark(threadId: string): Promise<LogMark> {
    return await markLog(this.#workspace, threadId);
  }

  async pull(threadId: string): Promise<PulledThread> {
    const { pullThread } = await import('./pulled-thread.ts');
    return await pullThread(this.#workspace, threadId);
  }

  async acceptHead(threadId: string): Promise<ThreadVerification> {
    const { store, options } = this.#workspace;
    await assertOutsideThreads(store, options.env, 'accept files');
    return await acceptHead(this.#workspace, threadId);
  }

  async sign(threadId: string, options?: { dryRun?: boolean }): Promise<SignedRecords> {
    const { signRecords } = await import('./signed-records.ts');
    return await signRecords(this.#workspace, threadId, options);
  }

  /** Explains a state that people may wonder about: an active thread without a living owner. */
  #explain(record: ThreadRecord): string | null {
    const { owners } = this.#workspace.store;
    const { thread_id: id, status, pid } = record;
    const owner = owners.ofRecord(record);
    if (!isActive(status) || !owner || owners.state(owner) !== 'gone') return null;
    return `crashed (process ${pid} exited). Resume: rye threads resume ${id}`;
  }

  /** True once a run has ended, also if another one follows it, and for a thread whose process is gone. */
  async #isOver(threadId: string, run: number): Promise<boolean> {
    const { registry } = this.#workspace.store;
    const record = (await registry.endOf(threadId, run)) ?? (await registry.get(threadId));
    return !record || !isActive(record.status) || this.#explain(record) !== null;
  }

  /** Stops following a little after the run has ended, so that its last events are still shown. */
  async #untilOver(threadId: string, run: number, stop: AbortController): Promise<void> {
    const { clock } = this.#workspace;
    while (!stop.signal.aborted) {
      const isOver = await this.#isOver(threadId, run);
      await clock.sleep(250, stop.signal);
      if (isOver) stop.abort();
    }
  }
}

function isOnDisk(workspace: Workspace, part: string): boolean {
  try {
    return threadFiles(workspace).exists(part);
  } catch {
    return false; // it is no id, so it may be a part of one
  }
}

async function readDocument(
  read: () => Promise<ThreadDocument>,
): Promise<{ readonly document: ThreadDocument | null; readonly problem: string | undefined }> {
  try {
    return { document: await read(), problem: undefined };
  } catch (error) {
    return { document: null, problem: `its thread.json is not used: ${messageOf(error)}` };
  }
}

/** The name under which a report lists the log itself. */
const LOG_FILE = 'transcript.jsonl';

/**
 * The parts of a thread's log that no signature covers: what recoveries moved to files beside it and, if the thread
 * crashed and was not recovered, the end of the log itself. A running thread has none: it signs what it wrote in a moment.
 */
export async function unverifiedParts(
  { store, keyring }: Pick<Workspace, 'store' | 'keyring'>,
  threadId: string,
): Promise<readonly UnverifiedPart[]> {
  const { logs, registry, owners } = store;
  const quarantined = await logs.quarantined(threadId);
  const moved = quarantined.map(({ file, offset, bytes }) => ({
    file,
    offset,
    bytes,
    from: 0,
  }));
  const record = await registry.get(threadId);
  const owner = record && owners.ofRecord(record);
  const isOwned = owner !== undefined && owners.state(owner) !== 'gone';
  if (!record || !isActive(record.status) || isOwned) return moved;
  try {
    const verdict = await logs.verify(threadId, { verifier: keyring.payloadVerifier });
    if (!verdict.ok || verdict.unverified_bytes === 0) return moved;
    const { verified_bytes: offset, unverified_bytes: bytes } = verdict;
    return [...moved, { file: LOG_FILE, offset, bytes, from: offset }];
  } catch {
    return moved; // it has no log yet
  }
}

/** A stream reads ahead, and a store may reuse a chunk by then. */
async function* copied(chunks: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
  for await (const chunk of chunks) yield Buffer.from(chunk);
}

/** The lines of these parts, as they are on the disk: nothing in them is verified, and they may be no events at all. */
export async function* unverifiedLines(
  { store }: Pick<Workspace, 'store'>,
  threadId: string,
  parts: readonly UnverifiedPart[],
): AsyncIterable<UnverifiedLine> {
  for (const { file, from } of parts) {
    const range = file === LOG_FILE ? { from } : { from, file };
    const input = Readable.from(copied(store.logs.bytes(threadId, range)));
    let line = 0;
    for await (const text of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      line += 1;
      yield { verified: false, file, line, text };
    }
  }
}
