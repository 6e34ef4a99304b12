import { createHash } from 'node:crypto';
import type { ModelRequest } from '../provider.ts';

/** Function names of chat completions are at most this long. */
const MAX_NAME_CHARS = 64;
const HASH_CHARS = 8;

/** The name of a tool as this API takes it: a long one is cut and ends with a hash of the whole. */
export function shortName(name: string): string {
  if (name.length <= MAX_NAME_CHARS) return name;
  const hash = createHash('sha256').update(name).digest('hex').slice(0, HASH_CHARS);
  return `${name.slice(0, MAX_NAME_CHARS - HASH_CHARS - 1)}_${hash}`;
}

/** The names behind the short ones of a request; the log and the loop know no others. */
export function longNames({ tools }: ModelRequest): ReadonlyMap<string, string> {
  return new Map(tools.map(({ name }) => [shortName(name), name]));
}
