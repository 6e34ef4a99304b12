import { RyeError } from '../../kernel/core/errors.ts';

const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** Reads the value of an option such as `60s` in milliseconds. Throws `invalid_input` with the option. */
export function durationMs(option: string, value: string): number {
  const [, digits, unit = ''] = /^(\d{1,6})(ms|s|m|h)$/.exec(value) ?? [];
  const factor = UNITS_MS[unit];
  if (digits !== undefined && factor !== undefined) return Number(digits) * factor;
  throw new RyeError('invalid_input', `${option}: invalid duration ${JSON.stringify(value)}`, {
    hint: 'Use a whole number and ms, s, m or h, such as 60s.',
  });
}
