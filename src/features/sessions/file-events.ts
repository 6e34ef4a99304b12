import type { UnrecordedCall } from '../../kernel/app/api/trees.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import { isActive, type ThreadRecord } from '../../kernel/core/thread.ts';
import { threadNotFound } from '../../kernel/core/thread-errors.ts';
import { buildTree, entryByPrefix, isKnown } from '../../kernel/log/tree.ts';
import { descendantsOf } from '../../kernel/threads/family/children.ts';
import { readVerified } from '../../kernel/threads/open-session.ts';
import type { Stored } from '../../kernel/threads/ports.ts';
import type { ThreadDocument } from '../../kernel/threads/thread-document.ts';
import { partOf } from '../../kernel/threads/verified-log.ts';
import type { PastChange } from './file-history.ts';

/** The changes of files by the threads of a session. */
export interface FileEvents {
  /** The last thread of the session: its log records an undo. */
  readonly last: string;
  /** The entry whose moment was asked for; null: the moment before the thread. */
  readonly entry: string | null;
  readonly changes: readonly PastChange[];
  /** Calls after the moment. */
  readonly unrecorded: readonly UnrecordedCall[];
}

interface MomentRequest {
  /** Entry ID, a unique start of it, or `root`; absent: the moment before the thread. */
  readonly to?: string | undefined;
  /** True to leave the changes of children. */
  readonly own?: boolean | undefined;
}

type Events = readonly (LogEvent | UnknownEvent)[];

interface Member {
  readonly threadId: string;
  readonly events: Events;
  /** `project`: its tools changed the project; `merge`: its merge alone did; `none`: it merged into another worktree. */
  readonly reach: 'project' | 'merge' | 'none';
}

interface Moment {
  readonly entry: string;
  /** Index of the thread in the session. */
  readonly at: number;
  readonly seq: number;
  readonly time: number;
}

/** Reads the signed logs of a session and of the threads below it. Refuses while one of them runs. */
export async function readFileEvents(
  env: Stored,
  threadId: string,
  { to, own = false }: MomentRequest,
): Promise<FileEvents> {
  const { registry } = env.store;
  const chain = (await registry.get(threadId)) ? await registry.chain(threadId) : [];
  const last = chain.at(-1)?.thread_id;
  if (last === undefined) {
    throw threadNotFound(threadId);
  }
  const below = own ? [] : await descendantsOf(registry, last);
  for (const record of [...chain, ...below]) assertOver(record);
  const session = await membersOf(env, chain);
  const moment = to === undefined || to === 'root' ? undefined : findMoment(session, to);
  const isAfter = (at: number, seq: number): boolean =>
    moment === undefined || at > moment.at || (at === moment.at && seq > moment.seq);
  const starts = childStarts(session);
  const parts = session.map((member, at) => changesOf(member, (seq) => isAfter(at, seq)));
  for (const member of await membersOf(env, below)) {
    const start = starts.get(rootBelow(member.threadId, below, chain));
    const isLater = start !== undefined && isAfter(start.at, start.seq);
    parts.push(changesOf(member, (_seq, time) => isLater || time > (moment?.time ?? -1)));
  }
  return {
    last,
    entry: moment?.entry ?? null,
    changes: parts.flatMap(({ changes }) => changes),
    unrecorded: parts.flatMap(({ unrecorded }) => unrecorded),
  };
}

function assertOver({ thread_id: id, status }: ThreadRecord): void {
  if (!isActive(status)) return;
  throw new RyeError('thread_locked', `thread ${id} is ${status} and may still change files`, {
    hint: `Wait until it ends, or run: rye threads cancel ${id}. If it has crashed, run: rye threads recover ${id}`,
    details: { thread_id: id, status },
  });
}

async function membersOf(env: Stored, records: readonly ThreadRecord[]): Promise<Member[]> {
  const members: Member[] = [];
  for (const { thread_id: threadId } of records) {
    const { logs } = env.store;
    // it never ran
    if ((await logs.size(threadId)) === undefined && !(await logs.isArchived(threadId))) continue;
    const { document, verdict } = await readVerified(env, threadId);
    const { events } = await logs.read(threadId, partOf(threadId, verdict));
    members.push({ threadId, events, reach: await reachOf(env, document) });
  }
  return members;
}

async function reachOf(
  env: Stored,
  { work_path: workPath, parent_thread_id: parentId }: ThreadDocument,
): Promise<Member['reach']> {
  if (workPath === undefined) return 'project';
  if (parentId === null) return 'merge';
  const parent = await env.files.readDocument(parentId);
  return parent.work_path === undefined ? 'merge' : 'none';
}

/** Finds an entry in the thread that wrote it: later threads of a session have copies. */
function findMoment(session: readonly Member[], reference: string): Moment {
  let failure: unknown;
  for (const [at, { events }] of session.entries()) {
    try {
      const entry = entryByPrefix(buildTree(events), reference);
      return { entry: entry.id, at, seq: entry.seq, time: Date.parse(entry.timestamp) };
    } catch (error) {
      if (!(error instanceof RyeError) || error.code !== 'entry_not_found') throw error;
      failure ??= error;
    }
  }
  throw failure;
}

/** Returns where the threads of a session started their children. */
function childStarts(
  session: readonly Member[],
): ReadonlyMap<string, { readonly at: number; readonly seq: number }> {
  const starts = session.flatMap(({ events }, at) =>
    events.flatMap((event) =>
      isKnown(event, 'child_thread_started')
        ? [[event.payload.child_thread_id, { at, seq: event.seq }] as const]
        : [],
    ),
  );
  return new Map(starts);
}

/** Returns the child of the session that a thread is, or is below. */
function rootBelow(
  threadId: string,
  below: readonly ThreadRecord[],
  chain: readonly ThreadRecord[],
): string {
  const parents = new Map(below.map((record) => [record.thread_id, record.parent_id]));
  const session = new Set(chain.map(({ thread_id: id }) => id));
  let id = threadId;
  // as many steps as there are threads, so that a loop of parents ends
  for (let step = 0; step < below.length; step += 1) {
    const parent = parents.get(id);
    if (parent === undefined || parent === null || session.has(parent)) return id;
    id = parent;
  }
  return id;
}

interface MemberChanges {
  readonly changes: readonly PastChange[];
  readonly unrecorded: readonly UnrecordedCall[];
}

/** Tools of every thread that change no files. The other tools of rye than the shell record what they change. */
const HARMLESS: ReadonlySet<string> = new Set(['tool_search', 'skills/use']);

function changesOf(
  { threadId, events, reach }: Member,
  isAfter: (seq: number, time: number) => boolean,
): MemberChanges {
  const settled = settledCalls(events);
  const changes: PastChange[] = [];
  const unrecorded: UnrecordedCall[] = [];
  let time = 0;
  for (const event of events) {
    time = Math.max(time, Date.parse(event.timestamp));
    const isUndone = isAfter(event.seq, time);
    const facts = { thread_id: threadId, time, isUndone };
    if (isKnown(event, 'file_change')) {
      const { call_id: callId, ...change } = event.payload;
      if (reach === 'none' || (reach === 'merge' && change.merged !== true)) continue;
      const end = settled.get(callId)?.find(({ seq }) => seq > event.seq);
      const isCertain = end?.payload.outcome === 'ok';
      changes.push({ ...change, ...facts, isCertain });
    } else if (isKnown(event, 'files_restored')) {
      for (const change of event.payload.files) {
        changes.push({ ...change, ...facts, isCertain: false });
      }
    } else if (isKnown(event, 'tool_call_start') && isUndone && reach === 'project') {
      if (!mayChange(event.payload.tool)) continue;
      const { call_id, tool } = event.payload;
      unrecorded.push({ thread_id: threadId, call_id, tool });
    }
  }
  return { changes, unrecorded };
}

type SettledEvent = Extract<LogEvent, { event_type: 'tool_settled' }>;

/** Returns the ends of calls by their ids, which are the model's and may repeat. */
function settledCalls(events: Events): ReadonlyMap<string, readonly SettledEvent[]> {
  const found = new Map<string, SettledEvent[]>();
  for (const event of events) {
    if (!isKnown(event, 'tool_settled')) continue;
    const { call_id: callId } = event.payload;
    const known = found.get(callId);
    if (known) known.push(event);
    else found.set(callId, [event]);
  }
  return found;
}

function mayChange(tool: string): boolean {
  return tool === 'rye/bash' || !(tool.startsWith('rye/') || HARMLESS.has(tool));
}
