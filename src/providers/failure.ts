import { messageOf, systemCodeOf } from '../core/errors.ts';
import { isRecord } from '../core/json.ts';
import { headBytes } from '../core/text.ts';
import type { ProviderFailure } from './provider.ts';

const MAX_MESSAGE_BYTES = 2000;

/** The state of a call when it failed. */
export interface FailureContext {
  /** The phase that the call had reached. */
  readonly phase: 'connect' | 'stream';
  readonly stalled: boolean;
  readonly aborted: boolean;
  readonly stallSeconds: number;
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
    return {
      phase: 'stalled',
      message: `${context.host} sent no byte for ${context.stallSeconds} s`,
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
  const retryAfterMs = headers instanceof Headers ? retryAfter(headers, context.nowMs) : undefined;
  const reported = firstText(apiMessage, isRecord(body) ? body['message'] : undefined);
  // a code such as context_length_exceeded is more specific than its type
  const kind = firstText(code, type);
  return {
    phase: 'response',
    status,
    message: reported ?? `${context.host} answered ${status}: ${bodyText(error, status)}`,
    ...(kind === undefined ? {} : { type: kind }),
    ...(retryAfterMs === undefined ? {} : { retry_after_ms: retryAfterMs }),
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
        ? `cannot reach ${host}: ${code ?? reason}`
        : `the connection to ${host} broke in the middle of the answer: ${code ?? reason}`,
    ...(type === undefined ? {} : { type }),
  };
}

/** Finds the innermost cause with a code: `fetch failed` and `terminated` alone explain nothing. */
function rootCause(error: unknown): { code: string | undefined; reason: string } {
  let code: string | undefined;
  let reason = messageOf(error);
  let at: unknown = error;
  for (let depth = 0; depth < 8 && isRecord(at); depth += 1) {
    code = systemCodeOf(at) ?? code;
    reason = messageOf(at);
    // a connection that tried several addresses fails with one error for each
    const first: unknown = Array.isArray(at['errors']) ? at['errors'][0] : undefined;
    at = at['cause'] ?? first;
  }
  return { code, reason };
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

/**
 * Milliseconds that a response asks to wait: `retry-after-ms`, else `Retry-After` in seconds or as an HTTP date
 * (RFC 9110, 10.2.3). Undefined where there is none or it makes no sense.
 */
export function retryAfter(headers: Headers, nowMs: number): number | undefined {
  const ms = numeric(headers.get('retry-after-ms'));
  if (ms !== undefined) return Math.round(ms);
  const value = headers.get('retry-after');
  const seconds = numeric(value);
  if (seconds !== undefined) return Math.round(seconds * 1000);
  // Date.parse alone would take -3 for a year
  const date = value !== null && /\d{2}:\d{2}:\d{2}/.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(date) ? undefined : Math.max(0, date - nowMs);
}

function numeric(value: string | null): number | undefined {
  return value !== null && /^\d+(\.\d+)?$/.test(value.trim()) ? Number(value) : undefined;
}

function clean(message: string, secrets: readonly string[]): string {
  let text = message;
  for (const secret of secrets) if (secret !== '') text = text.replaceAll(secret, '***');
  return headBytes(text, MAX_MESSAGE_BYTES);
}
