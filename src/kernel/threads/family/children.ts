import type { WaitedChild } from '../../core/delivery.ts';
import { RyeError } from '../../core/errors.ts';
import type { EventDraft, LogEvent, UnknownEvent } from '../../core/events.ts';
import { compact, type JsonObject } from '../../core/json.ts';
import { isFinal, type ThreadRecord, type ThreadResult } from '../../core/thread.ts';
import type { Registry } from '../../storage/store.ts';
import type { LaunchedThread, OnIdle, SpawnRequest } from '../ports.ts';
import type { HookRunner } from '../run/hook-runner.ts';
import type { Recorder } from '../run/recorder.ts';
import type { StartedThread } from '../run/start.ts';

/** A child's event in its parent's stream: the child's envelope, with the child's depth below the parent. */
export type BubbledEvent = UnknownEvent & { readonly depth: number };

/** A child that exists. */
export type StartedChild = Pick<LaunchedThread, 'thread_id' | 'directive' | 'label'>;

/** The callbacks of a run for a child in the same process. */
export interface ChildWatch {
  readonly signal: AbortSignal;
  /** Called when the child exists, before it runs. */
  readonly onStarted: (started: StartedChild) => void;
  readonly onEvent: ((event: LogEvent | UnknownEvent) => void) | undefined;
  readonly onIdle: OnIdle | undefined;
}

/** The end of a child's run, or its wait for people. */
export interface JoinedChild {
  readonly result: ThreadResult;
  /** The run of the last thread of its chain, counted from 1. */
  readonly run: number;
}

/** Starts children for a run; given by the caller, so that runs can nest. */
export interface ChildStarter {
  /** Runs a child to its end in this process. */
  run(request: SpawnRequest, parent: StartedThread, watch: ChildWatch): Promise<ThreadResult>;
  /**
   * Waits again for a child of an earlier run that waited for people, and resumes it in this process once they have
   * decided. Resolves to its end, or to its wait if they have not.
   */
  join(threadId: string, watch: Omit<ChildWatch, 'onStarted'>): Promise<JoinedChild>;
  /** Ends a child that waits for people, with its descendants: their requests are withdrawn. Resolves to the child then. */
  withdraw(threadId: string): Promise<ThreadRecord | undefined>;
  /** Starts a child in another process and returns. */
  launch(request: SpawnRequest, parent: StartedThread): Promise<LaunchedThread>;
  /** Starts a tool in another process. */
  launchTool(toolId: string, params: JsonObject, parent: StartedThread): Promise<LaunchedThread>;
}

export interface ChildrenOptions {
  readonly parent: StartedThread;
  readonly starter: ChildStarter;
  readonly recorder: Recorder;
  readonly onEvent?: ((event: LogEvent | UnknownEvent) => void) | undefined;
  /** Called when a wait has returned the end of a child. */
  readonly onLearned?: ((child: WaitedChild) => void) | undefined;
  /** The children and threads before the run; absent: none. */
  readonly earlier?: EarlierChildren | undefined;
}

/** The children of a thread's earlier runs, and of the threads that it continues. */
export interface EarlierChildren {
  /** The threads that this one continues. */
  readonly threads: readonly string[];
  /** Reads the ends of children that are in the logs. */
  readonly ends: () => Promise<readonly WaitedChild[]>;
}

/** The end of a child, as its parent's log and hooks see it. */
export type FinishedChild = Pick<
  ThreadRecord,
  'thread_id' | 'directive' | 'status' | 'result' | 'outputs' | 'error' | 'cost'
>;

const endKey = ({ threadId, run = 1 }: WaitedChild): string => `${threadId}#${run}`;

/** The children of one run: starts them, writes their start and end to the parent's log, and tells the hooks. */
export class Children {
  readonly #options: ChildrenOptions;
  readonly #ids: string[] = [];
  /** Children that run in this process: their end is recorded when they return. */
  readonly #attended = new Set<string>();
  /** The ends of runs of children that are in the log. */
  #recorded: Promise<Set<string>> | undefined;
  #hooks: HookRunner | undefined;

  constructor(options: ChildrenOptions) {
    this.#options = options;
  }

  /** Every child that was started, in order. */
  get ids(): readonly string[] {
    return this.#ids;
  }

  /** Sets the hooks that are told about ends; they are built after this object. */
  attach(hooks: HookRunner): void {
    this.#hooks = hooks;
  }

  /** Runs a child in this process; its events reach the parent's stream as `child.<type>`. */
  async run(request: SpawnRequest, signal: AbortSignal, onIdle?: OnIdle): Promise<ThreadResult> {
    const result = await this.runForHook(request, signal, onIdle);
    if (result.waiting_for === undefined) await this.#observe(endOf(result));
    return result;
  }

  /** Continues to wait for a child that waited for people when the run that started it was suspended. */
  async join(threadId: string, signal: AbortSignal, onIdle?: OnIdle): Promise<ThreadResult> {
    const { starter, onEvent } = this.#options;
    this.#attended.add(threadId);
    const { result, run } = await starter.join(threadId, {
      signal,
      onEvent: onEvent && ((event) => onEvent(bubble(event))),
      onIdle,
    });
    await this.#returned(threadId, result, run);
    if (result.waiting_for === undefined) await this.#observe(endOf(result));
    return result;
  }

  /** As {@link run}, without `child_finished` hooks: a hook's own child must not start the hook again. */
  async runForHook(
    request: SpawnRequest,
    signal: AbortSignal,
    onIdle?: OnIdle,
  ): Promise<ThreadResult> {
    const { starter, parent, onEvent } = this.#options;
    const result = await starter.run(request, parent, {
      signal,
      onStarted: (started) => {
        this.#attended.add(started.thread_id);
        this.#started(started);
      },
      onEvent: onEvent && ((event) => onEvent(bubble(event))),
      onIdle,
    });
    await this.#returned(result.thread_id, result, 1);
    return result;
  }

  /** Ends a child that waits for people and that nothing can wait for, and records its end; no `child_finished` hook is told. */
  async withdraw(threadId: string): Promise<void> {
    const ended = await this.#options.starter.withdraw(threadId);
    if (!ended) return;
    (await this.#ends()).add(endKey({ threadId, run: 1 }));
    this.#ended(ended, 1);
  }

  /** Records the end of a child that this process attended; one that waits for people has not ended. */
  async #returned(threadId: string, result: ThreadResult, run: number): Promise<void> {
    this.#attended.delete(threadId);
    if (result.waiting_for !== undefined) return;
    const { continuation_thread_id: last = threadId } = result;
    const recorded = await this.#ends();
    recorded.add(endKey({ threadId, run: last === threadId ? run : 1 }));
    recorded.add(endKey({ threadId: last, run }));
    this.#ended(result, run);
  }

  /** Starts a child in another process. */
  async launch(request: SpawnRequest): Promise<LaunchedThread> {
    const { starter, parent } = this.#options;
    return this.#launched(await starter.launch(request, parent));
  }

  /** Starts a tool in another process. */
  async launchTool(toolId: string, params: JsonObject): Promise<LaunchedThread> {
    const { starter, parent } = this.#options;
    return this.#launched(await starter.launchTool(toolId, params, parent));
  }

  /**
   * Records the end of each run of a child once, when its parent learns of it, whichever of its runs started the child.
   * Ignores threads that are not its children.
   */
  async learned(child: ThreadRecord, run: number): Promise<void> {
    const { thread_id: threadId, parent_id: parentId, chain_root_id: root } = child;
    this.#options.onLearned?.({ threadId, run });
    const { parent, earlier } = this.#options;
    const isOwn = parentId === parent.threadId || earlier?.threads.includes(parentId ?? '');
    if (!isOwn || this.#attended.has(root ?? threadId)) return;
    const recorded = await this.#ends();
    const key = endKey({ threadId, run });
    if (recorded.has(key)) return;
    recorded.add(key);
    this.#ended(child, run);
    await this.#observe(child);
  }

  async #ends(): Promise<Set<string>> {
    this.#recorded ??= (async () => {
      const ends = (await this.#options.earlier?.ends()) ?? [];
      return new Set(ends.map(endKey));
    })();
    return await this.#recorded;
  }

  #launched(launched: LaunchedThread): LaunchedThread {
    this.#started(launched);
    return launched;
  }

  #started({ thread_id: id, directive, label }: StartedChild): void {
    this.#ids.push(id);
    this.#record({
      event_type: 'child_thread_started',
      payload: { child_thread_id: id, directive, ...compact({ label }) },
    });
  }

  #ended(
    { thread_id: id, status, cost }: Pick<FinishedChild, 'thread_id' | 'status' | 'cost'>,
    run: number,
  ): void {
    this.#record({
      event_type: 'child_thread_finished',
      payload: {
        child_thread_id: id,
        status,
        spend: cost.spend,
        ...(run === 1 ? {} : { child_run: run }),
      },
    });
  }

  #record(draft: EventDraft): void {
    this.#options.recorder.record([draft]);
  }

  async #observe({ thread_id, directive, ...end }: FinishedChild): Promise<void> {
    const { status, result, outputs, error, cost } = end;
    const context = compact({
      child_thread_id: thread_id,
      child_directive: directive,
      status,
      result: result ?? undefined,
      outputs: outputs ?? undefined,
      error: error ? { code: error.code, message: error.message } : undefined,
      child_cost: { ...cost },
    }) as JsonObject;
    const drafts = (await this.#hooks?.observeChild(context)) ?? [];
    if (drafts.length > 0) this.#options.recorder.record(drafts);
  }
}

function endOf({
  thread_id,
  directive,
  status,
  result,
  outputs,
  error,
  cost,
}: ThreadResult): FinishedChild {
  const end = { outputs: outputs ?? null, error: error ?? null };
  return { thread_id, directive, status, result, cost, ...end };
}

function bubble(event: LogEvent | UnknownEvent): BubbledEvent {
  const below = event as UnknownEvent & { readonly depth?: number };
  const isBubbled = below.depth !== undefined;
  return {
    ...below,
    event_type: isBubbled ? below.event_type : `child.${below.event_type}`,
    depth: (below.depth ?? 0) + 1,
  };
}

/** Returns a thread and those that it continues, the first one first. A child of one is a child of all. */
async function selfAndBefore(registry: Registry, threadId: string): Promise<readonly string[]> {
  const ids = [threadId];
  let record = await registry.get(threadId);
  while (record?.continuation_of && !ids.includes(record.continuation_of)) {
    ids.unshift(record.continuation_of);
    record = await registry.get(record.continuation_of);
  }
  return ids;
}

/** Returns the children of a thread and of those that it continues, oldest first. */
export async function childrenOf(
  registry: Registry,
  threadId: string,
): Promise<readonly ThreadRecord[]> {
  const ids = await selfAndBefore(registry, threadId);
  return (
    await Promise.all(ids.map((id) => registry.list({ parentId: id, order: 'oldest first' })))
  ).flat();
}

/** Returns all threads below `threadId`, children before grandchildren, continuations next to what they continue. */
export async function descendantsOf(
  registry: Registry,
  threadId: string,
): Promise<readonly ThreadRecord[]> {
  const found = new Map<string, ThreadRecord>();
  const own = await selfAndBefore(registry, threadId);
  for (let open = own; open.length > 0; ) {
    const next: string[] = [];
    for (const id of open) {
      for (const child of await registry.list({ parentId: id, order: 'oldest first' })) {
        if (own.includes(child.thread_id) || found.has(child.thread_id)) continue;
        found.set(child.thread_id, child);
        next.push(child.thread_id);
      }
    }
    open = next;
  }
  return [...found.values()];
}

/** Returns the descendants that have not ended. */
export async function openDescendants(
  registry: Registry,
  threadId: string,
): Promise<readonly ThreadRecord[]> {
  return (await descendantsOf(registry, threadId)).filter(({ status }) => !isFinal(status));
}

/**
 * Throws `not_descendant` unless `threadId` is below `callerId` or below a thread that the caller continues. Unknown
 * threads get the same error, so that callers can't probe for threads of others.
 */
export async function assertDescendant(
  registry: Registry,
  callerId: string,
  threadId: string,
): Promise<void> {
  if (await isDescendant(registry, callerId, threadId)) return;
  throw new RyeError('not_descendant', `${threadId} is not a descendant of ${callerId}`, {
    hint: 'A thread may act only on the threads that it or its children started: list_children names them.',
    details: { thread_id: threadId, caller: callerId },
  });
}

/** True if `threadId` is below `callerId` or below a thread of the same chain. */
export async function isDescendant(
  registry: Registry,
  callerId: string,
  threadId: string,
): Promise<boolean> {
  const own = new Set((await registry.chain(callerId)).map(({ thread_id }) => thread_id));
  const seen = new Set<string>();
  let parent = (await registry.get(threadId))?.parent_id ?? null;
  while (parent !== null && !seen.has(parent)) {
    if (own.has(parent)) return true;
    seen.add(parent);
    parent = (await registry.get(parent))?.parent_id ?? null;
  }
  return false;
}

/** Returns the last thread of the chain that starts with `threadId`; itself if nothing continues it. */
export async function chainEnd(
  registry: Registry,
  threadId: string,
): Promise<ThreadRecord | undefined> {
  const seen = new Set<string>();
  let record = await registry.get(threadId);
  while (record?.continuation_thread_id && !seen.has(record.thread_id)) {
    seen.add(record.thread_id);
    record = (await registry.get(record.continuation_thread_id)) ?? record;
  }
  return record;
}
