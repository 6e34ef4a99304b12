import type { Missed } from '../../kernel/app/api/schedules.ts';
import type { Times } from '../../kernel/schedules/cron.ts';

/** Times that are made up at most; older ones are dropped. */
export const MOST_MADE_UP = 1000;
/** A firing that is later than this counts as missed. */
const LATE_MS = 60_000;
const FIRST_WINDOW_MS = 60_000;

/** The times that have come since a cursor. */
export interface Due {
  /** In order, in milliseconds since the epoch; at most `MOST_MADE_UP`, the newest. */
  readonly times: readonly number[];
  /** True if there were more of them. */
  readonly isCut: boolean;
}

/**
 * Returns the newest times in (after, until]. Costs a few thousand steps at most, however long ago `after` is: it looks
 * back in windows that double.
 */
export function dueTimes(times: Times, after: number, until: number, most = MOST_MADE_UP): Due {
  for (let window = FIRST_WINDOW_MS; ; window *= 2) {
    const from = Math.max(after, until - window);
    const found: number[] = [];
    for (let time = times.next(from); time !== undefined && time <= until; time = times.next(time))
      found.push(time);
    const isAll = from === after;
    if (found.length > most || isAll)
      return { times: found.slice(-most), isCut: found.length > most || !isAll };
  }
}

/** The acts of a loop for the times that have come. */
export interface Decision {
  /** Times to fire, in order. */
  readonly fire: readonly number[];
  /** Times that are dropped, the newest last. */
  readonly dropped: readonly number[];
}

/**
 * Applies the policy for missed times. `watchedSince`: from when on the loop has watched the clock without a gap; `busyMs`:
 * the time that it spent with other schedules since it last looked, by which this one may be late.
 */
export function decideDue(
  { times }: Due,
  missed: Missed,
  {
    now,
    watchedSince,
    busyMs = 0,
  }: { readonly now: number; readonly watchedSince: number; readonly busyMs?: number },
): Decision {
  const newest = times.at(-1);
  if (newest === undefined || missed === 'all') return { fire: times, dropped: [] };
  const isOnTime = newest >= watchedSince && now - newest <= LATE_MS + busyMs;
  const fire = missed === 'once' || isOnTime ? [newest] : [];
  return { fire, dropped: times.slice(0, times.length - fire.length) };
}
