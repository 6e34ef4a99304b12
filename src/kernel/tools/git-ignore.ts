import { existsSync, lstatSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { isInside } from './paths.ts';

/** Tests a name or a path. Text is of bytes, one a character, as git compares it. */
type WildcardTest = (text: string) => boolean;

/** A character, one of a class, any number that are no slash (`STAR`) or of all (`STARS`), or `**` before a slash (`FOLDERS`). */
type Token = string | symbol | ((character: string) => boolean);

const STAR = Symbol('*');
const STARS = Symbol('**');
const FOLDERS = Symbol('**/');

/** Bytes of the longest pattern, which is as long as a path may be. */
const MAX_LENGTH = 4096;

/** Returns a text as bytes, one a character. */
function bytesOf(text: string): string {
  return /[\u0080-\uffff]/.test(text) ? Buffer.from(text).toString('latin1') : text;
}

/**
 * Compiles a pattern of git to a test: `*`, `**` as whole part, `?`, `[a-z]`, `[!a]`, `[[:digit:]]`, and `\` before a plain
 * character. A malformed or very long pattern matches nothing. The test takes time in the product of both lengths: a pattern is
 * of a stranger.
 */
function compileWildcard(pattern: string): WildcardTest {
  if (pattern.length > MAX_LENGTH) return () => false;
  const plain = pattern.search(/[*?[\\]/);
  if (plain === -1) return (text) => text === pattern;
  const tokens = tokensOf(pattern, plain);
  if (tokens === undefined) return () => false;
  const start = pattern.slice(0, plain);
  return (text) => text.startsWith(start) && matches(tokens, text);
}

/** Follows all ways through the tokens at once: the places that can be reached with the text so far. */
function matches(tokens: readonly Token[], text: string): boolean {
  let places = new Set<number>();
  reach(tokens, 0, places);
  for (let at = 0; at < text.length && places.size > 0; at += 1) {
    const character = text.charAt(at);
    const next = new Set<number>();
    for (const place of places) {
      const token = tokens[place];
      if (token === STARS || token === FOLDERS) next.add(place).add(place + 1);
      else if (token === STAR) {
        if (character !== '/') reach(tokens, place, next);
      } else if (typeof token === 'function' ? token(character) : token === character)
        reach(tokens, place + 1, next);
    }
    places = next;
  }
  return places.has(tokens.length);
}

/** Adds a place, and those that it leads to without a character: `**` with its slash may be nothing. */
function reach(tokens: readonly Token[], first: number, places: Set<number>): void {
  places.add(first);
  const token = tokens[first];
  // two that may be nothing never follow each other
  if (typeof token === 'symbol') places.add(first + 1);
  if (token === FOLDERS) reach(tokens, first + 2, places);
}

/** `plain`: the number of characters without a meaning at the start, after which git takes `**` for a whole part. */
function tokensOf(pattern: string, plain: number): readonly Token[] | undefined {
  const tokens: Token[] = [];
  for (let at = 0; at < pattern.length; at += 1) {
    const character = pattern.charAt(at);
    if (character === '*') {
      const end = at + pattern.slice(at).search(/[^*]|$/);
      const isFirst = at === plain || pattern[at - 1] === '/';
      const token = isFirst && end - at > 1 ? starsBefore(pattern.slice(end)) : STAR;
      const isRepeated = tokens.at(-1) === '/' && tokens.at(-2) === FOLDERS;
      if (token === FOLDERS && isRepeated) tokens.pop();
      else tokens.push(token);
      at = end - 1;
    } else if (character === '?') {
      tokens.push((one) => one !== '/');
    } else if (character === '\\') {
      at += 1;
      if (at === pattern.length) return undefined;
      tokens.push(pattern.charAt(at));
    } else if (character === '[') {
      const found = classOf(pattern, at + 1);
      if (found === undefined) return undefined;
      tokens.push(found.test);
      at = found.end;
    } else tokens.push(character);
  }
  return tokens;
}

function starsBefore(rest: string): symbol {
  if (rest.startsWith('/')) return FOLDERS;
  return rest === '' || rest.startsWith('\\/') ? STARS : STAR;
}

interface Class {
  readonly test: (character: string) => boolean;
  /** Index of its last character. */
  readonly end: number;
}

/** Reads a class of characters that begins at this index; undefined if it has no end. A slash is in no class. */
function classOf(pattern: string, start: number): Class | undefined {
  const isNegated = /[!^]/.test(pattern.charAt(start));
  const tests: Class['test'][] = [];
  let at = isNegated ? start + 1 : start;
  let before: string | undefined;
  do {
    const member = memberOf(pattern, at, before);
    if (member === undefined) return undefined;
    tests.push(member.test);
    before = member.last;
    at = member.end + 1;
  } while (pattern[at] !== ']');
  const test = (one: string): boolean => one !== '/' && tests.some((is) => is(one)) !== isNegated;
  return { test, end: at };
}

/** Reads a member of a class; `last` is the character that a range may begin with. */
function memberOf(
  pattern: string,
  at: number,
  before: string | undefined,
): (Class & { readonly last: string | undefined }) | undefined {
  const { [at]: character, [at + 1]: next } = pattern;
  if (character === '-' && before !== undefined && next !== undefined && next !== ']') {
    const end = next === '\\' ? at + 2 : at + 1;
    const high = pattern[end];
    if (high === undefined) return undefined;
    return { test: (one) => one >= before && one <= high, end, last: undefined };
  }
  if (character === '[' && next === ':') {
    const end = pattern.indexOf(']', at + 2);
    if (end === -1) return undefined;
    if (end > at + 2 && pattern[end - 1] === ':') {
      const members = NAMED.get(pattern.slice(at + 2, end - 1));
      return members && { test: (one) => members.test(one), end, last: undefined };
    }
  }
  const end = character === '\\' ? at + 1 : at;
  const last = pattern[end];
  return last === undefined ? undefined : { test: (one) => one === last, end, last };
}

const NAMED: ReadonlyMap<string, RegExp> = new Map([
  ['alnum', /[A-Za-z0-9]/],
  ['alpha', /[A-Za-z]/],
  ['blank', /[ \t]/],
  ['cntrl', /[^ -~\x80-\xff]/],
  ['digit', /\d/],
  ['graph', /[!-~]/],
  ['lower', /[a-z]/],
  ['print', /[ -~]/],
  ['punct', /[!-/:-@[-`{-~]/],
  ['space', /[ \t\n\r]/],
  ['upper', /[A-Z]/],
  ['xdigit', /[0-9A-Fa-f]/],
]);

/** One line of a `.gitignore`. */
interface Rule {
  readonly isNegated: boolean;
  readonly isFolderOnly: boolean;
  /** Tests the name, at any depth, or the path below the folder of the file. */
  readonly test: WildcardTest;
  readonly isName: boolean;
}

/** The rules of one file, for the paths below a folder. */
interface Level {
  readonly folder: string;
  readonly rules: readonly Rule[];
}

/** Bytes of a file of rules that are read. */
const MAX_BYTES = 1024 * 1024;
const FILE = '.gitignore';

/** Decides what git ignores below a folder by `.gitignore` and `.git/info/exclude`, without the settings of the user. */
export class GitIgnore {
  readonly #levels: readonly Level[];

  private constructor(levels: readonly Level[]) {
    this.#levels = levels;
  }

  /**
   * Reads the rules for a folder: from its repository, else from the project. A folder that is ignored itself, and that is
   * searched all the same, has only the rules in it. Real paths.
   */
  static of(folder: string, project: string): GitIgnore {
    const top = repositoryOf(folder) ?? (isInside(folder, project) ? project : folder);
    let rules = new GitIgnore(levelOf(top, excludeOf(top)));
    let current = top;
    const way = relative(top, folder).split(sep);
    for (const name of way.filter((part) => part !== '')) {
      rules = rules.#with(current, isFile(join(current, FILE)));
      current = join(current, name);
      if (rules.ignores(current, true)) rules = new GitIgnore([]);
    }
    return rules;
  }

  /** Returns the rules inside of a folder that has these names. Another repository has only its own. */
  inside(folder: string, names: { has(name: string): boolean }): GitIgnore {
    const isOther = names.has('.git') && this.#levels.every((level) => level.folder !== folder);
    const outer = isOther ? new GitIgnore(levelOf(folder, excludeOf(folder))) : this;
    return outer.#with(folder, names.has(FILE));
  }

  /** True if git ignores an entry of the folder that these rules are for. */
  ignores(path: string, isFolder: boolean): boolean {
    const name = bytesOf(basename(path));
    for (let at = this.#levels.length - 1; at >= 0; at -= 1) {
      const { folder, rules } = this.#levels[at] as Level;
      const below = bytesOf(relative(folder, path).split(sep).join('/'));
      const rule = rules.findLast(
        ({ isFolderOnly, isName, test }) =>
          (isFolder || !isFolderOnly) && test(isName ? name : below),
      );
      if (rule !== undefined) return !rule.isNegated;
    }
    return false;
  }

  #with(folder: string, hasFile: boolean): GitIgnore {
    if (!hasFile) return this;
    return new GitIgnore([...this.#levels, ...levelOf(folder, join(folder, FILE))]);
  }
}

function levelOf(folder: string, file: string): readonly Level[] {
  const rules = rulesIn(file);
  return rules.length === 0 ? [] : [{ folder, rules }];
}

/** The folder of the repository that holds a folder; undefined outside of one. */
function repositoryOf(folder: string): string | undefined {
  for (let current = folder; ; current = dirname(current)) {
    if (existsSync(join(current, '.git'))) return current;
    if (dirname(current) === current) return undefined;
  }
}

/** The exclude file of a repository; of a worktree, that of its repository. */
function excludeOf(top: string): string {
  const git = join(top, '.git');
  const own = textOf(git);
  if (own === undefined) return join(git, 'info', 'exclude');
  const folder = resolve(top, /^gitdir: (.+)/.exec(own)?.[1] ?? '.git');
  const common = textOf(join(folder, 'commondir'))?.trim() ?? '.';
  return join(resolve(folder, common), 'info', 'exclude');
}

function isFile(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

/** As git, reads no links; a pipe would never end. */
function textOf(path: string, encoding: BufferEncoding = 'utf8'): string | undefined {
  try {
    const stats = lstatSync(path);
    return stats.isFile() && stats.size <= MAX_BYTES ? readFileSync(path, encoding) : undefined;
  } catch {
    return undefined;
  }
}

function rulesIn(file: string): readonly Rule[] {
  const text = textOf(file, 'latin1') ?? '';
  return `${text}\n`
    .replace(/^\xef\xbb\xbf/, '')
    .split(/\r?\n/)
    .flatMap((line) => ruleOf(line) ?? []);
}

function ruleOf(line: string): Rule | undefined {
  if (line.startsWith('#')) return undefined;
  const isNegated = line.startsWith('!');
  const text = withoutSpaces(isNegated ? line.slice(1) : line);
  const isFolderOnly = text.endsWith('/');
  const pattern = isFolderOnly ? text.slice(0, -1) : text;
  if (pattern === '') return undefined;
  const isName = !pattern.includes('/');
  const test = compileWildcard(pattern.replace(/^\//, ''));
  return { isNegated, isFolderOnly, isName, test };
}

/** Spaces at the end do not count, unless they are escaped. */
function withoutSpaces(line: string): string {
  let end = 0;
  for (let at = 0; at < line.length; at += 1) {
    if (line[at] === ' ') continue;
    if (line[at] === '\\') at += 1;
    end = at + 1;
  }
  return line.slice(0, end);
}
