import type { LogEvent, UnknownEvent } from './events.ts';
import type { JsonObject } from './json.ts';

/** An entry that may be imported: then its payload has members of the original beside the members of its type. */
type Imported = Pick<LogEvent | UnknownEvent, 'payload'>;

/** The line of the original session; undefined for an entry that rye wrote. */
export function originalLineOf({ payload }: Imported): string | undefined {
  const { pi_line: line } = payload as JsonObject;
  return typeof line === 'string' ? line : undefined;
}

/** The time in the original session; undefined for an entry that rye wrote. */
export function originalTimeOf({ payload }: Imported): string | undefined {
  const { original_time: time } = payload as JsonObject;
  return typeof time === 'string' ? time : undefined;
}

/** USD that an imported answer cost when it was made; undefined for an entry that rye wrote. */
export function originalCostOf({ payload }: Imported): number | undefined {
  const { original_usd: usd } = payload as JsonObject;
  return typeof usd === 'number' && Number.isFinite(usd) ? usd : undefined;
}

/** When an entry came into being: if it was imported, in the original session; else when it was appended. */
export function timeOf(entry: LogEvent | UnknownEvent): string {
  return originalTimeOf(entry) ?? entry.timestamp;
}
