import { assert, double, infiniteStream, integer, property } from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Classification, RetryPolicy } from '../../src/kernel/policy/error-class.ts';
import { type FailedTry, type PaceOptions, RetryPace } from '../../src/kernel/policy/retry-pace.ts';

const EXPONENTIAL: RetryPolicy = { kind: 'exponential', baseMs: 2000, maxMs: 60_000 };
const OVERLOADED: Classification = {
  id: 'overloaded',
  category: 'transient',
  retryable: true,
  policy: { kind: 'use_header', fallback: EXPONENTIAL },
};

interface Failing extends Partial<FailedTry> {
  readonly hasBegun?: boolean;
}

/** Fails again and again, each attempt after `attemptMs`, until there is no retry. Returns the waits. */
function waitsOf(
  failing: Failing | ((attempt: number) => Failing),
  options: Partial<PaceOptions> = {},
  attemptMs = 100,
): { readonly waits: readonly number[]; readonly seconds: number; readonly askedMs?: number } {
  let time = 5_000_000;
  const pace = new RetryPace({
    maxSeconds: 300,
    maxRetries: undefined,
    now: () => time,
    random: () => 0.5,
    ...options,
  });
  const start = time;
  const waits: number[] = [];
  for (let attempt = 1; attempt < 1000; attempt += 1) {
    const { hasBegun = false, ...failed } =
      typeof failing === 'function' ? failing(attempt) : failing;
    const classification = failed.classification ?? OVERLOADED;
    pace.note(classification, hasBegun);
    const next = pace.next({ ...failed, classification });
    if (next.kind === 'stop') {
      return {
        waits,
        seconds: (time - start) / 1000,
        ...(next.askedMs === undefined ? {} : { askedMs: next.askedMs }),
      };
    }
    expect(next.attempt).toBe(attempt);
    waits.push(next.delayMs);
    time += next.delayMs + attemptMs;
  }
  throw new Error('it never gives up');
}

describe('a retry pace', () => {
  // Requirement: retries-never-made
  it('retries an overload about ten times within five minutes', () => {
    const { waits, seconds } = waitsOf({});
    expect(waits.slice(0, 6)).toEqual([1500, 3000, 6000, 12_000, 24_000, 45_000]);
    expect(waits.length).toBeGreaterThanOrEqual(9);
    expect(seconds).toBeGreaterThan(240);
    expect(seconds).toBeLessThanOrEqual(301);
  });

  it('never waits less than before, less than half of the delay, or beyond its time', () => {
    const random = infiniteStream(double({ min: 0, max: 0.999, noNaN: true }));
    assert(
      property(random, integer({ min: 0, max: 900 }), (stream, maxSeconds) => {
        const options = { maxSeconds, random: () => stream.next().value as number };
        const { waits, seconds } = waitsOf({}, options, 0);
        expect(seconds).toBeLessThanOrEqual(maxSeconds);
        waits.forEach((wait, index) => {
          expect(wait).toBeGreaterThanOrEqual(Math.min(60_000, 2000 * 2 ** index) / 2);
          expect(wait).toBeGreaterThanOrEqual(waits[index - 1] ?? 0);
        });
      }),
      { numRuns: 100, seed: 3 },
    );
  });

  it('counts the time that attempts take', () => {
    expect(waitsOf({}, {}, 70_000).waits).toHaveLength(4);
  });

  it('uses a short time to its end', () => {
    expect(waitsOf({}, { maxSeconds: 1.2 }).waits).toEqual([1200]);
    expect(waitsOf({}, { maxSeconds: 0.9 }).waits).toEqual([]);
    expect(waitsOf({}, { maxSeconds: 0 }).waits).toEqual([]);
  });

  it.each([0, 1, 5])('keeps to max_retries %i', (maxRetries) => {
    expect(waitsOf({}, { maxRetries }).waits).toHaveLength(maxRetries);
  });

  it('obeys the wait that a provider asks for, exactly', () => {
    expect(waitsOf(() => ({ retryAfterMs: 70_000 })).waits.slice(0, 3)).toEqual([
      70_000, 70_000, 70_000,
    ]);
  });

  it('stops at once when a provider asks for more than the time that is left', () => {
    const tenDays = 864_000_000;
    expect(waitsOf({ retryAfterMs: tenDays })).toEqual({
      waits: [],
      seconds: 0,
      askedMs: tenDays,
    });
    const later = waitsOf((attempt) => (attempt === 3 ? { retryAfterMs: 299_000 } : {}));
    expect(later).toMatchObject({ askedMs: 299_000, waits: [1500, 3000] });
  });

  it('calls a provider that keeps asking for no wait less and less often', () => {
    const { waits } = waitsOf({ retryAfterMs: 0 });
    expect(waits.slice(0, 7)).toEqual([0, 0, 0, 1500, 3000, 6000, 12_000]);
    expect(waits.length).toBeLessThan(15);
  });

  it.each([
    ['a delay of 0', { kind: 'fixed', delayMs: 0 }],
    ['no policy', { kind: 'none' }],
    ['full jitter', { ...EXPONENTIAL, jitter: 'full' }],
  ] as const)('never calls without a pause for long with %s', (_name, policy) => {
    const classification = { ...OVERLOADED, policy };
    const { waits } = waitsOf({ classification }, { random: () => 0 }, 0);
    expect(Math.min(...waits.slice(3))).toBeGreaterThanOrEqual(1000);
  });

  it('waits for an allowance that is used up, but no longer than its longest delay', () => {
    expect(waitsOf({ resetMs: 20_000 }).waits[0]).toBe(20_000);
    expect(waitsOf({ resetMs: 3_600_000 }).waits[0]).toBe(60_000);
  });

  it('retries a few times only while another model can take over, or when a hook demands it', () => {
    expect(waitsOf({ hasFallback: true }).waits).toHaveLength(3);
    expect(waitsOf({ isForced: true, hookDelayMs: 0 }).waits).toEqual([0, 0, 0]);
    expect(waitsOf({ hasFallback: true }, { maxRetries: 5 }).waits).toHaveLength(5);
  });

  it('keeps the delay of a hook within the time of an overload', () => {
    expect(waitsOf({ hookDelayMs: 30_000 }).waits).toHaveLength(10);
  });

  it('retries a failure as often as its rule allows, beside other failures', () => {
    const bounded = { ...OVERLOADED, id: 'stubborn', maxRetries: 2 };
    expect(waitsOf({ classification: bounded }).waits).toHaveLength(2);
    const mixed = waitsOf((attempt) => (attempt % 2 === 0 ? { classification: bounded } : {}));
    expect(mixed.waits).toHaveLength(5);
  });

  it('retries an answer that broke off three times, each within a new time', () => {
    expect(waitsOf({ hasBegun: true }, {}, 400_000).waits).toHaveLength(3);
  });
});
