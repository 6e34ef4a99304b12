import { Cron } from 'croner';
import { messageOf, RyeError } from '../core/errors.ts';

const DAY_MS = 86_400_000;

/** A time zone: how its clocks relate to UTC. A wall time is the reading of its clocks, counted as if it were UTC. */
interface Zone {
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
function openZone(name: string): Zone {
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

/** The times of a cron expression in a time zone. */
export interface Times {
  readonly cron: string;
  readonly zone: Zone;
  /** Returns the first time after an instant; undefined if there is none. Both in milliseconds since the epoch. */
  next(after: number): number | undefined;
}

/** A part of a field: a value, a range or all, with a step; names of months and days have three letters. */
const PART = /^(?:\*|(?:\d+|[A-Z]{3})(?:-(?:\d+|[A-Z]{3}))?)(?:\/\d+)?$/i;
/** Fields of the hour that name all hours. */
const EVERY_HOUR = /^(?:\*|\*\/1|0-23)$/;

/**
 * Reads a cron expression of five fields, or six with seconds before them.
 *
 * The expression names times on the clocks of the zone. One that does not exist on a day is due at the next existing
 * instant, and one that exists twice is due once. An expression with every hour names no time of the day: it follows the
 * hours as they pass, so that `*\/5 * * * *` has no pause when clocks are set back.
 *
 * Throws `invalid_input` for an invalid expression, one that is never due, and an unknown time zone.
 */
export function parseCron(expression: string, timezone: string): Times {
  const zone = openZone(timezone);
  const fields = expression.trim().split(/\s+/);
  if (fields.length !== 5 && fields.length !== 6)
    throw refused(
      expression,
      `it has ${fields.length === 1 ? '1 field' : `${fields.length} fields`}, not 5 or 6`,
    );
  const odd = fields.flatMap((field) => field.split(',')).find((part) => !PART.test(part));
  if (odd !== undefined) throw refused(expression, `unknown form ${JSON.stringify(odd)}`);
  const cron = fields.join(' ');
  const nextWall = wallTimes(cron, expression);
  const next = EVERY_HOUR.test(fields.at(-4) ?? '')
    ? (after: number) => nextPassing(zone, nextWall, after)
    : (after: number) => nextNamed(zone, nextWall, after);
  if (next(0) === undefined) throw refused(expression, 'it is never due');
  return { cron, zone, next };
}

/** Returns the function that finds the next wall time. The library sees wall times as UTC, where no clock changes. */
function wallTimes(cron: string, expression: string): (wall: number) => number | undefined {
  const [day = '', , weekday = ''] = cron.split(' ').slice(-3);
  // as in crontab(5): two restricted fields of days mean either, and a field with an asterisk restricts no other
  const domAndDow = day.includes('*') || weekday.includes('*');
  let job: Cron;
  try {
    job = new Cron(cron, { paused: true, utcOffset: 0, domAndDow });
  } catch (error) {
    throw refused(expression, messageOf(error).replace(/^CronPattern: /, ''));
  }
  return (wall) => job.nextRun(new Date(wall))?.getTime();
}

/** Returns the next instant of a schedule that names times of the day. */
function nextNamed(
  zone: Zone,
  nextWall: (wall: number) => number | undefined,
  after: number,
): number | undefined {
  for (let wall = nextWall(zone.wallAt(after)); wall !== undefined; wall = nextWall(wall)) {
    const instant = zone.instantOf(wall);
    // in a repeated hour, wall times after now had their turn in the first one
    if (instant > after) return instant;
  }
  return undefined;
}

/** Returns the next instant of a schedule that follows the hours as they pass. */
function nextPassing(
  zone: Zone,
  nextWall: (wall: number) => number | undefined,
  after: number,
): number | undefined {
  for (let from = after; ; ) {
    const wall = zone.wallAt(from);
    const due = nextWall(wall);
    if (due === undefined) return undefined;
    const instant = from + (due - wall);
    const change = zone.changeIn(from, instant);
    if (change === undefined) return instant;
    // the clocks change before: look again from the last moment on, as the new clocks count it
    if (matches(nextWall, zone.wallAt(change))) return change;
    from = change;
  }
}

function matches(nextWall: (wall: number) => number | undefined, wall: number): boolean {
  return nextWall(wall - 1) === wall;
}

function refused(expression: string, problem: string): RyeError {
  return new RyeError('invalid_input', `invalid cron ${JSON.stringify(expression)}: ${problem}`, {
    hint: "Use minute, hour, day, month and weekday, such as '0 3 * * *'; six fields begin with seconds.",
  });
}
