import type { AskedPermission } from '../core/approval.ts';
import { type ErrorInfo, RyeError } from '../core/errors.ts';
import type { LogHeader } from '../core/events.ts';
import type { WorktreeChanges } from '../core/isolation.ts';
import { compact, type JsonObject } from '../core/json.ts';
import { completeLimits, type Limits, type PartialLimits } from '../core/limits.ts';
import type { ThreadPlan } from '../core/plan.ts';
import {
  listOf,
  mapOf,
  NUMBER,
  nullable,
  OBJECT,
  objectOf,
  oneOf,
  optional,
  TEXT,
} from '../core/shape.ts';
import {
  type Integrity,
  THREAD_STATUSES,
  type ThreadRun,
  type ThreadStatus,
} from '../core/thread.ts';
import type { Cost, SessionCost } from '../core/usage.ts';
import { planHash, planText } from './stored-plan.ts';

/** The session of another program that a thread was imported from. */
export interface ImportedFrom {
  readonly format: 'pi';
  readonly version: number;
  readonly session_id: string;
  /** Name of the file, without its folder. */
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
  /** The name that a person gave it. */
  readonly title?: string;
  /** Times of its header and of its last entry. */
  readonly started_at?: string;
  readonly ended_at?: string;
  /**
   * What it had cost on all branches, as it states. The thread's own `cost` and its limits only count what rye spends.
   * Absent in older documents.
   */
  readonly cost?: SessionCost;
}

/** A run without a signing key: a key of that run alone, which is gone, made the checkpoints of its log. */
export interface UnsignedRun {
  readonly key_id: string;
  /** PEM. Anyone can make such a key: it proves that the record is whole, and not whose it is. */
  readonly public_key: string;
  /** The signature of the record afterwards; absent: it is not signed. */
  readonly signed?: {
    readonly key_id: string;
    readonly signed_at: string;
    /** Length of the log then. */
    readonly bytes: number;
  };
}

/**
 * The content of `thread.json` without its `_signature`: the thread's permissions, decided at the start, and its end.
 * Children, resume and verification rely on it and read it only through its signature.
 */
export interface ThreadDocument {
  readonly thread_id: string;
  readonly directive: string;
  readonly status: ThreadStatus;
  readonly created_at: string;
  readonly updated_at: string;
  readonly model: string;
  readonly provider: string;
  readonly parent_thread_id: string | null;
  readonly limits: Limits;
  /** The grant of each limit that `--raise-limits` raised; absent: none. */
  readonly raised_limits?: PartialLimits;
  readonly capabilities: readonly string[];
  /** Demands that its children have too; absent: none. */
  readonly asks?: readonly AskedPermission[];
  readonly integrity: Integrity;
  /** Declared inputs; secret ones are `***`. */
  readonly inputs: JsonObject;
  /** The files that decided how it runs, with their hashes. */
  readonly sources: readonly {
    readonly type: string;
    readonly id: string;
    readonly space: string;
    readonly sha256: string;
  }[];
  /** Every run, in order; absent for a thread that has had only one. */
  readonly runs?: readonly ThreadRun[];
  /** Total of all runs. */
  readonly cost?: Cost;
  /** Belongs to the last run, as `outputs` and `error` do. */
  readonly result?: string;
  readonly outputs?: JsonObject;
  readonly error?: ErrorInfo;
  /** Set while it is suspended until people have decided. */
  readonly waiting_for?: 'approval';
  /** Final state of the log; absent while the thread runs. */
  readonly transcript?: {
    readonly bytes: number;
    readonly sha256: string;
    readonly events: number;
  };
  readonly continuation_of?: string;
  readonly continuation_thread_id?: string;
  /** The session that an imported conversation was copied from; absent for threads that rye ran. */
  readonly imported_from?: ImportedFrom;
  /** Absent: it was signed while it ran. */
  readonly unsigned_run?: UnsignedRun;
  /** The folder that its tools take for the project, relative to the project; absent: the project. */
  readonly work_path?: string;
  /** Its name in lists; absent: none. */
  readonly label?: string;
  /** Changes in its worktree, once it has ended; absent: none. */
  readonly changes?: WorktreeChanges;
  /** SHA-256 hex of the plan, which is stored beside this file and may be handed over to another process. */
  readonly plan_sha256?: string;
  /** SHA-256 hex of the capability snapshot without its signature, once the thread has ended. */
  readonly capabilities_sha256?: string;
}

/** Returns the thread.json that is written before the loop starts. */
export function startDocument(
  plan: ThreadPlan,
  facts: {
    readonly threadId: string;
    readonly now: string;
    readonly continuationOf?: string | undefined;
  },
): ThreadDocument {
  return compact({
    thread_id: facts.threadId,
    directive: plan.directive.id,
    status: 'running' as const,
    created_at: facts.now,
    updated_at: facts.now,
    model: plan.model.id,
    provider: plan.model.provider,
    parent_thread_id: plan.parent_thread_id,
    limits: plan.limits,
    raised_limits: plan.raised_limits,
    capabilities: plan.capabilities,
    asks: plan.asks,
    integrity: plan.integrity,
    inputs: plan.inputs,
    sources: [...plan.chain, ...plan.context_sources].map(({ type, id, space, sha256 }) => ({
      type,
      id,
      space,
      sha256,
    })),
    plan_sha256: planHash(planText(plan)),
    work_path: plan.work_path,
    label: plan.label,
    continuation_of: facts.continuationOf,
  });
}

/** Returns thread.json of a thread that runs again, without its earlier end. */
export function openDocument(document: ThreadDocument): ThreadDocument {
  const { cost: _cost, result: _result, outputs: _outputs, error: _error, ...begun } = document;
  const {
    transcript: _log,
    capabilities_sha256: _capabilities,
    waiting_for: _for,
    ...open
  } = begun;
  return { ...open, status: 'running' };
}

/** Returns thread.json of a thread that begins another run, which follows `plan`; `sha256` is that of the stored plan. */
export function nextDocument(
  before: ThreadDocument,
  plan: ThreadPlan,
  facts: { readonly now: string; readonly sha256: string; readonly runs: readonly ThreadRun[] },
): ThreadDocument {
  const { thread_id: threadId, created_at, continuation_of: continuationOf } = before;
  const { now, sha256, runs } = facts;
  return {
    ...openDocument(before),
    ...startDocument(plan, { threadId, now, continuationOf }),
    created_at,
    plan_sha256: sha256,
    runs,
  };
}

/** Returns line 1 of the thread's log. */
export function headerOf(document: ThreadDocument): LogHeader {
  const { thread_id, directive, created_at, continuation_of } = document;
  return {
    event_type: 'thread',
    version: 1,
    thread_id,
    directive,
    created_at,
    ...(continuation_of === undefined ? {} : { continuation_of }),
  };
}

/** Returns a thread document as the JSON value that is signed and written. */
export function asJson(document: ThreadDocument): JsonObject {
  return JSON.parse(JSON.stringify(document)) as JsonObject;
}

/**
 * Reads a signed document back; `log_malformed` names the first member that is missing or wrong. The signature doesn't
 * prove the shape: another version of rye may have signed it. Limits that were unknown then get their default.
 */
export function parseDocument(value: unknown, threadId: string): ThreadDocument {
  if (DOCUMENT.fits(value)) return { ...value, limits: completeLimits(value.limits) };
  const fault = DOCUMENT.fault(value) ?? '';
  throw new RyeError('log_malformed', `thread.json of ${threadId} has an unknown format`, {
    hint: `Its signature is valid, but its member ${fault} is missing or wrong. A newer rye may have written it: update rye.`,
    details: { thread_id: threadId, member: fault },
  });
}

const texts = listOf(TEXT);

const DOCUMENT = objectOf<ThreadDocument>({
  thread_id: TEXT,
  directive: TEXT,
  status: oneOf(THREAD_STATUSES),
  created_at: TEXT,
  updated_at: TEXT,
  model: TEXT,
  provider: TEXT,
  parent_thread_id: nullable(TEXT),
  limits: mapOf(nullable(NUMBER)),
  raised_limits: optional(OBJECT),
  capabilities: texts,
  asks: optional(listOf(OBJECT)),
  integrity: TEXT,
  inputs: OBJECT,
  sources: listOf(OBJECT),
  runs: optional(listOf(OBJECT)),
  cost: optional(OBJECT),
  result: optional(TEXT),
  outputs: optional(OBJECT),
  error: optional(OBJECT),
  waiting_for: optional(TEXT),
  transcript: optional(
    objectOf<NonNullable<ThreadDocument['transcript']>>({
      bytes: NUMBER,
      sha256: TEXT,
      events: NUMBER,
    }),
  ),
  continuation_of: optional(TEXT),
  continuation_thread_id: optional(TEXT),
  imported_from: optional(OBJECT),
  unsigned_run: optional(
    objectOf<UnsignedRun>({
      key_id: TEXT,
      public_key: TEXT,
      signed: optional(
        objectOf<NonNullable<UnsignedRun['signed']>>({
          key_id: TEXT,
          signed_at: TEXT,
          bytes: NUMBER,
        }),
      ),
    }),
  ),
  work_path: optional(TEXT),
  label: optional(TEXT),
  changes: optional(OBJECT),
  plan_sha256: optional(TEXT),
  capabilities_sha256: optional(TEXT),
});
