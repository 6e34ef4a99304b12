import type { LogEvent, UnknownEvent } from '../core/events.ts';

/** The version of the log format that is written. */
export const LOG_VERSION = 1;

type Event = LogEvent | UnknownEvent;

/**
 * Turns an event of one version into one of the next. It leaves an event as it is that has the newer form already, since
 * a log that an older rye began is appended to in today's form.
 */
export type LogStep = (event: Event) => Event;

/** The step at index 0 leads from version 1 to version 2. A version that is released once is never taken out. */
const STEPS: readonly LogStep[] = [];

/** Why a header's version cannot be read, or undefined. A newer one is never guessed at, and never appended to. */
export function versionProblem(version: unknown): string | undefined {
  if (typeof version !== 'number' || !Number.isSafeInteger(version) || version < 1) {
    return `its format version ${JSON.stringify(version)} is not known`;
  }
  return version <= LOG_VERSION
    ? undefined
    : `its format version ${version} is not known; a newer rye wrote it`;
}

/**
 * What brings events of a version to the form of today, in memory: a file is never rewritten. undefined where nothing has
 * changed since.
 */
export function upgradeFrom(
  version: number,
  steps: readonly LogStep[] = STEPS,
): LogStep | undefined {
  const due = steps.slice(version - 1);
  if (due.length === 0) return undefined;
  return (event) => due.reduce((upgraded, step) => step(upgraded), event);
}
