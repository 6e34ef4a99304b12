import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';
import { isRecord } from '../core/json.ts';
import { headBytes } from '../core/text.ts';
import type { ProviderFailure } from './provider.ts';
import type { Stall } from './stream-guards.ts';

const MAX_MESSAGE_BYTES = 2000;

/** The state of a call when it failed. */
export interface FailureContext {
  /** The phase that the call had reached. */
  readonly phase: 'connect' | 'stream';
  readonly stalled: Stall | undefined;
  readonly aborted: boolean;
  /** Host that was called, without path and credentials. */
  readonly host: string;
  /** Wall clock, for dates in headers. */
  readonly nowMs: number;
  /** Texts that must not appear in the failure. */
  readonly secrets: readonly string[];
}

/** An error that the stream itself reported or was, with its type. */
export interface StreamFault {
  readonly type: string;
  readonly message: string;
  /** The status that the answer would have had, if the stream named it. */
  readonly status?: number;
}

/** Thrown for an answer that takes more bytes than its `max_tokens` can need. */
export class AnswerTooLarge extends Error {
  override readonly name = 'AnswerTooLarge';
}

/** Converts any error thrown by the SDK or the connection to a failure without secrets. */
export function failureOf(error: unknown, context: FailureContext): ProviderFailure {
  if (context.aborted) return { phase: 'aborted', message: 'the model call was cancelled' };
  if (context.stalled) {
    const { seconds, setting } = context.stalled;
    return {
      phase: 'stalled',
      message: `${context.host} sent no byte for ${seconds} s (${setting})`,
    };
  }
  if (error instanceof AnswerTooLarge) {
    return streamFailure({ type: 'answer_too_large', message: error.message }, context);
  }
  const status = statusOf(error);
  const failure =
    status === undefined
      ? connectionFailure(error, context)
      : responseFailure(error, status, context);
  return { ...failure, message: clean(failure.message, context.secrets) };
}

/** Converts a fault inside a stream that had begun. */
export function streamFailure(fault: StreamFault, context: FailureContext): ProviderFailure {
  const { type, message, status } = fault;
  return {
    phase: 'stream',
    type,
    message: clean(message, context.secrets),
    ...(status === undefined ? {} : { status }),
  };
}

/** Reads what the SDKs of the adapters put on an error for an HTTP status; both come from one generator. */
function responseFailure(error: unknown, status: number, context: FailureContext): ProviderFailure {
  const { type, code, apiMessage, requestID, headers, error: body } = isRecord(error) ? error : {};
  const reported = firstText(apiMessage, isRecord(body) ? body['message'] : undefined);
  // a code such as context_length_exceeded is more specific than its type
  const kind = firstText(code, type);
  const message = reported ?? `${context.host} answered ${status}: ${bodyText(error, status)}`;
  return {
    phase: 'response',
    status,
    message,
    ...(kind === undefined ? {} : { type: kind }),
    ...retryFacts({ status, headers, message }, context.nowMs),
    ...(typeof requestID === 'string' ? { request_id: requestID } : {}),
  };
}

function firstText(...values: readonly unknown[]): string | undefined {
  return values.find((value): value is string => typeof value === 'string' && value !== '');
}

function connectionFailure(error: unknown, { phase, host }: FailureContext): ProviderFailure {
  const { code, reason } = rootCause(error);
  const type = code ?? (phase === 'stream' ? 'stream_broken' : undefined);
  return {
    phase,
    message:
      phase === 'connect'
        ? `cannot reach ${host}: ${reason}`
        : `the connection to ${host} broke in the middle of the answer: ${reason}`,
    ...(type === undefined ? {} : { type }),
  };
}

/** Finds the innermost cause with a code: `fetch failed` and `terminated` alone explain nothing. */
function rootCause(error: unknown): { code: string | undefined; reason: string } {
  let code: string | undefined;
  let reason = messageOf(error);
  let at: unknown = error;
  for (let depth = 0; depth < 8 && isRecord(at); depth += 1) {
    // rye's own, of a proxy or a certificate, explains itself
    if (at instanceof RyeError) return { code: at.code, reason: at.message };
    code = systemCodeOf(at) ?? code;
    reason = messageOf(at);
    // a connection that tried several addresses fails with one error for each
    const first: unknown = Array.isArray(at['errors']) ? at['errors'][0] : undefined;
    at = at['cause'] ?? first;
  }
  return { code, reason: code ?? reason };
}

function statusOf(error: unknown): number | undefined {
  const status = isRecord(error) ? error['status'] : undefined;
  return typeof status === 'number' ? status : undefined;
}

/** The start of a body that was not the API's own JSON, in one line. */
function bodyText(error: unknown, status: number): string {
  const text = messageOf(error)
    .replace(new RegExp(`^${status} `), '')
    .replaceAll(/\s+/g, ' ');
  return headBytes(text, 200);
}

/** A longer wait is as good as none: dates stay valid. */
const MAX_WAIT_MS = 10 * 366 * 86_400_000;
const TOO_MANY_REQUESTS = 429;

/** Reads everything that a refused call tells about its next attempt. */
function retryFacts(
  { status, headers, message }: { status: number; headers: unknown; message: string },
  nowMs: number,
): Pick<ProviderFailure, 'retry_after_ms' | 'reset_ms' | 'should_retry'> {
  const found = headers instanceof Headers ? headers : new Headers();
  const isLimited = status === TOO_MANY_REQUESTS;
  const { pointMs, durationMs } = isLimited ? usedUp(found, nowMs) : {};
  const asked =
    retryAfter(found, nowMs) ?? (isLimited ? (inMessage(message) ?? pointMs) : undefined);
  const should = found.get('x-should-retry');
  return {
    ...(asked === undefined ? {} : { retry_after_ms: asked }),
    ...(durationMs === undefined || asked !== undefined ? {} : { reset_ms: durationMs }),
    ...(should === 'true' || should === 'false' ? { should_retry: should === 'true' } : {}),
  };
}

/**
 * Milliseconds that a response asks to wait: `retry-after-ms`, else `Retry-After` in seconds or as an HTTP date
 * (RFC 9110, 10.2.3). Undefined where there is none or it makes no sense.
 */
export function retryAfter(headers: Headers, nowMs: number): number | undefined {
  const ms = numeric(headers.get('retry-after-ms'));
  if (ms !== undefined) return waitOf(ms);
  const value = headers.get('retry-after');
  const seconds = numeric(value);
  if (seconds !== undefined) return waitOf(seconds * 1000);
  // Date.parse alone would take -3 for a year
  const date = value !== null && /\d{2}:\d{2}:\d{2}/.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(date) ? undefined : waitOf(date - nowMs);
}

function waitOf(ms: number): number {
  return Math.round(Math.min(MAX_WAIT_MS, Math.max(0, ms)));
}

function numeric(value: string | null): number | undefined {
  return value !== null && /^\d+(\.\d+)?$/.test(value.trim()) ? Number(value) : undefined;
}

/**
 * Reads when a used-up allowance is full again, from headers such as `x-ratelimit-reset-tokens: 6m0s`. A
 * bucket has room for a request long before that; a window that ends at a point in time has none until then.
 */
function usedUp(
  headers: Headers,
  nowMs: number,
): { readonly pointMs?: number; readonly durationMs?: number } {
  const points: number[] = [];
  const durations: number[] = [];
  for (const [name, value] of headers) {
    if (!/^(?:x|anthropic)-ratelimit-(?:.+-)?reset/.test(name)) continue;
    if (numeric(headers.get(name.replace('reset', 'remaining'))) !== 0) continue;
    const number = numeric(value);
    const point =
      number === undefined ? Date.parse(value) : number >= 1e12 ? number : number * 1000;
    const duration = number === undefined ? durationOf(value) : number * 1000;
    if (duration !== undefined && duration < EPOCH_MS) durations.push(waitOf(duration));
    else if (!Number.isNaN(point)) points.push(waitOf(point - nowMs));
  }
  return {
    ...(points.length === 0 ? {} : { pointMs: Math.max(...points) }),
    ...(durations.length === 0 ? {} : { durationMs: Math.max(...durations) }),
  };
}

/** Numbers from here on are times since 1970, not durations. */
const EPOCH_MS = 1e12;

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};
const DURATION = String.raw`(?:\d+(?:\.\d+)?(?:ms|[smhd]))+`;
const WHOLE = new RegExp(`^${DURATION}$`);
const IN_MESSAGE = new RegExp(String.raw`\b(?:try again|retry) in (${DURATION})(?![a-z])`, 'i');

/** Reads `6m0s`, `1.5s` or `120ms`. */
function durationOf(text: string): number | undefined {
  if (!WHOLE.test(text)) return undefined;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|[smhd])/g)];
  return parts.reduce((sum, [, amount, unit = '']) => sum + Number(amount) * (UNITS[unit] ?? 0), 0);
}

/** Reads the wait that OpenAI and others put into the message alone: `Please try again in 7m12s.` */
function inMessage(message: string): number | undefined {
  const duration = durationOf(IN_MESSAGE.exec(message)?.[1]?.toLowerCase() ?? '');
  return duration === undefined ? undefined : waitOf(duration);
}

/** True if Google's details of an error name a quota per day, which no short wait refills: `retryDelay` is wrong then. */
export function isDailyQuota(details: unknown): boolean {
  return (
    Array.isArray(details) &&
    details
      .filter(isRecord)
      .some(({ violations }) => /PerDay/.test(JSON.stringify(violations ?? null)))
  );
}

/** Removes secrets, and what vendors repeat of a refused key, such as `sk-ab***wxyz`. */
function clean(message: string, secrets: readonly string[]): string {
  let text = message;
  for (const secret of secrets) {
    if (secret === '') continue;
    text = text.replaceAll(secret, '***').replaceAll(MASKED, (word) => {
      const [head = '', tail = ''] = word.split(/[*•…]+|\.{3,}/);
      const isOfKey =
        (head.length > 1 && secret.startsWith(head)) || (tail.length > 1 && secret.endsWith(tail));
      return isOfKey ? '***' : word;
    });
  }
  return headBytes(text, MAX_MESSAGE_BYTES);
}

/** A word whose middle is hidden. */
const MASKED = /[\w-]*(?:[*•…]+|\.{3,})[\w-]*/g;
