import path from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { SignableType } from '../core/ids.ts';
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

/** True if the words may hold the path of an item's file. */
export function holdsItemPath(words: readonly string[]): boolean {
  return words.some((word) => ITEM_PATH.test(word));
}

/**
 * Replaces the path of an item's file by what the command takes: the ID, after the type if the command names the type.
 * Throws `usage` for a file of another project, and for one of another type than the command works on.
 */
export function withItemPath(
  words: readonly string[],
  { index, type: wanted }: NamedItem & { readonly index: number },
  context: Context,
): readonly string[] {
  const at = words.findIndex((word, position) => position <= index && ITEM_PATH.test(word));
  const word = words[at];
  if (word === undefined) return words;
  const { type, id } = itemOf(word, context);
  const before = at === 0 ? undefined : words[at - 1]?.toLowerCase();
  const expected = wanted ?? before;
  if (expected !== undefined && expected !== type && expected !== `${type}s`) {
    throw new RyeError('usage', `${word} is a ${type}, not a ${expected}`, {
      hint: 'Name a file of the type that the command works on.',
    });
  }
  const isAlone = at < index;
  return [...words.slice(0, at), ...(isAlone ? [type] : []), id, ...words.slice(at + 1)];
}

function itemOf(word: string, context: Context): { readonly type: SignableType; id: string } {
  const absolute = path.resolve(context.io.cwd, word);
  for (const folder of spaceFolders(context)) {
    const [name = '', ...rest] = path.relative(path.join(folder, '.ai'), absolute).split(path.sep);
    const type = TYPES[name];
    if (type === undefined || rest.length === 0) continue;
    const last = rest.at(-1) ?? '';
    if (type === 'skill' && last === 'SKILL.md') return { type, id: rest.slice(0, -1).join('/') };
    const stem = last.slice(0, last.length - path.extname(last).length);
    return { type, id: [...rest.slice(0, -1), stem].join('/') };
  }
  throw new RyeError('usage', `${word} is not in this project`, {
    hint: 'Name its project: rye --project FOLDER …',
  });
}
