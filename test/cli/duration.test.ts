import { expect, it } from 'vitest';
import { durationMs } from '../../src/faces/cli/duration.ts';

it.each([
  ['250ms', 250],
  ['0s', 0],
  ['60s', 60_000],
  ['2m', 120_000],
  ['3h', 10_800_000],
  ['999999h', 999_999 * 3_600_000],
])('an option of %s is %i milliseconds', (value, ms) => {
  expect(durationMs('--timeout', value)).toBe(ms);
});

it.each(['', '5', 's', '1.5s', '-1s', '1 s', '1d', '1S', '1000000s', ' 1s', '1s '])(
  'an option of %j is refused by its name',
  (value) => {
    expect(() => durationMs('--older-than', value)).toThrow(
      expect.objectContaining({
        code: 'invalid_input',
        message: expect.stringContaining('--older-than'),
      }),
    );
  },
);
