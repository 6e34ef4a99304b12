import { RE2JS } from 're2js';
import { messageOf } from '../core/errors.ts';
import { LruMap } from '../core/lru.ts';

const MAX_PATTERN_LENGTH = 1000;
const CACHE_SIZE = 256;

const compiled = new LruMap<string, RE2JS>(CACHE_SIZE);

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

/** True if a pattern is found anywhere in `text`, in time linear in its length. */
export function regexFinds(pattern: string, text: string): boolean {
  return compile(pattern).matcher(text).find();
}

/** Returns the places of a pattern that can watch a stream, in UTF-16 units and at most so many. */
export function regexSpans(
  pattern: string,
  text: string,
  limit: number,
): readonly { readonly start: number; readonly end: number }[] {
  const matcher = searched
    .getOrMake(pattern, () => RE2JS.compile(RE2JS.translateRegExp(pattern)))
    .matcher(text);
  const spans: { start: number; end: number }[] = [];
  while (spans.length < limit && matcher.find()) {
    spans.push({ start: matcher.start(), end: matcher.end() });
  }
  return spans;
}

const searched = new LruMap<string, RE2JS>(CACHE_SIZE);

function compile(pattern: string): RE2JS {
  return compiled.getOrMake(pattern, () => RE2JS.compile(pattern));
}

/** Instructions of one automaton: what a step costs at worst is in proportion to it. */
const MAX_PROGRAM = 4000;

/** Opcodes and assertion bits of RE2's compiled programs, as Go's regexp/syntax numbers them. */
export const OP = {
  alt: 1,
  altMatch: 2,
  capture: 3,
  emptyWidth: 4,
  match: 6,
  nop: 7,
  firstRune: 8,
} as const;
const LAST_RUNE_OP = 11;
export const AT = {
  beginLine: 1,
  endLine: 2,
  beginText: 4,
  endText: 8,
  wordBoundary: 16,
  noWordBoundary: 32,
} as const;
/** One step of a compiled program. */
export interface Instruction {
  readonly op: number;
  readonly out: number;
  readonly arg: number;
  readonly runes: ArrayLike<number>;
  matchRune(rune: number): boolean;
}

/** A pattern as RE2 compiles it. */
export interface Program {
  readonly start: number;
  numInst(): number;
  getInst(pc: number): Instruction;
}

/** Letters and digits that mean something to RE2 after a backslash, or to the translation of JavaScript's dialect. */
const ESCAPES = new Set('aftnrvAbBdDsSwWzpPxucQE01234567');

/** Returns an escape that the translation would read as its letter, such as `\\k<name>` or `\\h`. */
function misreadEscape(pattern: string): string | undefined {
  const unquoted = pattern.replaceAll(/\\Q[\s\S]*?(?:\\E|$)/g, '');
  for (const [escape, letter = ''] of unquoted.matchAll(/\\([\s\S])/g)) {
    if (/[A-Za-z0-9]/.test(letter) && !ESCAPES.has(letter)) return escape;
  }
  return undefined;
}

/** Why a pattern can't watch a stream, or undefined when it can. Look-around and back-references are not RE2 syntax. */
export function streamRegexProblem(pattern: string): string | undefined {
  if (pattern.length > MAX_PATTERN_LENGTH) {
    return `it is longer than ${MAX_PATTERN_LENGTH} characters`;
  }
  const escape = misreadEscape(pattern);
  if (escape !== undefined) return `the escape ${escape} is unknown`;
  try {
    const size = programOf(pattern).numInst();
    return size > MAX_PROGRAM
      ? `it compiles to ${size} steps, at most ${MAX_PROGRAM} may be`
      : undefined;
  } catch (error) {
    return messageOf(error);
  }
}

const PLAIN_LENGTH = 400;
const PLAIN_REPEATS = 8;
/** Characters, common escapes and classes, groups without a name or a condition, and short repetitions of a character. */
const PLAIN =
  /^(?:[^\\()[\]{}*+?|^$.]|\\[bBdDsSwWnrt]|\\[^A-Za-z0-9]|[.^$|)*+?]|\((?:\?:|(?!\?))|\[\^?(?:[^\\[\]^]|\\[dDsSwWnrt]|\\[^A-Za-z0-9])+\]|(?<!\))\{\d{1,2}(?:,\d{0,2})?\})*$/;

/**
 * True only if a pattern that JavaScript accepts can watch a stream for sure: it has nothing but syntax that both dialects
 * share. Compiling a pattern to find out costs a hundred times as much, before the first request to the model.
 */
export function isPlain(pattern: string): boolean {
  const isShort = pattern.length <= PLAIN_LENGTH && pattern.split('{').length <= PLAIN_REPEATS;
  return isShort && PLAIN.test(pattern);
}

/** True if a pattern can be watched. */
export function isUsable(pattern: string): boolean {
  return streamRegexProblem(pattern) === undefined;
}

const programs = new LruMap<string, Program>(CACHE_SIZE);

/** A pattern compiled: once, as it is checked first and watched with later. */
export function programOf(pattern: string): Program {
  return programs.getOrMake(
    pattern,
    // the library types its compiled program loosely; a test compares this automaton with the library's own matcher
    () => RE2JS.compile(RE2JS.translateRegExp(pattern)).re2Input.prog as Program,
  );
}

/** True if an instruction consumes a character. */
export function isRuneOp(op: number): boolean {
  return op >= OP.firstRune && op <= LAST_RUNE_OP;
}
