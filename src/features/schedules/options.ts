/** Times that no loop was there for: `skip` drops them, `once` makes the last of them up, `all` each in order. */
export const MISSED = ['skip', 'once', 'all'] as const;
export type Missed = (typeof MISSED)[number];

/** Timers of a system that can run a schedule without rye's own loop. */
export const TIMERS = ['cron', 'systemd', 'actions'] as const;
export type Timer = (typeof TIMERS)[number];
