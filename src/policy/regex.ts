import { RE2JS } from 're2js';
import { messageOf } from '../core/errors.ts';

const MAX_PATTERN_LENGTH = 1000;
const CACHE_SIZE = 256;

const compiled = new Map<string, RE2JS>();

/** Why a pattern can't be used, or undefined when it can. Look-around and back-references are not RE2 syntax. */
export function regexProblem(pattern: string): string | undefined {
  if (pattern.length > MAX_PATTERN_LENGTH)
    return `it is longer than ${MAX_PATTERN_LENGTH} characters`;
  try {
    compile(pattern);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Whether a pattern is found anywhere in `text`, in time linear in its length. */
export function regexFinds(pattern: string, text: string): boolean {
  return compile(pattern).matcher(text).find();
}

function compile(pattern: string): RE2JS {
  const known = compiled.get(pattern);
  if (known !== undefined) return known;
  const fresh = RE2JS.compile(pattern);
  const oldest = compiled.keys().next().value;
  if (compiled.size >= CACHE_SIZE && oldest !== undefined) compiled.delete(oldest);
  compiled.set(pattern, fresh);
  return fresh;
}
