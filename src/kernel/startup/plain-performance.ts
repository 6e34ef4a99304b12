import process from 'node:process';

const startedAt = process.hrtime();

/**
 * The used part of the platform's `performance`, which loads a library of measurements with its first use. The build puts it
 * in its place (`startup/bundles.mjs`).
 */
export const performance = {
  timeOrigin: Date.now(),
  /** Milliseconds since this module was evaluated, on a clock that never goes back. */
  now(): number {
    const [seconds, nanoseconds] = process.hrtime(startedAt);
    return seconds * 1000 + nanoseconds / 1e6;
  },
};
