import { existsSync, lstatSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { isInside } from './paths.ts';
import { bytesOf, compileWildcard, type WildcardTest } from './wildcard.ts';

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
