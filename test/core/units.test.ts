import { assert, double, integer, property } from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatSeconds, formatTokens, formatUsd } from '../../src/kernel/core/usage.ts';

const SECONDS = { ms: 0.001, s: 1, m: 60, h: 3600 };

/** Reads back `3m 05s`, `4.2s` or `850ms`. */
function secondsOf(text: string): number {
  const parts = [...text.matchAll(/([\d.]+)(ms|s|m|h)/g)];
  return parts.reduce(
    (sum, [, digits, unit]) => sum + Number(digits) * SECONDS[unit as keyof typeof SECONDS],
    0,
  );
}

describe('units', () => {
  it.each([
    [0, '0ms'],
    [0.9994, '999ms'],
    [0.9996, '1.0s'],
    [59.94, '59.9s'],
    [59.96, '1m 00s'],
    [3599.4, '59m 59s'],
    [3599.6, '1h 00m'],
    [90_061, '25h 01m'],
  ])('shows %d seconds as %s', (seconds, text) => expect(formatSeconds(seconds)).toBe(text));

  it.each([
    [999, '999'],
    [999_949, '999.9k'],
    [999_950, '1.0M'],
    [999_999_999, '1.0B'],
    [2_500_000_000_000, '2500.0B'],
  ])('shows %d tokens as %s', (tokens, text) => expect(formatTokens(tokens)).toBe(text));

  it.each([
    [0, '$0.00'],
    [0.000_000_4, '< $0.000001'],
    [0.000_099, '$0.000099'],
    [0.000_099_9, '$0.0001'],
    [0.999_94, '$0.9999'],
    [0.999_96, '$1.00'],
    [12.345, '$12.35'],
  ])('shows %d USD as %s', (usd, text) => {
    expect(formatUsd(usd)).toBe(text);
  });

  it('never shows more for less, nor as much of a unit as the next one is', () => {
    assert(
      property(
        double({ min: 0, max: 1e6, noNaN: true }),
        double({ min: 0, max: 10, noNaN: true }),
        (one, more) => {
          const [less, greater] = [formatSeconds(one), formatSeconds(one + more)];
          expect(secondsOf(less)).toBeLessThanOrEqual(secondsOf(greater));
          expect(less).not.toMatch(/^(?:\d{4,}ms|[6-9]\d\.\ds|\d{3,}\.\ds|[6-9]\dm |\d{3,}m )/);
        },
      ),
    );
    assert(
      property(integer({ min: 0, max: 1e12 }), (tokens) => {
        expect(formatTokens(tokens)).not.toMatch(/\d{4,}(?:\.\d)?[kM]|^\d{4,}$/);
      }),
    );
    assert(
      property(double({ min: 0, max: 10, noNaN: true }), (usd) => {
        expect(formatUsd(usd)).not.toMatch(/\$1\.0000|\$0\.0000{2}$/);
      }),
    );
  });
});
