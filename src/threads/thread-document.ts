import { createHash } from 'node:crypto';
import type { ErrorInfo } from '../core/errors.ts';
import type { LogHeader } from '../core/events.ts';
import { compact, isRecord, type JsonObject } from '../core/json.ts';
import type { Limits } from '../core/limits.ts';
import type { ThreadPlan } from '../core/plan.ts';
import { type Integrity, THREAD_STATUSES, type ThreadStatus } from '../core/thread.ts';
import type { Cost } from '../core/usage.ts';

/**
 * The content of `thread.json` without its `_signature`: who may do what, decided at the start, and how it ended.
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
  readonly capabilities: readonly string[];
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
  readonly cost?: Cost;
  readonly result?: string;
  readonly outputs?: JsonObject;
  readonly error?: ErrorInfo;
  /** Final state of the log; absent while the thread runs. */
  readonly transcript?: {
    readonly bytes: number;
    readonly sha256: string;
    readonly events: number;
  };
  readonly continuation_of?: string;
  readonly continuation_thread_id?: string;
  /** Present where another program ran the conversation: what it was copied from. */
  readonly imported_from?: {
    readonly format: 'pi';
    readonly version: number;
    readonly session_id: string;
    /** Name of the file, without its folder. */
    readonly file: string;
    readonly bytes: number;
    readonly sha256: string;
  };
  /** SHA-256 hex of the plan, which is stored beside this file and may be handed over to another process. */
  readonly plan_sha256?: string;
  /** SHA-256 hex of the capability snapshot without its signature, once the thread has ended. */
  readonly capabilities_sha256?: string;
}

/** thread.json as it is written before the loop starts. */
export function startDocument(
  plan: ThreadPlan,
  facts: { readonly threadId: string; readonly now: string; readonly continuationOf?: string },
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
    capabilities: plan.capabilities,
    integrity: plan.integrity,
    inputs: plan.inputs,
    sources: [...plan.chain, ...plan.context_sources].map(({ type, id, space, sha256 }) => ({
      type,
      id,
      space,
      sha256,
    })),
    plan_sha256: planHash(planText(plan)),
    continuation_of: facts.continuationOf,
  });
}

/** Returns thread.json of a thread that runs again, without its earlier end. */
export function openDocument(document: ThreadDocument): ThreadDocument {
  const open = Object.entries(document).filter(([member]) => !ENDING.has(member));
  return { ...(Object.fromEntries(open) as unknown as ThreadDocument), status: 'running' };
}

const ENDING: ReadonlySet<string> = new Set<keyof ThreadDocument>([
  'cost',
  'result',
  'outputs',
  'error',
  'transcript',
  'capabilities_sha256',
]);

/** Line 1 of the thread's log. */
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

/** A thread document as the JSON value that is signed and written. */
export function asJson(document: ThreadDocument): JsonObject {
  return JSON.parse(JSON.stringify(document)) as JsonObject;
}

/** The text of a plan as it is stored and handed over; members keep their order through a JSON round trip. */
export function planText(plan: ThreadPlan): string {
  return JSON.stringify(plan);
}

/** Returns the SHA-256 hex of a plan's text. thread.json names it, so that no other plan is run or resumed. */
export function planHash(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/**
 * True if a signed JSON value has the members that every thread document has. A valid signature doesn't prove the shape:
 * a newer rye may have signed another one.
 */
export function isThreadDocument(value: unknown): value is ThreadDocument {
  return (
    isRecord(value) &&
    TEXT_MEMBERS.every((name) => typeof value[name] === 'string') &&
    isStatus(value['status']) &&
    (value['parent_thread_id'] === null || typeof value['parent_thread_id'] === 'string') &&
    isRecord(value['limits']) &&
    Object.values(value['limits']).every((limit) => limit === null || typeof limit === 'number') &&
    isTextList(value['capabilities']) &&
    isRecord(value['inputs']) &&
    Array.isArray(value['sources']) &&
    value['sources'].every(isRecord) &&
    (value['cost'] === undefined || isRecord(value['cost'])) &&
    (value['transcript'] === undefined || isExtent(value['transcript']))
  );
}

const TEXT_MEMBERS = [
  'thread_id',
  'directive',
  'created_at',
  'updated_at',
  'model',
  'provider',
  'integrity',
];

function isStatus(value: unknown): boolean {
  return THREAD_STATUSES.some((known) => known === value);
}

function isTextList(value: unknown): boolean {
  return Array.isArray(value) && value.every((one) => typeof one === 'string');
}

function isExtent(value: unknown): boolean {
  return (
    isRecord(value) &&
    typeof value['bytes'] === 'number' &&
    typeof value['events'] === 'number' &&
    typeof value['sha256'] === 'string'
  );
}
