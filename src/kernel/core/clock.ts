/** Time as an argument. Adapters wrap the system clock; tests step one by hand. */
export interface Clock {
  /** Wall clock, milliseconds since the Unix epoch. For timestamps only: it may jump. */
  now(): number;
  /** Milliseconds from an arbitrary start that never go back. For durations and timeouts. */
  monotonic(): number;
  /** Resolves after `ms`, or at once when `signal` aborts. Never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

let lastTime = { epochMs: 0, text: '1970-01-01T00:00:00.000Z' };

/** ISO 8601 UTC with milliseconds, the form of every timestamp in logs and documents. The events of a turn share a few. */
export function isoTime(epochMs: number): string {
  if (lastTime.epochMs !== epochMs) {
    lastTime = { epochMs, text: new globalThis.Date(epochMs).toISOString() };
  }
  return lastTime.text;
}

/** ISO 8601 UTC without a fraction, the form inside signature lines. */
export function isoSeconds(epochMs: number): string {
  return `${isoTime(epochMs).slice(0, 19)}Z`;
}

/** Returns a duration before now as `just now`, `5 min ago`, `3 h ago` or `2 days ago`. */
export function formatAge(ms: number): string {
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 1) return 'just now';
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ago` : `${Math.floor(hours / 24)} days ago`;
}

let over: DOMException | undefined;

/**
 * Returns the reason of an abort that marks a normal end. It reads like the default one, and is made once: each
 * default reason records a stack, which costs more than the abort, and a turn ends half a dozen timers.
 */
export function overReason(): DOMException {
  over ??= new DOMException('This operation was aborted', 'AbortError');
  return over;
}

/**
 * Returns the text of a caller's reason of an abort: a text, or the message of an error such as that of
 * `AbortSignal.timeout()`. Undefined for the default reason of an abort that was given none.
 */
export function abortText(reason: unknown): string | undefined {
  if (typeof reason === 'string') return reason;
  if (!(reason instanceof Error) || reason.message === '') return undefined;
  return reason.name === 'AbortError' ? undefined : reason.message;
}
