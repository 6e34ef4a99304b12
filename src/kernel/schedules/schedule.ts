import { assertConfig, type CheckedSchema } from '../core/check.ts';
import { RyeError } from '../core/errors.ts';
import file from '../schemas/schedules.json' with { type: 'json' };
import type { ScheduleEntry, SchedulesFile } from '../schemas/schedules.ts';
import { parseCron, type Times } from './cron.ts';

/** A schedule as the signed file has it, with its times. */
export interface Schedule {
  readonly name: string;
  readonly entry: ScheduleEntry;
  readonly times: Times;
}

const schema: CheckedSchema = file;
const NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;

/** Throws `invalid_input` unless the text names a schedule. */
export function assertScheduleName(name: string): void {
  if (NAME.test(name)) return;
  throw new RyeError('invalid_input', `invalid schedule name ${JSON.stringify(name)}`, {
    hint: 'Use up to 64 small letters, digits, hyphens and underscores, such as nightly-report.',
  });
}

/** Reads the content of schedules.yaml, by name. Throws `config_invalid` for the first mistake. */
export function readSchedules(value: unknown, path: string): readonly Schedule[] {
  assertConfig(schema, value, 'schedules', { path });
  // the assertion above has checked its shape
  const { schedules } = value as SchedulesFile;
  return Object.entries(schedules ?? {})
    .map(([name, entry]) => {
      try {
        assertScheduleName(name);
        return { name, entry, times: parseCron(entry.cron, entry.timezone) };
      } catch (error) {
        if (!(error instanceof RyeError)) throw error;
        const message = `schedule ${JSON.stringify(name)}: ${error.message}`;
        throw new RyeError('config_invalid', message, {
          location: { path },
          hint: error.hint,
          cause: error,
        });
      }
    })
    .toSorted((one, two) => (one.name < two.name ? -1 : 1));
}

/**
 * Returns the ID of the thread of a firing. It is made of the name and the time alone: the registry takes an ID once, so
 * that a time fires once also after a crash and with two loops.
 */
export function firingThreadId(name: string, at: number): string {
  return `${firingPrefix(name)}${new globalThis.Date(at).toISOString().replaceAll(/[:-]|\.000/g, '')}`;
}

/** Returns how the IDs of all threads of a schedule begin. */
export function firingPrefix(name: string): string {
  return `schedule/${name}/`;
}
