/** Tests one part of a path. */
export type SegmentTest = (name: string) => boolean;

/** A character, any number of them (`undefined`), or one of a class. */
type Token = string | undefined | ((character: string) => boolean);

/**
 * Compiles one part of a pattern of git to a test: `*`, `?`, `[a-z]`, `[!a]`, `[[:digit:]]`, and `\` before a plain character. A
 * malformed pattern matches nothing. The test takes time in the product of both lengths: a pattern is of a stranger.
 */
export function compileSegment(pattern: string): SegmentTest {
  if (!/[*?[\\]/.test(pattern)) return (name) => name === pattern;
  const tokens = tokensOf(pattern);
  return tokens === undefined ? () => false : (name) => matches(tokens, Array.from(name));
}

function matches(tokens: readonly Token[], name: readonly string[]): boolean {
  let [token, at] = [0, 0];
  let retry: { readonly token: number; readonly at: number } | undefined;
  while (at < name.length) {
    const test = tokens[token];
    const character = name[at] ?? '';
    if (token < tokens.length && test === undefined) {
      retry = { token, at };
      token += 1;
    } else if (typeof test === 'function' ? test(character) : test === character) {
      token += 1;
      at += 1;
    } else if (retry === undefined) return false;
    else {
      retry = { token: retry.token, at: retry.at + 1 };
      token = retry.token + 1;
      at = retry.at;
    }
  }
  while (token < tokens.length && tokens[token] === undefined) token += 1;
  return token === tokens.length;
}

function tokensOf(pattern: string): readonly Token[] | undefined {
  const characters = Array.from(pattern);
  const tokens: Token[] = [];
  for (let at = 0; at < characters.length; at += 1) {
    const character = characters[at];
    if (character === '*') tokens.push(undefined);
    else if (character === '?') tokens.push(() => true);
    else if (character === '\\') {
      at += 1;
      if (at === characters.length) return undefined;
      tokens.push(characters[at]);
    } else if (character === '[') {
      const found = classOf(characters, at + 1);
      if (found === undefined) return undefined;
      tokens.push(found.test);
      at = found.end;
    } else tokens.push(character);
  }
  return tokens;
}

interface Class {
  readonly test: (character: string) => boolean;
  /** Index of its closing bracket. */
  readonly end: number;
}

/** Reads a class of characters that begins at this index; undefined if it has no end. */
function classOf(characters: readonly string[], start: number): Class | undefined {
  const isNegated = characters[start] === '!' || characters[start] === '^';
  const first = isNegated ? start + 1 : start;
  const tests: ((character: string) => boolean)[] = [];
  for (let at = first; at < characters.length; at += 1) {
    const [, named] = /^\[:(\w*):\]/.exec(characters.slice(at, at + 12).join('')) ?? [];
    if (characters[at] === ']' && at > first) {
      return { test: (one) => tests.some((test) => test(one)) !== isNegated, end: at };
    }
    if (named !== undefined) {
      const members = NAMED[named];
      if (members === undefined) return undefined;
      tests.push((one) => members.test(one));
      at += named.length + 3;
      continue;
    }
    if (characters[at] === '\\') at += 1;
    const low = characters[at];
    if (low === undefined) return undefined;
    if (characters[at + 1] !== '-' || [undefined, ']'].includes(characters[at + 2])) {
      tests.push((one) => one === low);
      continue;
    }
    at += characters[at + 2] === '\\' ? 3 : 2;
    const high = characters[at];
    if (high === undefined) return undefined;
    tests.push((one) => one >= low && one <= high);
  }
  return undefined;
}

const NAMED: Readonly<Record<string, RegExp>> = {
  alnum: /^[A-Za-z0-9]$/,
  alpha: /^[A-Za-z]$/,
  blank: /^[ \t]$/,
  cntrl: /^\p{Cc}$/u,
  digit: /^\d$/,
  graph: /^[!-~]$/,
  lower: /^[a-z]$/,
  print: /^[ -~]$/,
  punct: /^[!-/:-@[-`{-~]$/,
  space: /^\s$/,
  upper: /^[A-Z]$/,
  xdigit: /^[0-9A-Fa-f]$/,
};
