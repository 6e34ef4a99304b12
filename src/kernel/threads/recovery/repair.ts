import { isoTime } from '../../core/clock.ts';
import { type ErrorInfo, RyeError, toRyeError } from '../../core/errors.ts';
import type { EventPayloads, LogEvent, LogHeader, UnknownEvent } from '../../core/events.ts';
import { compact, type JsonObject } from '../../core/json.ts';
import { completeLimits, eachLimit, type Limits } from '../../core/limits.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { mapOf, NUMBER } from '../../core/shape.ts';
import { isActive, isFinal, type ThreadRecord } from '../../core/thread.ts';
import { type Cost, NO_COST, toMicroUsd } from '../../core/usage.ts';
import { endRun, raisedLimits, runsOf } from '../../log/runs.ts';
import { isKnown } from '../../log/tree.ts';
import type { BudgetRow, Owner } from '../../storage/store.ts';
import { recordEnd } from '../end.ts';
import { recoverDeliveries } from '../family/delivery-log.ts';
import type { Process, Stored } from '../ports.ts';
import { holdsMoney } from '../run/waiting.ts';
import { startDocument, type ThreadDocument } from '../thread-document.ts';
import { bookedCost, recordedEnd, usablePlan } from './crashed-log.ts';

/** The rows that were restored from the signed files of a project's threads. */
export interface Restored {
  /** Threads that the registry lists again. */
  readonly threads: readonly string[];
  /** Threads whose budget is in the ledger again. */
  readonly budgets: readonly string[];
  /** Threads that are on disk and could not be read. */
  readonly failures: readonly { readonly thread_id: string; readonly error: ErrorInfo }[];
}

/**
 * Adds to the registry and the ledger the rows that they lack of the threads on disk. Existing rows stay, so it can be
 * repeated, and run beside other processes. A thread whose record is `running` gets a dead owner: the next recovery
 * ends it.
 */
export async function restoreThreads(env: Stored & Pick<Process, 'owner'>): Promise<Restored> {
  const { registry, ledger } = env.store;
  const failures: { thread_id: string; error: ErrorInfo }[] = [];
  const documents = new Map<string, ThreadDocument>();
  for (const threadId of env.files.list()) {
    try {
      documents.set(threadId, await documentOf(env, threadId));
    } catch (error) {
      failures.push({ thread_id: threadId, error: toRyeError(error).toJSON() });
    }
  }
  const ordered = [...documents.values()].toSorted((left, right) =>
    left.created_at < right.created_at ? -1 : left.created_at > right.created_at ? 1 : 0,
  );
  const threads: string[] = [];
  for (const document of ordered) {
    const record = await recordOf(env, document, documents);
    if (await registry.restore(record)) threads.push(record.thread_id);
  }
  const rows = parentsFirst(ordered, documents);
  return { threads, budgets: await ledger.restore(rows.map(budgetOf)), failures };
}

/** Threads on disk that the registry does not list. */
export async function unlistedThreads(
  env: Pick<Stored, 'files' | 'store'>,
): Promise<readonly string[]> {
  const unlisted: string[] = [];
  for (const threadId of env.files.list()) {
    if ((await env.store.registry.get(threadId)) === undefined) unlisted.push(threadId);
  }
  return unlisted;
}

/**
 * Replaces a damaged or forged thread.json by one derived from the signed log. The old file is kept beside it. The
 * registry's row stays; a thread that it does not list is listed again.
 */
export async function rebuildThread(
  env: Stored & Pick<Process, 'owner'>,
  threadId: string,
): Promise<{ readonly document: ThreadDocument; readonly kept: string | undefined }> {
  await assertUnheld(env, threadId);
  const record = await env.store.registry.get(threadId);
  const rebuilt = await rebuildDocument(env, threadId);
  if (!rebuilt) {
    throw new RyeError(
      'thread_damaged',
      `the log of ${threadId} has no signed event to rebuild from`,
      {
        hint: 'Start its directive again.',
        details: { thread_id: threadId },
      },
    );
  }
  const { document: found } = rebuilt;
  const isLost = record !== undefined && isFinal(record.status) && !isFinal(found.status);
  const document: ThreadDocument = isLost
    ? { ...found, status: record.status, ...(record.error ? { error: record.error } : {}) }
    : found;
  const kept = env.files.setAside(threadId);
  await env.files.writeDocument(document);
  await env.store.registry.restore(await recordOf(env, document, new Map([[threadId, document]])));
  await env.store.ledger.restore([budgetOf(document)]);
  return { document, kept };
}

/** Refuses while a process writes a thread of this project: what is rebuilt under it would contradict it. */
export async function assertIdle(env: Stored & Pick<Process, 'owner'>): Promise<void> {
  for (const threadId of env.files.list()) await assertUnheld(env, threadId);
}

async function assertUnheld(
  { store, owner }: Pick<Stored, 'store'> & Pick<Process, 'owner'>,
  threadId: string,
): Promise<void> {
  const holder = await store.logs.holder(threadId);
  if (!holder || (await isLetGo(store.logs, { threadId, owner }))) return;
  const pid = store.owners.pidOf(holder);
  throw new RyeError(
    'thread_locked',
    `thread ${threadId} is running in ${store.owners.describe(holder)}`,
    {
      hint: pid === undefined ? 'Wait for it.' : `Wait for it, or stop it with: kill ${pid}`,
      details: { thread_id: threadId, pid: pid ?? null },
    },
  );
}

/** True if the log can be held after all: a holder that can't be seen from here has been silent for long. */
async function isLetGo(
  logs: Stored['store']['logs'],
  { threadId, owner }: { readonly threadId: string; readonly owner: Owner },
): Promise<boolean> {
  try {
    const hold = await logs.hold(threadId, owner, await logs.heldEpoch(threadId));
    await hold.release();
    return true;
  } catch (error) {
    if (error instanceof RyeError && error.code === 'thread_locked') return false;
    throw error;
  }
}

/**
 * Returns the signed record, or one derived from the signed log if it is damaged or missing. A forged one is refused.
 */
async function documentOf(env: Stored, threadId: string): Promise<ThreadDocument> {
  try {
    return await env.files.readDocument(threadId);
  } catch (error) {
    const isLost = error instanceof RyeError && LOST_DOCUMENT.has(error.code);
    const rebuilt = isLost ? await rebuildDocument(env, threadId) : undefined;
    if (!rebuilt) throw error;
    env.files.setAside(threadId);
    await env.files.writeDocument(rebuilt.document);
    return rebuilt.document;
  }
}

/** Codes of a thread.json that can be rebuilt from the log. */
export const LOST_DOCUMENT: ReadonlySet<string> = new Set(['thread_not_found', 'thread_damaged']);

/** Names no process: recovery ends threads whose owner is gone. */
const GONE = { pid: 0, process_start: 'gone' } as const;

/** Returns the row of a thread as its signed record has it. */
export async function recordOf(
  env: Pick<Stored, 'store'> & Pick<Process, 'owner'>,
  document: ThreadDocument,
  all: ReadonlyMap<string, ThreadDocument>,
): Promise<ThreadRecord> {
  const { thread_id: threadId, status, updated_at: updatedAt } = document;
  const successor = [...all.values()].find(({ continuation_of: of }) => of === threadId);
  const isOpen = isActive(status);
  return {
    thread_id: threadId,
    directive: document.directive,
    parent_id: document.parent_thread_id,
    status: isOpen ? 'running' : status,
    created_at: document.created_at,
    updated_at: updatedAt,
    completed_at: isFinal(status) ? updatedAt : null,
    ...(isOpen
      ? { ...env.store.owners.columns(env.owner), ...GONE }
      : { pid: null, process_start: null, host: null }),
    // a takeover has to be newer than the lease of the process that died
    epoch: Math.max(1, await env.store.logs.heldEpoch(threadId)),
    heartbeat_at: isOpen ? isoTime(0) : null,
    model: document.model,
    cost: document.cost ?? NO_COST,
    spawn_count: [...all.values()].filter(
      (one) => one.parent_thread_id === threadId && one.continuation_of === undefined,
    ).length,
    result: document.result ?? null,
    outputs: document.outputs ?? null,
    error: document.error ?? null,
    continuation_of: document.continuation_of ?? null,
    continuation_thread_id:
      document.continuation_thread_id ??
      (status === 'continued' ? (successor?.thread_id ?? null) : null),
    chain_root_id: rootOf(document, all),
    cancel_requested: null,
    worker: null,
  };
}

/** The first thread of a chain; null for one that continues none and is continued by none. */
function rootOf(document: ThreadDocument, all: ReadonlyMap<string, ThreadDocument>): string | null {
  let first = document;
  const seen = new Set([first.thread_id]);
  for (;;) {
    const before = first.continuation_of === undefined ? undefined : all.get(first.continuation_of);
    if (!before || seen.has(before.thread_id)) break;
    seen.add(before.thread_id);
    first = before;
  }
  const isChained = first !== document || document.continuation_thread_id !== undefined;
  return isChained ? first.thread_id : null;
}

/** Returns the budget of a thread as its signed record has it. */
export function budgetOf(document: ThreadDocument): BudgetRow {
  const { thread_id, parent_thread_id: parentId, limits, cost } = document;
  const max = toMicroUsd(Number.isFinite(limits.spend) ? limits.spend : 0);
  return {
    thread_id,
    parent_id: parentId,
    max,
    reserved: parentId === null ? 0 : max,
    actual: toMicroUsd(cost?.spend ?? 0),
    status: holdsMoney(document) ? 'active' : 'released',
  };
}

function parentsFirst(
  documents: readonly ThreadDocument[],
  all: ReadonlyMap<string, ThreadDocument>,
): readonly ThreadDocument[] {
  const placed = new Set<string>();
  const order: ThreadDocument[] = [];
  const place = (document: ThreadDocument): void => {
    if (placed.has(document.thread_id)) return;
    placed.add(document.thread_id);
    const { parent_thread_id: parentId } = document;
    const parent = parentId === null ? undefined : all.get(parentId);
    if (parent) place(parent);
    order.push(document);
  };
  for (const document of documents) place(document);
  return order;
}

/** The content of the signed part of a thread's log, for a lost thread.json. */
export interface Rebuilt {
  /** As the log ends: `running` if it names no end. */
  readonly document: ThreadDocument;
  /** Absent if plan.json is not the one whose hash is in the log: then the thread can't be resumed. */
  readonly plan: ThreadPlan | undefined;
  readonly cost: Cost;
}

type Event = LogEvent | UnknownEvent;

/**
 * Derives a thread.json from what the log signed, and from the plan that the log names. Nothing is taken from bytes without
 * a signature. Returns undefined if there is no log or nothing of it is signed; throws if the log does not verify.
 */
export async function rebuildDocument(env: Stored, threadId: string): Promise<Rebuilt | undefined> {
  const found = await signedLog(env, threadId);
  if (!found) return undefined;
  const { header, events, extent } = found;
  const started = events.find((event) => isKnown(event, 'thread_started'))?.payload;
  if (!started) return undefined;
  const latest = {
    ...started,
    ...events.findLast((event) => isKnown(event, 'run_started'))?.payload,
  };
  const { plan_sha256: sha256, provider, model } = latest;
  const limits = { ...latest.limits, ...raisedLimits(events) };
  const plan = await usablePlan(env.files, {
    thread_id: threadId,
    ...compact({ plan_sha256: sha256 }),
  });
  const facts = factsOf(threadId, header);
  const runs = runsOf(header, events);
  const begun: ThreadDocument = compact({
    ...(plan
      ? { ...startDocument(plan, facts), provider, model, limits: storedLimits(limits) }
      : withoutPlan(facts, { ...latest, limits }, parentIn(events))),
    plan_sha256: plan && sha256,
    changes: events.findLast((event) => isKnown(event, 'changes_collected'))?.payload,
    runs: runs.length === 1 ? undefined : runs,
  });
  const end = recordedEnd(events);
  if (!end) return { document: begun, plan, cost: bookedCost(events) };
  const document: ThreadDocument = compact({
    ...begun,
    ...endOf(end.payload),
    updated_at: end.timestamp,
    // without a signature over its last byte the end of the log is not known
    transcript: extent,
  });
  return { document, plan, cost: end.payload.cost };
}

async function signedLog(env: Stored, threadId: string) {
  const { logs } = env.store;
  try {
    const verdict = await logs.verify(threadId, { verifier: env.verifier });
    if (!verdict.ok) {
      if (verdict.unsigned) return undefined;
      throw new RyeError(
        verdict.code,
        `the log of ${threadId} does not verify: ${verdict.reason} at byte ${verdict.offset}`,
        { hint: 'rye ignored it. Start the directive again.' },
      );
    }
    const { verified_bytes: signed, unverified_bytes: unsigned, bytes, sha256, events } = verdict;
    const { header, events: read } = await logs.read(threadId, { end: signed });
    return {
      header,
      events: read,
      extent: unsigned === 0 ? { bytes, sha256, events } : undefined,
    };
  } catch (error) {
    if (error instanceof RyeError && error.code === 'thread_not_found') return undefined;
    throw error;
  }
}

function factsOf(threadId: string, header: LogHeader): Parameters<typeof startDocument>[1] {
  const { created_at: now, continuation_of: continuationOf } = header;
  return { threadId, now, continuationOf };
}

/** A record that grants nothing: what the thread was allowed is only in its plan. */
function withoutPlan(
  { threadId, now, continuationOf }: Parameters<typeof startDocument>[1],
  started: EventPayloads['thread_started'],
  parentId: string | null,
): ThreadDocument {
  return compact({
    thread_id: threadId,
    directive: started.directive,
    status: 'running' as const,
    created_at: now,
    updated_at: now,
    model: started.model,
    provider: started.provider,
    parent_thread_id: parentId,
    limits: storedLimits(started.limits),
    capabilities: [],
    integrity: started.integrity === 'verified' ? 'verified' : 'unverified',
    inputs: started.inputs,
    sources: [],
    continuation_of: continuationOf,
  });
}

function storedLimits(limits: JsonObject): Limits {
  return STORED_LIMITS.fits(limits) ? completeLimits(limits) : NO_LIMITS;
}

const STORED_LIMITS = mapOf(NUMBER);
const NO_LIMITS = eachLimit(() => 0);

/** Derives a document from the registry alone: it grants nothing and has the thread's end. */
export function bareDocument(record: ThreadRecord): ThreadDocument {
  const { thread_id: threadId, created_at: now, parent_id: parentId } = record;
  const started = {
    directive: record.directive,
    model: record.model ?? '',
    provider: '',
    limits: NO_LIMITS,
    integrity: 'unverified',
    inputs: {},
  };
  return withoutPlan({ threadId, now }, started, parentId);
}

function parentIn(events: readonly Event[]): string | null {
  const budget = events.find((event) => isKnown(event, 'budget'));
  return budget?.payload.parent_thread_id ?? null;
}

function endOf({ status, result, outputs, error, cost }: EventPayloads['thread_finished']) {
  return compact({ status, result, outputs, error, cost });
}

/**
 * Ends a thread whose plan is lost: as an error that can't be resumed, with a signed thread.json, so that it is refused
 * only once. The spend in its log and the ledger is kept.
 */
export async function endWithoutPlan(
  env: Stored & Pick<Process, 'clock'>,
  { record, document, cost }: { record: ThreadRecord; document: ThreadDocument; cost: Cost },
): Promise<ErrorInfo> {
  const { thread_id: threadId, epoch } = record;
  const { ledger } = env.store;
  const error: ErrorInfo = {
    code: 'thread_damaged',
    message: `the process of ${threadId} died, and its plan.json is damaged or missing`,
    hint: `It can't be resumed. Start it again: rye run ${document.directive}`,
  };
  await ledger.report(threadId, toMicroUsd(cost.spend), epoch);
  await recoverDeliveries(env, threadId, epoch);
  const end = { status: 'error' as const, result: '', error, cost };
  const { transcript: _open, outputs: _none, runs, ...rest } = document;
  await recordEnd(env, {
    threadId,
    epoch,
    end: () => end,
    writeDocument: async (_, now) => {
      const ended = { ...rest, ...(runs ? { runs: endRun(runs, end, now) } : {}) };
      await env.files.writeDocument({ ...ended, ...end, updated_at: now });
    },
  });
  return error;
}
