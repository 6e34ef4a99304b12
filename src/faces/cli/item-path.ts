import { lstatSync } from 'node:fs';
import path from 'node:path';
import { RyeError } from '../../kernel/core/errors.ts';
import type { SignableType } from '../../kernel/core/ids.ts';
import type { Context, NamedItem } from './command.ts';
import { spaceFolders } from './session.ts';

/** The folder of each type below `.ai`. */
const TYPES: Readonly<Record<string, SignableType>> = {
  directives: 'directive',
  tools: 'tool',
  knowledge: 'knowledge',
  rules: 'rule',
  skills: 'skill',
  config: 'config',
};

/** The path of an item's file, as a shell completes it. */
const ITEM_PATH = /(?:^|\/)\.ai\/(?:directives|tools|knowledge|rules|skills|config)\/./;

/** A path that can be no ID. */
const PATH = /^(?:~|\.{1,2})?\//;

/**
 * Replaces the path of an item's file by what the command takes: the ID, after the type if the command names the type.
 * Throws `usage` for a file that is no item of this project, and for one of another type than the command works on.
 */
export function withItemPath(
  words: readonly string[],
  { index, type: wanted }: NamedItem & { readonly index: number },
  context: Context,
): readonly string[] {
  const folders = spaceFolders(context);
  for (const [at, word] of words.slice(0, index + 1).entries()) {
    if (!isPathLike(word, words[at - 1])) continue;
    const before = at === 0 ? undefined : words[at - 1]?.toLowerCase().replace(/s$/, '');
    const expected = wanted ?? before;
    const absolute = path.resolve(context.io.cwd, word);
    const item = itemAt(absolute, folders) ?? fileOfType(word, expected, folders);
    if (item === undefined) {
      if (PATH.test(word) || (/\.\w+$/.test(word) && (ITEM_PATH.test(word) || isFile(absolute))))
        throw noItem(word, absolute, { expected, folders, cwd: context.io.cwd });
      continue;
    }
    const { type, id } = item;
    if (expected !== undefined && expected !== type) {
      throw new RyeError('usage', `${word} is a ${type}, not a ${expected}`, {
        hint: 'Name a file of the type that the command works on.',
      });
    }
    const isAlone = at < index;
    return [...words.slice(0, at), ...(isAlone ? [type] : []), id, ...words.slice(at + 1)];
  }
  return words;
}

/** A thread has no file. */
function isPathLike(word: string, before: string | undefined): boolean {
  return /[/.]/.test(word) && before !== 'thread';
}

interface Item {
  readonly type: SignableType;
  readonly id: string;
}

/** Returns the item whose file has this path, also if there is none; undefined outside of the folders of items. */
function itemAt(absolute: string, folders: readonly string[]): Item | undefined {
  for (const folder of folders) {
    const [name = '', ...rest] = path.relative(path.join(folder, '.ai'), absolute).split(path.sep);
    const type = TYPES[name];
    if (type === undefined || rest.length === 0) continue;
    const last = rest.at(-1) ?? '';
    if (type === 'skill' && last === 'SKILL.md') return { type, id: rest.slice(0, -1).join('/') };
    const stem = last.slice(0, last.length - path.extname(last).length);
    return { type, id: [...rest.slice(0, -1), stem].join('/') };
  }
  return undefined;
}

/** Returns the item of a file that is named by its path below the folder of its type: `reports/weekly.md`. */
function fileOfType(
  word: string,
  type: string | undefined,
  folders: readonly string[],
): Item | undefined {
  const below = Object.keys(TYPES).find((name) => TYPES[name] === type);
  if (below === undefined || PATH.test(word)) return undefined;
  const found = folders
    .map((folder) => path.join(folder, '.ai', below, word))
    .find((file) => isFile(file));
  return found === undefined ? undefined : itemAt(found, folders);
}

function isFile(file: string): boolean {
  return lstatSync(file, { throwIfNoEntry: false })?.isFile() === true;
}

function noItem(
  word: string,
  absolute: string,
  {
    expected,
    folders: [folder = ''],
    cwd,
  }: {
    readonly expected: string | undefined;
    readonly folders: readonly string[];
    readonly cwd: string;
  },
): RyeError {
  const isElsewhere = ITEM_PATH.test(word);
  if (isElsewhere) {
    return new RyeError('usage', `${word} is not in this project`, {
      hint: 'Name its project: rye --project FOLDER …',
    });
  }
  if (!isFile(absolute)) {
    return new RyeError('file_not_found', `file not found: ${word}`, {
      hint: 'Give the ID of an item, or the path of its file below .ai.',
      details: { path: absolute },
    });
  }
  const type = expected ?? (path.extname(word) === '.md' ? 'directive' : 'tool');
  const below = Object.keys(TYPES).find((name) => TYPES[name] === type) ?? 'directives';
  const target = `${path.relative(cwd, path.join(folder, '.ai', below))}/`;
  return new RyeError('usage', `${word} is not an item: a ${type} is below .ai/${below}`, {
    hint: `Move it there: mkdir -p ${target} && mv ${word} ${target}`,
    details: { path: absolute },
  });
}
