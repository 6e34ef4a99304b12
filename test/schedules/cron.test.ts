import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decideDue, dueTimes, MOST_MADE_UP } from '../../src/features/schedules/due.ts';
import { parseCron } from '../../src/kernel/schedules/cron.ts';
import { runs } from '../helpers/runs.ts';

const MINUTE = 60_000;

/** The next `count` times after an instant, in UTC without seconds. */
function nextTimes(cron: string, zone: string, after: string, count: number): readonly string[] {
  const times = parseCron(cron, zone);
  const found: string[] = [];
  let time: number | undefined = Date.parse(after);
  while (found.length < count) {
    time = times.next(time);
    if (time === undefined) break;
    found.push(new Date(time).toISOString().replace(/:00\.000Z$/, ''));
  }
  return found;
}

describe('the days on which clocks change', () => {
  it.each([
    // 02:00 to 03:00 does not exist
    ['Europe/Berlin', '30 2 * * *', '2026-03-28T22:00Z', ['2026-03-29T01:00', '2026-03-30T00:30']],
    [
      'Europe/Berlin',
      '0,30 2 * * *',
      '2026-03-28T22:00Z',
      ['2026-03-29T01:00', '2026-03-30T00:00'],
    ],
    [
      'Europe/Berlin',
      '30 2,3 * * *',
      '2026-03-28T22:00Z',
      ['2026-03-29T01:00', '2026-03-29T01:30'],
    ],
    [
      'America/New_York',
      '30 2 * * *',
      '2026-03-07T12:00Z',
      ['2026-03-08T07:00', '2026-03-09T06:30'],
    ],
    // 02:00 to 03:00 exists twice, and 01:00 to 02:00 in New York
    ['Europe/Berlin', '30 2 * * *', '2026-10-24T22:00Z', ['2026-10-25T00:30', '2026-10-26T01:30']],
    [
      'Europe/Berlin',
      '*/30 2,3 * * *',
      '2026-10-24T22:00Z',
      ['2026-10-25T00:00', '2026-10-25T00:30', '2026-10-25T02:00', '2026-10-25T02:30'],
    ],
    ['Europe/Berlin', '30 2 * * *', '2026-10-25T00:45Z', ['2026-10-26T01:30']],
    [
      'America/New_York',
      '30 1 * * *',
      '2026-10-31T12:00Z',
      ['2026-11-01T05:30', '2026-11-02T06:30'],
    ],
    // half an hour
    [
      'Australia/Lord_Howe',
      '45 1 * * *',
      '2026-04-04T12:00Z',
      ['2026-04-04T14:45', '2026-04-05T15:15'],
    ],
    [
      'Australia/Lord_Howe',
      '15 2 * * *',
      '2026-10-03T12:00Z',
      ['2026-10-03T15:30', '2026-10-04T15:15'],
    ],
  ])('%s: %s names a time once', (zone, cron, after, expected) => {
    expect(nextTimes(cron, zone, after, expected.length)).toEqual(expected);
  });

  it('a schedule of every hour follows the hours as they pass', () => {
    expect(nextTimes('*/30 * * * *', 'Europe/Berlin', '2026-10-24T23:40Z', 6)).toEqual([
      '2026-10-25T00:00',
      '2026-10-25T00:30',
      '2026-10-25T01:00',
      '2026-10-25T01:30',
      '2026-10-25T02:00',
      '2026-10-25T02:30',
    ]);
    expect(nextTimes('30 * * * *', 'Europe/Berlin', '2026-03-29T00:10Z', 3)).toEqual([
      '2026-03-29T00:30',
      '2026-03-29T01:30',
      '2026-03-29T02:30',
    ]);
  });
});

const ZONES = [
  'Europe/Berlin',
  'America/New_York',
  'Australia/Lord_Howe',
  'Africa/Cairo',
  'Asia/Kolkata',
  'UTC',
] as const;

/** Days before a change of the clocks of one of the zones, and one far from any. */
const DAYS = [
  '2026-03-28',
  '2026-10-24',
  '2026-03-07',
  '2026-10-31',
  '2026-04-03',
  '2026-10-02',
  '2026-04-23',
  '2026-10-29',
  '2026-07-01',
] as const;

interface Field {
  readonly text: string;
  readonly has: (value: number) => boolean;
}

const ALL: Field = { text: '*', has: () => true };

function field(low: number, high: number): fc.Arbitrary<Field> {
  const value = fc.integer({ min: low, max: high });
  return fc.oneof(
    fc.constant(ALL),
    fc.uniqueArray(value, { minLength: 1, maxLength: 3 }).map((values) => ({
      text: values.join(','),
      has: (one: number) => values.includes(one),
    })),
    fc.integer({ min: 2, max: high - low }).map((step) => ({
      text: `*/${step}`,
      has: (one: number) => (one - low) % step === 0,
    })),
    fc.tuple(value, value).map(([one, two]) => {
      const [from, to] = [Math.min(one, two), Math.max(one, two)];
      return { text: `${from}-${to}`, has: (each: number) => each >= from && each <= to };
    }),
  );
}

const walls = new Map<string, readonly number[]>();

/** The wall times of three days, minute by minute, as the locale of Sweden writes them. */
function wallsOf(zone: string, start: number): readonly number[] {
  const key = `${zone} ${start}`;
  const known = walls.get(key);
  if (known) return known;
  const format = new Intl.DateTimeFormat('sv-SE', {
    timeZone: zone,
    dateStyle: 'short',
    timeStyle: 'medium',
  });
  const made = Array.from({ length: 3 * 24 * 60 }, (_, index) =>
    Date.parse(`${format.format(start + index * MINUTE).replace(' ', 'T')}Z`),
  );
  walls.set(key, made);
  return made;
}

describe('a random expression', () => {
  it('is due in the minutes in which a naive look at the clock finds it', () => {
    const expression = fc.tuple(
      field(0, 59),
      field(0, 23),
      field(1, 31),
      field(1, 12),
      field(0, 6),
    );
    fc.assert(
      fc.property(
        expression,
        fc.constantFrom(...ZONES),
        fc.constantFrom(...DAYS),
        ([minute, hour, day, month, weekday], zone, from) => {
          const isDue = (wall: number): boolean => {
            const date = new Date(wall);
            const isDay = day.has(date.getUTCDate());
            const isWeekday = weekday.has(date.getUTCDay());
            // two restricted fields of days mean either, as in crontab(5)
            const isEither = !day.text.startsWith('*') && !weekday.text.startsWith('*');
            return (
              minute.has(date.getUTCMinutes()) &&
              hour.has(date.getUTCHours()) &&
              month.has(date.getUTCMonth() + 1) &&
              (isEither ? isDay || isWeekday : isDay && isWeekday)
            );
          };
          const start = Date.parse(`${from}T00:00Z`);
          const seen = new Set<number>();
          const expected: number[] = [];
          let last: number | undefined;
          for (const [index, wall] of wallsOf(zone, start).entries()) {
            let due = isDue(wall) && (hour === ALL || !seen.has(wall));
            for (let gone = (last ?? wall) + MINUTE; gone < wall; gone += MINUTE)
              due ||= hour !== ALL && isDue(gone);
            if (due) expected.push(start + index * MINUTE);
            seen.add(wall);
            last = wall;
          }
          const cron = [minute, hour, day, month, weekday].map(({ text }) => text).join(' ');
          const end = start + 3 * 24 * 60 * MINUTE - 1;
          let times: ReturnType<typeof parseCron>;
          try {
            times = parseCron(cron, zone);
          } catch {
            // a day that no month has, such as 31 2
            expect(expected).toEqual([]);
            return;
          }
          const found: number[] = [];
          for (let at = times.next(start - 1); at !== undefined && at <= end; at = times.next(at))
            found.push(at);
          expect(found.map(iso), `${cron} ${zone}`).toEqual(expected.map(iso));
          const middle = start + 36 * 60 * MINUTE;
          const newest = expected.filter((at) => at > start && at <= middle).slice(-7);
          expect(dueTimes(times, start, middle, 7).times.map(iso)).toEqual(newest.map(iso));
        },
      ),
      runs(150),
    );
  });
});

function iso(time: number): string {
  return new Date(time).toISOString();
}

it.each([
  ['* * * *', 'it has 4 fields'],
  ['0 0 0 * * * 2027', 'it has 7 fields'],
  ['@daily', 'it has 1 field'],
  ['60 * * * *', '60'],
  ['0 0 L * *', 'unknown form "L"'],
  ['0 0 15W * *', 'unknown form "15W"'],
  ['0 0 * * 1#2', 'unknown form "1#2"'],
  ['5/15 * * * *', '5/15'],
  ['0 0 30 2 *', 'never due'],
  ['a b c d e', 'unknown form "a"'],
  ['', 'it has'],
])('the expression %j is refused: %s', (cron, problem) => {
  expect(() => parseCron(cron, 'UTC')).toThrow(
    expect.objectContaining({ code: 'invalid_input', message: expect.stringContaining(problem) }),
  );
});

it('an unknown zone is refused, and names of months and days are known', () => {
  expect(() => parseCron('0 0 * * *', 'Mars/Olympus')).toThrow('unknown time zone "Mars/Olympus"');
  expect(nextTimes('0 12 * jul sun', 'UTC', '2026-07-01T00:00Z', 2)).toEqual([
    '2026-07-05T12:00',
    '2026-07-12T12:00',
  ]);
  expect(nextTimes('30 0 12 * * 7', 'UTC', '2026-07-01T00:00Z', 1)).toEqual([
    '2026-07-05T12:00:30.000Z',
  ]);
});

describe('times that have come', () => {
  const everySecond = parseCron('* * * * * *', 'Europe/Berlin');
  const now = Date.parse('2026-11-01T00:00:00Z');

  it('are the newest thousand after a downtime of a year', () => {
    const { times, isCut } = dueTimes(everySecond, now - 365 * 86_400_000, now);
    expect([times.length, times.at(-1), isCut]).toEqual([MOST_MADE_UP, now, true]);
    expect(times[0]).toBe(now - (MOST_MADE_UP - 1) * 1000);
    const hourly = parseCron('0 * * * *', 'UTC');
    expect(dueTimes(hourly, now - 5 * 3_600_000, now)).toMatchObject({
      isCut: false,
      times: { length: 5 },
    });
    expect(dueTimes(hourly, now, now)).toEqual({ times: [], isCut: false });
    expect(dueTimes(hourly, now + 1, now).times).toEqual([]);
  });

  it('does not count the time for which other schedules kept the loop as late', () => {
    const late = { now: now + 90_000, watchedSince: now - 10_000_000 };
    const due = { times: [now], isCut: false };
    expect(decideDue(due, 'skip', late)).toEqual({ fire: [], dropped: [now] });
    expect(decideDue(due, 'skip', { ...late, busyMs: 40_000 })).toEqual({
      fire: [now],
      dropped: [],
    });
  });

  it.each([
    ['skip', now, 'watched', [3], [1, 2]],
    ['skip', now, 'absent', [], [1, 2, 3]],
    ['skip', now + 60_001, 'watched', [], [1, 2, 3]],
    ['once', now + 60_001, 'absent', [3], [1, 2]],
    ['all', now + 60_001, 'absent', [1, 2, 3], []],
  ] as const)(
    '%s at %d with a loop that was %s fires %j and drops %j',
    (missed, at, loop, fire, dropped) => {
      const times = [now - 7_200_000, now - 3_600_000, now];
      const watchedSince = loop === 'watched' ? now - 10_000_000 : now + 1;
      const of = (indexes: readonly number[]) => indexes.map((index) => times[index - 1]);
      expect(decideDue({ times, isCut: false }, missed, { now: at, watchedSince })).toEqual({
        fire: of(fire),
        dropped: of(dropped),
      });
    },
  );
});
