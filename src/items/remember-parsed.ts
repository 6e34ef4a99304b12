import { LruMap } from '../core/lru.ts';
import { sha256Hex } from '../trust/keys.ts';

/** Texts of each kind that are remembered; one prepare reads a few dozen. */
const CAPACITY = 256;
/** Longer ones are parsed again: they would be kept whole. */
const MAX_CHARACTERS = 64 * 1024;

/**
 * The same pure reading of a file's text, which remembers what it gave for the same text at the same path: a process that
 * prepares thread after thread parses each file once. Results must not be changed. Failures are not remembered.
 */
export function rememberParsed<T>(
  read: (text: string, path: string) => T,
): (text: string, path: string) => T {
  const known = new LruMap<string, { readonly value: T }>(CAPACITY);
  return (text, path) => {
    if (text.length > MAX_CHARACTERS) return read(text, path);
    const key = `${sha256Hex(text)} ${path}`;
    return known.getOrMake(key, () => ({ value: read(text, path) })).value;
  };
}
