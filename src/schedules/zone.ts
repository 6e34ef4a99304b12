import { RyeError } from '../core/errors.ts';

const DAY_MS = 86_400_000;

/** A time zone: how its clocks relate to UTC. A wall time is the reading of its clocks, counted as if it were UTC. */
export interface Zone {
  readonly name: string;
  /** Returns the wall time at an instant. Both in milliseconds since the epoch. */
  wallAt(instant: number): number;
  /**
   * Returns the instant of a wall time: of one that exists twice the first, of one that does not exist the first instant
   * after the gap.
   */
  instantOf(wall: number): number;
  /** Returns the first instant in (from, to] with another offset than `from`; undefined if there is none. */
  changeIn(from: number, to: number): number | undefined;
}

/** Opens a time zone of the IANA database. Throws `invalid_input` for an unknown name. */
export function openZone(name: string): Zone {
  const format = formatOf(name);
  const wallAt = (instant: number): number => {
    const second = Math.floor(instant / 1000) * 1000;
    const parts: Record<string, number> = {};
    for (const { type, value } of format.formatToParts(second)) parts[type] = Number(value);
    const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second: s = 0 } = parts;
    return Date.UTC(year, month - 1, day, hour, minute, s) + (instant - second);
  };
  const offsetAt = (instant: number): number => wallAt(instant) - instant;
  const changeIn = (from: number, to: number): number | undefined => {
    const before = offsetAt(from);
    let low = from;
    // clocks change at most once in a few days, so steps of a day miss no change
    while (low < to) {
      let high = Math.min(low + DAY_MS, to);
      if (offsetAt(high) === before) {
        low = high;
        continue;
      }
      while (high - low > 1) {
        const middle = Math.floor((low + high) / 2);
        if (offsetAt(middle) === before) low = middle;
        else high = middle;
      }
      return high;
    }
    return undefined;
  };
  return {
    name,
    wallAt,
    changeIn,
    instantOf: (wall) => {
      const before = offsetAt(wall - DAY_MS);
      const after = offsetAt(wall + DAY_MS);
      const first = wall - Math.max(before, after);
      const last = wall - Math.min(before, after);
      const found = [first, last].find((instant) => wallAt(instant) === wall);
      return found ?? changeIn(first, last) ?? last;
    },
  };
}

function formatOf(name: string): Intl.DateTimeFormat {
  try {
    return new Intl.DateTimeFormat('en-US', {
      timeZone: name,
      hourCycle: 'h23',
      calendar: 'gregory',
      numberingSystem: 'latn',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    });
  } catch (error) {
    throw new RyeError('invalid_input', `unknown time zone ${JSON.stringify(name)}`, {
      hint: 'Use a name of the IANA database, such as Europe/Berlin or UTC.',
      cause: error,
    });
  }
}
