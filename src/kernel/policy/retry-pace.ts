import { type Classification, retryDelayMs } from './error-class.ts';

/** Retries where more would cost money or keep another model waiting, unless `retry.max_retries` sets their number. */
const FEW_RETRIES = 3;
/** After a few retries no wait is shorter: a server that asks for no wait must not be called without a pause. */
const MIN_LATE_MS = 1000;
/** An attempt whose exponential delay is the longest one. */
const LAST_ATTEMPT = 64;

export interface PaceOptions {
  /** `retry.max_seconds`: after the first failure, another attempt may begin for so long. */
  readonly maxSeconds: number;
  /** `retry.max_retries`; absent: the time alone is bounded. */
  readonly maxRetries: number | undefined;
  /** Milliseconds that never go back. */
  readonly now: () => number;
  /** Uniform in [0, 1). */
  readonly random: () => number;
}

/** Facts of a failed attempt that decide about the next one. */
export interface FailedTry {
  readonly classification: Classification;
  /** The wait that the provider asks for. */
  readonly retryAfterMs?: number | undefined;
  /** Milliseconds until the provider's allowance is full again: a hint, not a demand. */
  readonly resetMs?: number | undefined;
  /** True if a hook demands a retry that the failure would not get by its class. */
  readonly isForced?: boolean;
  /** The delay that a hook sets. */
  readonly hookDelayMs?: number | undefined;
  /** True if another model takes over once there is no retry. */
  readonly hasFallback?: boolean;
}

/** `stop`: there is no retry. `askedMs` is set if the provider asks for a longer wait than there is time. */
export type NextTry =
  | { readonly kind: 'wait'; readonly attempt: number; readonly delayMs: number }
  | { readonly kind: 'stop'; readonly askedMs?: number };

/**
 * Paces the retries of one model call. Their time is bounded and not their number, because an overload lasts minutes;
 * waits only rise. Answers that broke off have cost money, so they are retried a few times only.
 */
export class RetryPace {
  readonly #options: PaceOptions;
  readonly #byRule = new Map<string, number>();
  #failures = 0;
  #broken = 0;
  #sinceMs = 0;
  #lastMs = 0;

  constructor(options: PaceOptions) {
    this.#options = options;
  }

  /** Number of failed attempts. */
  get failures(): number {
    return this.#failures;
  }

  /** Counts a failed attempt. `hasBegun`: a part of its answer had come. */
  note({ id }: Classification, hasBegun: boolean): void {
    // a provider that began to answer was reachable until then
    if (hasBegun || this.#failures === 0) this.#sinceMs = this.#options.now();
    this.#failures += 1;
    if (hasBegun) this.#broken += 1;
    this.#byRule.set(id, (this.#byRule.get(id) ?? 0) + 1);
  }

  /** Returns the wait before the attempt after the failures so far. */
  next(failed: FailedTry): NextTry {
    const attempt = this.#failures;
    if (this.#isUsedUp(failed)) return { kind: 'stop' };
    const { hookDelayMs, retryAfterMs, classification } = failed;
    const { now, maxSeconds } = this.#options;
    const leftMs = maxSeconds * 1000 - (now() - this.#sinceMs);
    if (hookDelayMs !== undefined) {
      if (failed.isForced !== true && leftMs <= 0) return { kind: 'stop' };
      return { kind: 'wait', attempt, delayMs: Math.max(this.#floorMs, hookDelayMs) };
    }
    const asked = classification.policy.kind === 'use_header' ? retryAfterMs : undefined;
    if (asked !== undefined && asked > leftMs) return { kind: 'stop', askedMs: asked };
    const { least, delayMs } = this.#delay(failed, asked);
    if (leftMs <= 0 || least > leftMs) return { kind: 'stop' };
    if (asked === undefined) this.#lastMs = delayMs;
    return { kind: 'wait', attempt, delayMs: Math.min(delayMs, leftMs) };
  }

  #isUsedUp({ classification: { id, maxRetries: ofRule }, isForced, hasFallback }: FailedTry) {
    const { maxRetries } = this.#options;
    const few = maxRetries ?? FEW_RETRIES;
    const most = isForced === true || hasFallback === true ? few : maxRetries;
    return (
      this.#failures > (most ?? Number.POSITIVE_INFINITY) ||
      this.#broken > few ||
      (this.#byRule.get(id) ?? 0) > (ofRule ?? Number.POSITIVE_INFINITY)
    );
  }

  get #floorMs(): number {
    return this.#failures > FEW_RETRIES ? MIN_LATE_MS : 0;
  }

  /** Returns the wait, and the shortest one that makes sense when time runs out. */
  #delay(
    { classification: { policy }, resetMs = 0 }: FailedTry,
    asked: number | undefined,
  ): { readonly least: number; readonly delayMs: number } {
    const attempt = this.#failures;
    const late = attempt - FEW_RETRIES;
    const delay = (at: number, random: () => number): number =>
      Math.max(this.#floorMs, retryDelayMs({ policy, attempt: at, random }));
    const { random } = this.#options;
    if (asked !== undefined) {
      // a provider that keeps asking for short waits is called less and less often
      return { least: asked, delayMs: late > 0 ? Math.max(asked, delay(late, random)) : asked };
    }
    const reset = Math.min(
      resetMs,
      delay(LAST_ATTEMPT, () => 1),
    );
    const least = Math.max(
      this.#lastMs,
      reset,
      delay(attempt, () => 0),
    );
    return { least, delayMs: Math.max(least, delay(attempt, random)) };
  }
}
