import { isoTime } from '../../core/clock.ts';
import { type ErrorInfo, RyeError } from '../../core/errors.ts';
import type { EventPayloads, LogEvent, LogHeader, UnknownEvent } from '../../core/events.ts';
import { compact } from '../../core/json.ts';
import type { Limits } from '../../core/limits.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { Integrity, ThreadRecord } from '../../core/thread.ts';
import { type Cost, NO_COST, toMicroUsd } from '../../core/usage.ts';
import { isKnown } from '../../log/tree.ts';
import { recoverDeliveries } from '../family/deliver-recovery.ts';
import type { ThreadEnv } from '../ports.ts';
import { startDocument, type ThreadDocument } from '../thread-document.ts';

/** What the signed part of a thread's log says, when its thread.json is lost. */
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
export async function rebuildDocument(
  env: ThreadEnv,
  threadId: string,
): Promise<Rebuilt | undefined> {
  const found = await signedLog(env, threadId);
  if (!found) return undefined;
  const { header, events, extent } = found;
  const started = events.find((event) => isKnown(event, 'thread_started'))?.payload;
  if (!started) return undefined;
  const plan = await planOf(env, threadId, started.plan_sha256);
  const begun = plan
    ? startDocument(plan, factsOf(threadId, header))
    : withoutPlan(factsOf(threadId, header), started, parentIn(events));
  const end = events.findLast((event) => isKnown(event, 'thread_finished'));
  const isOver =
    end !== undefined &&
    !events.some((event) => isKnown(event, 'thread_continued') && event.seq > end.seq);
  const cost = events.findLast((event) => isKnown(event, 'cost'))?.payload.total ?? NO_COST;
  if (!isOver) return { document: begun, plan, cost };
  const document: ThreadDocument = compact({
    ...begun,
    ...endOf(end.payload),
    updated_at: end.timestamp,
    // without a signature over its last byte the end of the log is not known
    transcript: extent,
  });
  return { document, plan, cost: end.payload.cost };
}

async function signedLog(env: ThreadEnv, threadId: string) {
  const { logs } = env.store;
  try {
    const verdict = await logs.verify(threadId, { verifier: env.verifier });
    if (!verdict.ok) {
      if (verdict.unsigned) return undefined;
      throw new RyeError(
        verdict.code,
        `the log of ${threadId} does not verify: ${verdict.reason} at byte ${verdict.offset}`,
        { hint: 'Nothing was taken from it. Start the directive again.' },
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

/** The stored plan, if it is the one whose hash was signed with the log. */
async function planOf(
  env: ThreadEnv,
  threadId: string,
  sha256: string | undefined,
): Promise<ThreadPlan | undefined> {
  if (sha256 === undefined) return undefined;
  try {
    return await env.files.readPlan({ thread_id: threadId, plan_sha256: sha256 });
  } catch (error) {
    if (error instanceof RyeError && UNUSABLE.has(error.code)) return undefined;
    throw error;
  }
}

const UNUSABLE: ReadonlySet<string> = new Set(['file_not_found', 'thread_tampered']);

function factsOf(
  threadId: string,
  header: LogHeader,
): { readonly threadId: string; readonly now: string; readonly continuationOf?: string } {
  const { created_at: now, continuation_of: continuationOf } = header;
  return { threadId, now, ...(continuationOf === undefined ? {} : { continuationOf }) };
}

/** A record that grants nothing: what the thread was allowed is only in its plan. */
function withoutPlan(
  { threadId, now, continuationOf }: ReturnType<typeof factsOf>,
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
    limits: started.limits as unknown as Limits,
    capabilities: [],
    integrity: started.integrity as Integrity,
    inputs: started.inputs,
    sources: [],
    continuation_of: continuationOf,
  });
}

/** What the registry alone knows of a thread: it grants nothing, and says how it ended. */
export function bareDocument(record: ThreadRecord): ThreadDocument {
  const { thread_id: threadId, created_at: now, parent_id: parentId } = record;
  const started = {
    directive: record.directive,
    model: record.model ?? '',
    provider: '',
    limits: {},
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
 * only once. What its log and the ledger say was spent is kept.
 */
export async function endWithoutPlan(
  env: ThreadEnv,
  { record, document, cost }: { record: ThreadRecord; document: ThreadDocument; cost: Cost },
): Promise<ErrorInfo> {
  const { thread_id: threadId, epoch } = record;
  const { registry, ledger } = env.store;
  const now = isoTime(env.clock.now());
  const error: ErrorInfo = {
    code: 'thread_damaged',
    message: `the process of ${threadId} died, and its plan.json is damaged or missing`,
    hint: `It can't be resumed. Start it again: rye run ${document.directive}`,
  };
  await ledger.report(threadId, toMicroUsd(cost.spend), epoch);
  await ledger.release(threadId);
  await recoverDeliveries(env, threadId, epoch);
  const end = { status: 'error' as const, result: '', error, cost };
  const { transcript: _open, outputs: _none, ...rest } = document;
  await env.files.writeDocument({ ...rest, ...end, updated_at: now });
  await registry.finish(threadId, { ...end, now, epoch });
  return error;
}
