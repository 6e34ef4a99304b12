import { join } from 'node:path';
import type { Clock } from '../../core/clock.ts';
import { type ErrorInfo, EXIT, toRyeError } from '../../core/errors.ts';
import type { WorktreeChanges } from '../../core/isolation.ts';
import type { JsonObject } from '../../core/json.ts';
import { isActive, type ThreadRecord, type ThreadStatus } from '../../core/thread.ts';
import type { Cost } from '../../core/usage.ts';
import type { Store } from '../../storage/store.ts';
import type { AwaitedThreads } from '../../tools/tool.ts';
import type { Launching, Recovering } from '../ports.ts';
import { recoverThread } from '../recovery/recover.ts';
import { deathOf } from '../run/liveness.ts';
import { awaitedApprovals, isParked, isWaiting } from '../run/waiting.ts';
import { threadsFolder } from '../thread-files-fs.ts';
import { changesOf } from './changes.ts';
import { chainEnd } from './children.ts';
import { resumeWaitingAncestors } from './resume-process.ts';
import { signedEnd } from './signed-end.ts';
import { startQueued } from './spawn.ts';
import { DecisionTaker, wakeUnwoken } from './take-up.ts';
import { type ChangeWatch, watchFile } from './watch-fs.ts';

/** The state of one thread that was waited for. */
export interface WaitedThread {
  /** As it was asked for. */
  readonly thread_id: string;
  /** The last thread of its chain, whose status and result these are. */
  readonly final_thread_id: string;
  readonly directive: string;
  readonly status: ThreadStatus | 'not_found';
  /** False after a timeout, or if another thread was enough. */
  readonly done: boolean;
  readonly result: string;
  readonly outputs?: JsonObject;
  readonly error?: ErrorInfo;
  readonly cost?: Cost;
  /** Changes in its worktree, once it has ended; absent: it was not isolated. */
  readonly changes?: WorktreeChanges;
  /** Its label; of a child without one: its directive and inputs, shortened. Absent for others. */
  readonly label?: string;
}

export interface WaitReport {
  /** Everything that ended in time was completed, and enough ended in time. */
  readonly success: boolean;
  readonly timed_out: boolean;
  readonly threads: readonly WaitedThread[];
  /** Set if the wait continues in another run: what the threads that have not ended wait for. */
  readonly waiting?: AwaitedThreads;
}

export interface WaitRequest {
  readonly threadIds: readonly string[];
  /** `any`: the first end is enough. */
  readonly mode: 'all' | 'any';
  /** Undefined waits without a limit, 0 only looks. */
  readonly timeoutMs?: number | undefined;
  readonly signal: AbortSignal;
  /** True: a thread that waits for people has not ended, and if all others have, the wait is over. */
  readonly parks?: boolean | undefined;
  /** With `parks`: milliseconds after which the wait is over for this process, and the threads continue. */
  readonly parksAfterMs?: number | undefined;
  /** True: also waits while people decide, and resumes threads of the own key when they have. */
  readonly takesUp?: boolean | undefined;
  /** Called with each thread once, when the run that is waited for has ended. */
  readonly onEnd?: ((thread: ThreadRecord, run: number) => Promise<void> | void) | undefined;
  /** Called whenever the registry may have changed. */
  readonly onLook?: (() => Promise<void> | void) | undefined;
}

/** The ports of waiting: the registry, a clock and a watch. */
export interface WaitPorts {
  readonly store: Pick<Store, 'registry' | 'owners'>;
  readonly clock: Pick<Clock, 'monotonic' | 'sleep'>;
  readonly watch: ChangeWatch;
  /** True if a thread whose owner can't be seen from here gave no sign of life for too long. */
  readonly isSilent: (thread: ThreadRecord) => boolean;
  /** Finalizes a crashed thread; `later` if that is not possible now, an error if it never is. */
  readonly settle: (thread: ThreadRecord) => Promise<'settled' | 'later' | ErrorInfo>;
  /** Returns the end of a run as it is signed, see `signed-end.ts`. */
  readonly signedEnd: (thread: ThreadRecord, run: number) => Promise<ThreadRecord>;
  /** Reads the changes in the worktree of a thread that has ended. */
  readonly changesOf: (thread: ThreadRecord | undefined) => Promise<WorktreeChanges | undefined>;
}

/** Maximum time before a lost notification or a killed process is noticed. */
const LOOK_AGAIN_MS = 200;
/** A waiter for many threads rests this many times as long as its last look took, so that it leaves them the processor. */
const REST = 8;
const MAX_REST_MS = 40;
/** Number of threads from which it is cheaper to list those that are active than to look at each. */
const MANY = 4;

/**
 * Waits until threads and the chains that continue them have ended: the run that each is in when the wait begins, also if
 * another one follows it. Every commit to the registry wakes it, so it
 * learns of an end within milliseconds, from any process. Meanwhile it finalizes threads that have crashed.
 */
async function waitForThreads(ports: WaitPorts, request: WaitRequest): Promise<WaitReport> {
  const { threadIds, mode, timeoutMs, signal, takesUp = false } = request;
  const parks = request.parks === true || takesUp;
  const ids = [...new Set(threadIds)];
  const deadline = timeoutMs === undefined ? Infinity : ports.clock.monotonic() + timeoutMs;
  const ended = new Map<string, ThreadRecord>();
  const seen = new Map<string, ThreadRecord | undefined>();
  /** The run that is waited for, by thread: of one that continues another since the wait began, its first. */
  const runs = new Map<string, number>();
  const parked = new Map<string, ThreadRecord>();
  const found: Find = async (id) => {
    const { registry } = ports.store;
    const last = await chainEnd(registry, id);
    if (!last) return [undefined, false];
    const { thread_id: threadId } = last;
    const run = runs.get(threadId) ?? (seen.has(id) ? 1 : await registry.runOf(threadId));
    runs.set(threadId, run);
    // a run that has not ended has no end: asking for one takes the write lock, which the children need
    if (isActive(last.status) && (await registry.runOf(threadId)) === run) return [last, false];
    const end = await registry.endOf(threadId, run);
    if (end && (isParked(end) || (parks && isWaiting(end)))) {
      // the run after it counts
      const current = await registry.runOf(threadId);
      runs.set(threadId, current);
      return current === run ? [last, false] : await found(id);
    }
    if (!end || isHandedOff(end)) return [end ?? last, false];
    return [await ports.signedEnd(end, run), true];
  };
  const settled = settling(ports, found);
  const quiet = new QuietThreads(ports);
  const look = async (): Promise<void> => {
    await request.onLook?.();
    const open = ids.filter((id) => !ended.has(id));
    for (const id of await quiet.others(open, seen)) {
      const [record, isOver] = await settled(id);
      seen.set(id, record);
      parked.delete(id);
      if (parks && record && isWaiting(record)) parked.set(id, record);
      if (!record || !isOver) continue;
      ended.set(id, record);
      await request.onEnd?.(record, runs.get(record.thread_id) ?? 1);
    }
  };
  const missing = (): number => ids.filter((id) => seen.has(id) && !seen.get(id)).length;
  const isEnough = (): boolean =>
    mode === 'any'
      ? ended.size > 0 || missing() === ids.length
      : ended.size + missing() === ids.length;
  const isForPeople = (): boolean =>
    !takesUp && parked.size > 0 && ended.size + missing() + parked.size === ids.length;
  const parksAtMs = ports.clock.monotonic() + (request.parksAfterMs ?? Infinity);
  const isLong = (): boolean => ports.clock.monotonic() >= parksAtMs;
  const isToPark = (): boolean => isForPeople() || isLong();
  await look();
  while (!isEnough() && !isToPark() && !signal.aborted) {
    const left = deadline - ports.clock.monotonic();
    if (left <= 0) break;
    await ports.watch.next(Math.min(left, LOOK_AGAIN_MS), signal);
    await quiet.rest(left, signal);
    await look();
  }
  const threads = await Promise.all(
    ids.map(async (id) => await waitedFor(ports, id, seen.get(id), ended.get(id))),
  );
  return {
    success:
      isEnough() &&
      threads.every(({ done, status }) =>
        done ? status === 'completed' : mode === 'any' && status !== 'not_found',
      ),
    timed_out: !isEnough(),
    threads,
    ...(isEnough() || !isToPark() || signal.aborted
      ? {}
      : { waiting: awaitedBy(isLong() ? openOf(ids, seen, ended) : [...parked.values()]) }),
  };
}

type Find = (id: string) => Promise<readonly [ThreadRecord | undefined, boolean]>;

/** Finds a thread and whether it is over, after an attempt to finalize one that has crashed. */
function settling(ports: WaitPorts, found: Find): Find {
  const retries = new Retries(ports);
  return async (id) => {
    const [lost, isEnded] = await found(id);
    if (!lost || !isLost(ports, lost) || !retries.isDue(lost)) return [lost, isEnded];
    const settlement = await ports.settle(lost);
    if (settlement === 'later') retries.put(lost);
    const [record, isOver] = await found(id);
    if (typeof settlement !== 'object' || !record || isOver) return [record, isOver];
    // its log can't tell more about how it ended
    return [{ ...record, status: 'error', error: settlement }, true];
  };
}

/** Pauses between two attempts to finalize a thread. */
const RETRY_MS = 1000;
const MAX_RETRY_MS = 30_000;

/** When crashed threads that could not be finalized are tried again: a disk may have space by then. */
class Retries {
  readonly #clock: WaitPorts['clock'];
  readonly #next = new Map<string, { readonly atMs: number; readonly pauseMs: number }>();

  constructor({ clock }: Pick<WaitPorts, 'clock'>) {
    this.#clock = clock;
  }

  isDue({ thread_id: id }: ThreadRecord): boolean {
    return this.#clock.monotonic() >= (this.#next.get(id)?.atMs ?? 0);
  }

  put({ thread_id: id }: ThreadRecord): void {
    const pauseMs = Math.min((this.#next.get(id)?.pauseMs ?? RETRY_MS / 2) * 2, MAX_RETRY_MS);
    this.#next.set(id, { atMs: this.#clock.monotonic() + pauseMs, pauseMs });
  }
}

/** The threads that are active: of many threads, one query finds those that need no look. */
class QuietThreads {
  readonly #ports: WaitPorts;
  #active: ReadonlyMap<string, ThreadRecord> = new Map();
  #nextLossMs = 0;
  /** True where processes may have been lost since they were looked at. */
  #seesLoss = true;
  #tookMs = 0;

  constructor(ports: WaitPorts) {
    this.#ports = ports;
  }

  /** Returns the open threads that need a look, by what was seen of each. */
  async others(
    open: readonly string[],
    seen: ReadonlyMap<string, ThreadRecord | undefined>,
  ): Promise<readonly string[]> {
    this.#tookMs = 0;
    if (open.length < MANY) return open;
    const { store, clock } = this.#ports;
    const now = clock.monotonic();
    this.#seesLoss = now >= this.#nextLossMs;
    if (this.#seesLoss) this.#nextLossMs = now + LOOK_AGAIN_MS;
    const active = await store.registry.list({ active: true });
    this.#active = new Map(active.map((record) => [record.thread_id, record]));
    const others = open.filter((id) => !this.#has(seen.get(id)));
    this.#tookMs = clock.monotonic() - now;
    return others;
  }

  /** Leaves the processor to many threads: a look may cost them more than it shows. */
  async rest(atMostMs: number, signal: AbortSignal): Promise<void> {
    const restMs = Math.min(this.#tookMs * REST, MAX_REST_MS, atMostMs);
    if (restMs > 0) await this.#ports.clock.sleep(restMs, signal);
  }

  /** True if the thread is in the run in which it was seen active, and its process lives. */
  #has(seen: ThreadRecord | undefined): boolean {
    if (!seen || !isActive(seen.status)) return false;
    const now = this.#active.get(seen.thread_id);
    if (now?.epoch !== seen.epoch) return false;
    return !this.#seesLoss || !isLost(this.#ports, now);
  }
}

/** Returns the threads that have not ended. */
function openOf(
  ids: readonly string[],
  seen: ReadonlyMap<string, ThreadRecord | undefined>,
  ended: ReadonlyMap<string, ThreadRecord>,
): readonly ThreadRecord[] {
  return ids.flatMap((id) => (ended.has(id) ? [] : (seen.get(id) ?? [])));
}

function awaitedBy(records: readonly ThreadRecord[]): AwaitedThreads {
  return {
    threads: records.map(({ thread_id: id }) => id),
    approvals: [...new Set(records.filter(isWaiting).flatMap(awaitedApprovals))],
  };
}

async function waitedFor(
  { changesOf: changesIn }: WaitPorts,
  id: string,
  seen: ThreadRecord | undefined,
  ended: ThreadRecord | undefined,
): Promise<WaitedThread> {
  const changes = await changesIn(ended);
  return { ...waited(id, seen, ended !== undefined), ...(changes ? { changes } : {}) };
}

/** True for a thread whose successor is waited for instead. */
function isHandedOff({ status, continuation_thread_id: next }: ThreadRecord): boolean {
  return status === 'continued' && next !== null;
}

/** True if an active thread's process is gone, or seems to be. Queued threads have no process yet. */
function isLost(
  { store, isSilent }: Pick<WaitPorts, 'store' | 'isSilent'>,
  record: ThreadRecord,
): boolean {
  const owner = store.owners.ofRecord(record);
  if (!isActive(record.status) || record.worker !== null || owner === undefined) return false;
  const state = store.owners.state(owner);
  return state === 'gone' || (state === 'unknown' && isSilent(record));
}

function waited(id: string, record: ThreadRecord | undefined, done: boolean): WaitedThread {
  if (!record) {
    return {
      thread_id: id,
      final_thread_id: id,
      directive: '',
      status: 'not_found',
      done: false,
      result: '',
    };
  }
  const { thread_id, directive, status, result, outputs, error, cost } = record;
  return {
    thread_id: id,
    final_thread_id: thread_id,
    directive,
    status,
    done,
    result: result ?? '',
    ...(outputs ? { outputs } : {}),
    ...(error ? { error } : {}),
    cost,
  };
}

/** Minimum time between two checks of the queue by one waiter; the end of any thread starts queued ones too. */
const QUEUE_MS = 500;
/** Time in which a process whose thread has ended takes the next one itself: what woke the waiter is often that end. */
const TURN_MS = 50;

/** Waits for threads of a project. The waiter also starts queued threads and finalizes crashed ones. */
export async function waitThreads(
  env: Recovering & Launching,
  request: WaitRequest,
): Promise<WaitReport> {
  const watch = watchFile(join(threadsFolder(env.projectPath), 'registry.db'));
  let nextQueueMs = 0;
  let hasLooked = false;
  const taker = new DecisionTaker(env);
  await wakeUnwoken(env, { neededNow: request.threadIds });
  const told = new Set<string>();
  const notice = (text: string): void => {
    if (told.has(text)) return;
    told.add(text);
    env.onNotice(text);
  };
  const onLook = async (): Promise<void> => {
    await request.onLook?.();
    if (env.clock.monotonic() < nextQueueMs) return;
    nextQueueMs = env.clock.monotonic() + QUEUE_MS;
    if (request.takesUp === true) await taker.takeUp(request.threadIds);
    if (hasLooked) await env.clock.sleep(TURN_MS, request.signal);
    hasLooked = true;
    await startQueued(env);
  };
  try {
    return await waitForThreads(
      {
        store: env.store,
        clock: env.clock,
        watch,
        isSilent: (thread) => deathOf(env, thread, env.config.recovery.staleSeconds) === 'stale',
        settle: async (thread) => await settleLost(env, thread, notice),
        signedEnd: async (thread, run) => await signedEnd(env, thread, run),
        changesOf: async (thread) => await changesOf(env, thread),
      },
      { ...request, onLook },
    );
  } finally {
    watch.close();
    // secret inputs are in the memory of this process: no other process can start those threads
    await startQueued(env);
  }
}

/** Finalizes a crashed thread. A changed record or log stays one; any other failure may pass. */
async function settleLost(
  env: Recovering & Launching,
  { thread_id: threadId }: ThreadRecord,
  notice: (text: string) => void,
): ReturnType<WaitPorts['settle']> {
  try {
    await recoverThread(env, threadId);
    await resumeWaitingAncestors(env, threadId);
    return 'settled';
  } catch (thrown) {
    const error = toRyeError(thrown);
    // another process does it, or its owner lives
    if (error.code === 'thread_locked' || error.code === 'illegal_transition') return 'later';
    const message = `thread ${threadId} crashed and could not be recovered: ${error.message}`;
    notice(message);
    if (error.exitCode !== EXIT.integrity) return 'later';
    const hint = error.hint ?? `See: rye verify thread ${threadId}`;
    return { code: 'thread_crashed', message, hint };
  }
}
