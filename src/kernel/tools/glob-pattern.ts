import { RE2JS } from 're2js';
import { RyeError } from '../core/errors.ts';
import { LruMap } from '../core/lru.ts';

const MAX_PATTERN = 1000;

/**
 * Compiles a glob to a test over relative paths with forward slashes: `*` and `?` within a segment, `**` across
 * segments, `[a-z]`, `[!a]`, `{a,b}` nested, `\` escapes. Names that start with a dot match like others. The test
 * runs in linear time (RE2), because a pattern of a model meets file names of anybody. Throws `pattern_invalid`.
 */
export function compileGlob(pattern: string): (path: string) => boolean {
  return compiled.getOrMake(pattern, () => compile(pattern));
}

/** Rules share few globs, and each is compiled when a rule is checked and again when it watches. */
const compiled = new LruMap<string, (path: string) => boolean>(256);

function compile(pattern: string): (path: string) => boolean {
  const plain = pattern.startsWith('./') ? pattern.slice(2) : pattern;
  const problem = globProblem(plain);
  if (problem !== undefined) {
    throw new RyeError(
      'pattern_invalid',
      `${JSON.stringify(pattern)} is not a glob pattern: ${problem}`,
      { hint: 'Write a pattern relative to path, such as src/**/*.ts.' },
    );
  }
  const source = `^(?:${translate(plain)})$`;
  let expression: RE2JS | undefined;
  // everything but a class of characters compiles, and most globs of rules meet no path
  if (plain.includes('[')) expression = RE2JS.compile(source, RE2JS.DOTALL);
  return (path) => {
    expression ??= RE2JS.compile(source, RE2JS.DOTALL);
    return expression.test(path);
  };
}

function globProblem(pattern: string): string | undefined {
  if (pattern === '') return 'it is empty';
  if (pattern.length > MAX_PATTERN) return `it is longer than ${MAX_PATTERN} characters`;
  if (pattern.includes('\0')) return 'it contains a NUL character';
  if (pattern.startsWith('/')) return 'it starts with a slash';
  if (pattern.split('/').includes('..')) return 'it leaves the folder with ".."';
  return undefined;
}

function translate(pattern: string): string {
  let out = '';
  let depth = 0;
  const closable = braceClosings(pattern);
  for (let at = 0; at < pattern.length; at += 1) {
    const character = pattern.charAt(at);
    if (character === '\\' && at + 1 < pattern.length) {
      at += 1;
      out += RE2JS.quote(pattern.charAt(at));
    } else if (character === '*') {
      const step = star(pattern, at);
      out += step.source;
      at = step.last;
    } else if (character === '?') {
      out += '[^/]';
    } else if (character === '[') {
      const step = characterClass(pattern, at);
      out += step.source;
      at = step.last;
    } else if (character === '{' && closable.has(at)) {
      out += '(?:';
      depth += 1;
    } else if (character === '}' && depth > 0) {
      out += ')';
      depth -= 1;
    } else if (character === ',' && depth > 0) {
      out += '|';
    } else {
      out += RE2JS.quote(character);
    }
  }
  return out;
}

interface Step {
  readonly source: string;
  /** Index of its last character. */
  readonly last: number;
}

function star(pattern: string, at: number): Step {
  let last = at;
  while (pattern.charAt(last + 1) === '*') last += 1;
  const alone = (at === 0 || '/{,'.includes(pattern.charAt(at - 1))) && last > at;
  const next = pattern.charAt(last + 1);
  if (!alone || (next !== '' && !'/,}'.includes(next))) return { source: '[^/]*', last };
  return next === '/' ? { source: '(?:[^/]+/)*', last: last + 1 } : { source: '.*', last };
}

function characterClass(pattern: string, at: number): Step {
  const negated = pattern.charAt(at + 1) === '!' || pattern.charAt(at + 1) === '^';
  const start = at + (negated ? 2 : 1);
  // A closing bracket in first position is a member of the class.
  const end = pattern.indexOf(']', start + 1);
  if (end === -1 || pattern.slice(start, end).includes('/')) return { source: '\\[', last: at };
  const members = pattern.slice(start, end).replaceAll(/[\\[\]^&~]/g, '\\$&');
  return { source: negated ? `[^/${members}]` : `[${members}]`, last: end };
}

/** Positions of opening braces that have a closing one; others are literal. */
function braceClosings(pattern: string): ReadonlySet<number> {
  const open: number[] = [];
  const closed = new Set<number>();
  for (let at = 0; at < pattern.length; at += 1) {
    const character = pattern.charAt(at);
    if (character === '\\') at += 1;
    else if (character === '[') at = characterClass(pattern, at).last;
    else if (character === '{') open.push(at);
    else if (character === '}') {
      const start = open.pop();
      if (start !== undefined) closed.add(start);
    }
  }
  return closed;
}
