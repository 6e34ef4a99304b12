/** Time as an argument. Adapters wrap the system clock; tests step one by hand. */
export interface Clock {
  /** Wall clock, milliseconds since the Unix epoch. For timestamps only: it may jump. */
  now(): number;
  /** Milliseconds from an arbitrary start that never go back. For durations and timeouts. */
  monotonic(): number;
  /** Resolves after `ms`, or at once when `signal` aborts. Never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** ISO 8601 UTC with milliseconds, the form of every timestamp in logs and documents. */
export function isoTime(epochMs: number): string {
  return new globalThis.Date(epochMs).toISOString();
}

/** ISO 8601 UTC without a fraction, the form inside signature lines. */
export function isoSeconds(epochMs: number): string {
  return `${isoTime(epochMs).slice(0, 19)}Z`;
}
