import { isoTime } from '../../core/clock.ts';
import { type ErrorInfo, messageOf, RyeError, toRyeError } from '../../core/errors.ts';
import type { EventPayloads, LogEvent, UnknownEvent } from '../../core/events.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { isActive, type ThreadRecord, type ThreadStatus } from '../../core/thread.ts';
import { runBy } from '../../core/thread-errors.ts';
import { type Cost, estimatedSpend, toMicroUsd } from '../../core/usage.ts';
import { crashedAnswer } from '../../log/interruption.ts';
import { openCalls, settlementDrafts } from '../../log/open-calls.ts';
import { runsOf } from '../../log/runs.ts';
import { buildTree } from '../../log/tree.ts';
import type { LoopOutcome } from '../../loop/ports.ts';
import { endChildren } from '../family/end-children.ts';
import { wakeUnwoken } from '../family/take-up.ts';
import type { Configured, Launching, Process, Recovering, Stored } from '../ports.ts';
import { type FinalizeRequest, finalizeThread } from '../run/finalize.ts';
import { type Death, deathOf, silentOnes } from '../run/liveness.ts';
import { Recorder } from '../run/recorder.ts';
import { endUnstarted, type UnstartedEnd } from '../run/start.ts';
import { judge, type Verdict } from '../run/verdict.ts';
import { holdsMoney } from '../run/waiting.ts';
import { headerOf, openDocument, type ThreadDocument } from '../thread-document.ts';
import { removeLeftovers } from '../thread-files-fs.ts';
import { bookedCost, openDeadLog, recordedEnd, usablePlan } from './crashed-log.ts';
import { changesOfDead, removeDead } from './crashed-worktree.ts';
import { heardLog, ratesOf, type Silence, settledAnswer, timeOfDeath } from './last-words.ts';
import { costOfLost, type LostUsage, lostUsage, withLost } from './lost-usage.ts';
import { bareDocument, endWithoutPlan, LOST_DOCUMENT, rebuildDocument } from './repair.ts';
import { refreshRow } from './stale-row.ts';

/** The action taken for a crashed thread. */
export interface RecoveredThread {
  readonly thread_id: string;
  readonly status: ThreadStatus;
  /**
   * `failed`: ended as a resumable error. `cancelled`: ended as it had been asked to. `finished`: its log has the end,
   * the rest was made up for. `never_ran`: nothing had happened yet. `released`: it had ended without releasing its
   * budget. `rebuilt`: a person had its thread.json rebuilt from the log.
   */
  readonly action: 'failed' | 'cancelled' | 'finished' | 'never_ran' | 'released' | 'rebuilt';
  readonly reason: string;
  /** Bytes after the last signature of its log, which were moved to a file beside it. */
  readonly unverified_bytes?: number;
  /** USD that were booked for model calls which the crash cut: an upper bound. */
  readonly estimated_spend_usd?: number;
}

/**
 * Finalizes a crashed thread: takes it over, repairs the tail of its log, settles open calls, the budget and the files.
 * Throws `thread_locked` while its owner lives. Can be repeated after an interruption.
 */
export async function recoverThread(env: Recovering, threadId: string): Promise<RecoveredThread> {
  const { registry } = env.store;
  const listed = await registry.get(threadId);
  const found = listed && (await refreshRow(env, listed));
  if (!found || !isActive(found.status)) {
    throw new RyeError('illegal_transition', `thread ${threadId} has no process to recover from`, {
      hint: `See: rye threads show ${threadId}`,
      details: { thread_id: threadId, status: found?.status ?? null },
    });
  }
  // of the worker of a fleet, the store knows if it lives: the claim is refused then
  if (found.worker !== null) return await recoverDead(env, { found, death: 'gone' });
  const { staleSeconds } = env.config.recovery;
  const death = deathOf(env, found, staleSeconds);
  const isAlive = death === 'stale' && (await silentOnes(env, [found], staleSeconds)).length === 0;
  if (!death || isAlive) throw alive(found);
  return await recoverDead(env, { found, death });
}

/** A thread that has lost its owner, as it was found. */
export interface FoundDead {
  readonly found: ThreadRecord;
  readonly death: Death;
}

/**
 * Settles the calls and the cost of a leg whose worker or process is gone, and parks the thread: the next leg continues it. A thread
 * that had ended, or that was asked to stop, ends. Throws `thread_locked` while the worker lives.
 */
export async function parkDead(env: Recovering, found: ThreadRecord): Promise<RecoveredThread> {
  return await recoverDead(env, { found, death: 'gone', isParked: true });
}

interface DeadRecord extends FoundDead {
  readonly isParked?: boolean;
}

async function recoverDead(env: Recovering, dead: DeadRecord): Promise<RecoveredThread> {
  const { found, death } = dead;
  const { registry } = env.store;
  const signed = await documentOf(env, found);
  const now = isoTime(env.clock.now());
  const silentSince = death === 'stale' ? found.heartbeat_at : null;
  const record = await registry.claim(found.thread_id, env.owner, now, silentSince);
  try {
    return await endDead(env, { ...dead, ...signed, record });
  } catch (error) {
    await giveBack(env, found, record);
    throw error;
  }
}

/** Leaves a thread that could not be ended to the next recovery, which would take this process for its owner. */
async function giveBack(
  { store: { registry, maintenance } }: Pick<Stored, 'store'>,
  { pid, process_start, host, heartbeat_at }: ThreadRecord,
  record: ThreadRecord,
): Promise<void> {
  // of a store of many machines, the row of the worker decides
  if (!maintenance) return;
  const ownerless = { ...record, pid, process_start, host, heartbeat_at };
  await registry.renew(record, ownerless, 0).catch(() => undefined);
}

async function endDead(
  env: Recovering,
  {
    found,
    death,
    record,
    isParked = false,
    isRebuilt = false,
    ...signed
  }: DeadRecord & SignedRecord & { readonly record: ThreadRecord },
): Promise<RecoveredThread> {
  const threadId = found.thread_id;
  const { ledger } = env.store;
  let { document } = signed;
  // before its cost is read: an owner that wakes up now must not add to it
  await ledger.fence(threadId, record.epoch);
  // the cleanup removes the mark of its death
  const silence = { found, death, diedMs: env.files.diedAt(threadId, found.epoch) };
  await removeLeftovers(env.files.folder(threadId));
  await env.files.pull(threadId);
  const plan = document && (await usablePlan(env.files, document));
  const error = crashed(found, death);
  if (document && isRebuilt) {
    const kept = env.files.setAside(threadId);
    if (kept !== undefined) env.onNotice(`thread ${threadId}: its damaged thread.json is ${kept}`);
    await env.files.writeDocument(document);
    document = await env.files.readDocument(threadId);
  }
  if (document && !plan && (isRebuilt || (await hasRun(env, threadId)))) {
    await endChildren(env, threadId, 'error');
    const cost = await costOf(env, { record, events: [], lost: undefined });
    const { message } = await endWithoutPlan(env, { record, document, cost });
    return { thread_id: threadId, status: 'error', action: 'failed', reason: message };
  }
  if (!document || !plan) {
    const end = unstartedEnd(found, {
      ...error,
      hint: 'It had done nothing yet: start it again.',
    });
    await endChildren(env, threadId, end.status);
    await endUnstarted(env, threadId, end);
    return { thread_id: threadId, status: end.status, action: 'never_ran', reason: error.message };
  }
  return await finishDead(env, { record, document, plan, error, isParked, silence });
}

/** Returns the thread that continues one which had ended, with what it may spend if it has not got that yet. */
async function successorOf(
  { store, files }: Stored,
  threadId: string,
  end: FinishedPayload,
): Promise<FinalizeRequest['successor']> {
  if (end.status !== 'continued') return undefined;
  const order = 'oldest first';
  const last = (await store.registry.list({ continuationOf: threadId, order })).at(-1);
  if (!last) return undefined;
  const { thread_id: id } = last;
  const [row] = await store.ledger.rows({ thread_id: id });
  const isFunded = row !== undefined && row.max > 0;
  const document = isFunded ? undefined : await files.readDocument(id).catch(() => undefined);
  return { threadId: id, ...(document ? { spendUsd: document.limits.spend } : {}) };
}

function unstartedEnd({ cancel_requested: reason }: ThreadRecord, error: ErrorInfo): UnstartedEnd {
  if (reason === null) return { status: 'error', error };
  const message = `the thread was cancelled: ${reason}`;
  return { status: 'cancelled', error: { code: 'cancelled', message } };
}

function actionOf(
  end: FinishedPayload | undefined,
  status: ThreadStatus,
): RecoveredThread['action'] {
  if (end) return 'finished';
  return status === 'cancelled' ? 'cancelled' : 'failed';
}

interface DeadThread {
  readonly record: ThreadRecord;
  readonly document: ThreadDocument;
  readonly plan: ThreadPlan;
  readonly error: ErrorInfo;
  /** True to leave the thread to the next leg. */
  readonly isParked: boolean;
  readonly silence: Silence;
}

async function finishDead(env: Recovering, dead: DeadThread): Promise<RecoveredThread> {
  const { record, document, plan, error, isParked } = dead;
  const threadId = record.thread_id;
  const { writer, events, unverified, failure = error } = await openDeadLog(env, dead);
  const recorder = writer && new Recorder({ writer, clock: env.clock, deltas: 'off' });
  const end = recordedEnd(events)?.payload;
  const lost = end ? undefined : await lostBy(env, dead, events);
  const cost = await costOf(env, { record, events, lost });
  if (recorder && lost) recorder.record([costOfLost(lost, cost)]);
  if (recorder && !end) settleOpen(recorder, { events, plan, reason: error.message });
  const parentId = document.parent_thread_id;
  const hasEnded = end !== undefined;
  const worktree = { threadId, plan, parentId, events, hasEnded, isParked, recorder };
  const changes = await changesOfDead(env, worktree);
  const successor = end && (await successorOf(env, threadId, end));
  const outcome = outcomeOf(end, {
    failure,
    cost,
    cancelled: record.cancel_requested,
    isParked: isParked && writer !== undefined,
  });
  await endFamily(env, { threadId, end, outcome });
  const result = await finalizeThread(env, {
    started: {
      threadId,
      plan,
      record,
      document: await asLogged(env, document, events),
      parent: undefined,
    },
    outcome,
    changes,
    hooks: undefined,
    log: writer && recorder && { writer, recorder },
    children: [],
    ...(end ? { recorded: verdictOf(end) } : {}),
    ...(successor ? { successor } : {}),
  });
  await removeDead(env, worktree, changes);
  return {
    thread_id: threadId,
    status: result.status,
    action: actionOf(end, result.status),
    reason: failure.message,
    ...unverified,
    ...bookedFor(lost),
  };
}

/** Applies the child policy. The children of a crashed thread that is resumed at once continue. */
async function endFamily(
  env: Recovering,
  dead: {
    readonly threadId: string;
    readonly end: FinishedPayload | undefined;
    readonly outcome: LoopOutcome;
  },
): Promise<void> {
  const { threadId, end, outcome } = dead;
  const { status } = end ?? judge(outcome, false);
  const isResumed = env.config.recovery.mode === 'resume' && !end && status === 'error';
  if (!isResumed) await endChildren(env, threadId, status);
}

function bookedFor(lost: LostUsage | undefined): Pick<RecoveredThread, 'estimated_spend_usd'> {
  return lost ? estimatedSpend(lost.open.estimated) : {};
}

/** Returns the usage of a dead owner that its log does not book, with what arrived of an answer that was cut. */
async function lostBy(
  env: Recovering,
  { record, plan, silence }: DeadThread,
  events: readonly (LogEvent | UnknownEvent)[],
): Promise<LostUsage | undefined> {
  const heard = await heardLog(env.store.logs, record.thread_id, events);
  return lostUsage(heard, plan, {
    traits: env.models.traits(plan.model),
    endMs: timeOfDeath(env, silence, heard),
    rateOf: await ratesOf(env, plan),
    settled: await settledAnswer(env, plan, heard),
  });
}

/** Answers the open calls, keeps the signed text of an open answer, and records the crash in the log. */
function settleOpen(
  recorder: Recorder,
  {
    events,
    plan: { model },
    reason,
  }: {
    readonly events: readonly (LogEvent | UnknownEvent)[];
    readonly plan: ThreadPlan;
    readonly reason: string;
  },
): void {
  const calls = openCalls(buildTree(events), events);
  recorder.record([
    ...settlementDrafts(calls),
    ...crashedAnswer(events, { provider: model.provider, model: model.id }),
    { event_type: 'note', payload: { text: `recovered: ${reason}` } },
  ]);
}

type FinishedPayload = EventPayloads['thread_finished'];

function verdictOf({ status, result, error }: FinishedPayload): Verdict {
  return { status, result, ...(error ? { error } : {}) };
}

function outcomeOf(
  end: FinishedPayload | undefined,
  facts: {
    readonly failure: ErrorInfo;
    readonly cost: Cost;
    /** The reason of a request to cancel it. */
    readonly cancelled: string | null;
    readonly isParked: boolean;
  },
): LoopOutcome {
  const { failure, cost, cancelled, isParked } = facts;
  const last = { cost, last_text: end?.result ?? '' };
  if (!end && cancelled !== null) return { kind: 'cancelled', reason: cancelled, ...last };
  if (!end && isParked)
    return { kind: 'suspended', reason: 'its worker is gone', isParked, ...last };
  if (end?.status !== 'completed') return { kind: 'error', error: end?.error ?? failure, ...last };
  const { result, outputs } = end;
  return { kind: 'completed', result, ...(outputs ? { outputs } : {}), ...last };
}

/**
 * Returns the cost of the thread: the last `cost` event, or the amount that it had reported to the ledger, which comes
 * first and is never lowered; plus what it had not booked when it crashed.
 */
async function costOf(
  env: Pick<Stored, 'store'>,
  used: {
    readonly record: ThreadRecord;
    readonly events: readonly (LogEvent | UnknownEvent)[];
    readonly lost: LostUsage | undefined;
  },
): Promise<Cost> {
  const { record, events, lost } = used;
  const [row] = await env.store.ledger.rows({ thread_id: record.thread_id });
  // of a log that was not read, the registry knows what its last turns have booked
  const booked = events.length === 0 ? record.cost : bookedCost(events);
  return withLost(booked, row?.actual ?? 0, lost);
}

function crashed({ thread_id: threadId, pid }: ThreadRecord, death: Death): ErrorInfo {
  const how = death === 'gone' ? 'ended without finishing it' : 'gave no sign of life';
  return {
    code: 'thread_crashed',
    message: `the process ${pid ?? '?'} of the thread ${how}`,
    hint: `Resume: rye threads resume ${threadId}`,
  };
}

function alive({ thread_id: threadId, pid, host }: ThreadRecord): RyeError {
  return runBy(threadId, `process ${pid} on ${host}`, { pid, host });
}

/** The result of a sweep, with its failures. */
export interface RecoverySweep {
  readonly recovered: readonly RecoveredThread[];
  readonly failures: readonly { readonly thread_id: string; readonly error: ErrorInfo }[];
}

/** Dead threads of the project, newest first, so that children come before their parents. */
export async function findDead(
  env: Pick<Stored, 'store'> & Process & Configured,
  options: { readonly onlyGone: boolean },
): Promise<readonly FoundDead[]> {
  const { staleSeconds } = env.config.recovery;
  const active = await env.store.registry.list({ active: true });
  const judged = active.map((found) => ({ found, death: deathOf(env, found, staleSeconds) }));
  const suspects = judged.filter(({ death }) => death === 'stale').map(({ found }) => found);
  const silent = options.onlyGone ? [] : await silentOnes(env, suspects, staleSeconds);
  return judged.flatMap(({ found, death }) =>
    death === 'gone' || (death === 'stale' && silent.includes(found)) ? [{ found, death }] : [],
  );
}

/** Recovers the given threads one by one; one that can't be recovered does not keep the others. */
export async function recoverEach(
  env: Recovering,
  dead: readonly FoundDead[],
): Promise<RecoverySweep> {
  const recovered: RecoveredThread[] = [];
  const failures: { thread_id: string; error: ErrorInfo }[] = [];
  for (const one of dead) {
    const { thread_id } = one.found;
    try {
      recovered.push(await recoverDead(env, one));
    } catch (error) {
      const failure = toRyeError(error);
      // another process was faster: nothing is left to do
      if (failure.code === 'thread_locked' || failure.code === 'illegal_transition') continue;
      failures.push({ thread_id, error: failure.toJSON() });
    }
  }
  return { recovered: [...recovered, ...(await releaseEnded(env))], failures };
}

/**
 * Settles and releases the budgets of threads that ended without doing so, because their process died or could not
 * write.
 */
async function releaseEnded(env: Pick<Stored, 'store'>): Promise<readonly RecoveredThread[]> {
  const { registry, ledger, owners } = env.store;
  const released: RecoveredThread[] = [];
  for (const { thread_id: threadId } of await ledger.rows({ status: 'active' })) {
    const record = await registry.get(threadId);
    if (!record || holdsMoney(record)) continue;
    const owner = owners.ofRecord(record);
    if (owner && owners.state(owner) !== 'gone') continue;
    try {
      await ledger.report(threadId, toMicroUsd(record.cost.spend), record.epoch);
    } catch (error) {
      // another process has resumed it since
      if (error instanceof RyeError && error.code === 'thread_locked') continue;
      throw error;
    }
    await ledger.release(threadId, record.epoch);
    released.push({
      thread_id: threadId,
      status: record.status,
      action: 'released',
      reason: 'its process died before it gave the budget back',
    });
  }
  return released;
}

/** Finalizes the project's crashed threads at each start, and wakes those that a crash left asleep. Never fails the start. */
export async function recoverQuietly(env: Recovering & Launching): Promise<void> {
  try {
    await wakeUnwoken(env, { ended: await settleDead(env) });
  } catch (error) {
    env.onNotice(`crashed threads could not be recovered: ${messageOf(error)}`);
  }
}

async function settleDead(env: Recovering): Promise<readonly string[]> {
  const dead = await findDead(env, { onlyGone: true });
  if (dead.length === 0) return [];
  const ids = dead.map(({ found }) => found.thread_id).join(', ');
  if (env.config.recovery.mode === 'resume') {
    env.onNotice(`crashed threads: ${ids}. Resume them: rye threads recover`);
    return [];
  }
  const { recovered, failures } = await recoverEach(env, dead);
  for (const { thread_id, error } of failures) {
    env.onNotice(`thread ${thread_id} could not be recovered: ${error.message}`);
  }
  return recovered.map(({ thread_id: id }) => id);
}

/**
 * Returns thread.json of a thread whose end is to be written, with the runs that its log records. A run that is only in
 * thread.json has not begun: neither its limits nor its plan apply.
 */
export async function asLogged(
  env: Stored,
  document: ThreadDocument,
  events: readonly (LogEvent | UnknownEvent)[],
): Promise<ThreadDocument> {
  const open = openDocument(document);
  // a log that was not read tells nothing
  if (events.length === 0) return open;
  const { runs: announced = [], ...rest } = open;
  const runs = runsOf(headerOf(document), events);
  const before =
    announced.length > runs.length
      ? (await rebuildDocument(env, document.thread_id))?.document
      : undefined;
  const { runs: _runs, ...logged } = { ...rest, ...(before ? openDocument(before) : {}) };
  return runs.length === 1 ? logged : { ...logged, runs };
}

interface SignedRecord {
  readonly document?: ThreadDocument;
  readonly isRebuilt?: boolean;
}

/**
 * Returns the signed thread.json, or one derived from the signed log if it is missing or damaged; no document if the
 * thread crashed before it had one. A forged one is refused: only a person may replace it.
 */
async function documentOf(env: Stored, record: ThreadRecord): Promise<SignedRecord> {
  const { thread_id: threadId } = record;
  try {
    return { document: await env.files.readDocument(threadId) };
  } catch (error) {
    if (!(error instanceof RyeError) || !LOST_DOCUMENT.has(error.code)) throw error;
    const rebuilt = await rebuildDocument(env, threadId).catch(() => undefined);
    if (rebuilt) return { document: openDocument(rebuilt.document), isRebuilt: true };
    if (error.code === 'thread_not_found') return {};
    return { document: bareDocument(record), isRebuilt: true };
  }
}

/** True if the thread's log holds something that was signed. */
async function hasRun(env: Stored, threadId: string): Promise<boolean> {
  return (await rebuildDocument(env, threadId).catch(() => true)) !== undefined;
}
