import { lstatSync, readFileSync } from 'node:fs';
import { join, sep } from 'node:path';
import { createWhole } from './whole-file.ts';

/** Folders below `.ai` with the state of threads, and their exports with prompts and tool output. */
export const PRIVATE_FOLDERS = ['state', 'knowledge/agent/threads'] as const;

const KEY_FOLDERS = ['config/keys/signing', 'config/keys/archive'] as const;

const TEXT = `# rye wrote this file: what it names stays on this machine. To share it, such as with the exports of threads,
# delete its line below. rye does not change the file again.
/.gitignore
${[...PRIVATE_FOLDERS, ...KEY_FOLDERS].map((folder) => `/${folder}/`).join('\n')}
/.env
`;

const NAMES = [...PRIVATE_FOLDERS, ...KEY_FOLDERS].map((name) => name.replaceAll('/', `\\${sep}`));
const PRIVATE = new RegExp(`^(.*\\${sep}\\.ai)\\${sep}(${NAMES.join('|')})(?=\\${sep}|$)`);

const MAX_BYTES = 65_536;

/**
 * Keeps a folder that was just created out of git, if rye alone writes it: with the `.gitignore` of its `.ai`. One that is
 * there already is a person's: if it does not name the folder, the folder gets its own. `first` is the first folder of
 * `path` that is new.
 */
export function ignorePrivate(path: string, first: string): void {
  const [folder, root, name] = PRIVATE.exec(path) ?? [];
  if (folder === undefined || root === undefined || first.length > folder.length) return;
  if (!create(join(root, '.gitignore'), TEXT) && !isNamed(join(root, '.gitignore'), name ?? ''))
    create(join(folder, '.gitignore'), '*\n');
}

/** False if there is anything of this name, also a link: nothing is written through it. */
function create(path: string, text: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) === undefined && createWhole(path, text);
}

function isNamed(path: string, name: string): boolean {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats?.isFile() !== true || stats.size > MAX_BYTES) return false;
  const last = name.slice(name.lastIndexOf(sep) + 1);
  return readFileSync(path, 'utf8')
    .split('\n')
    .some((line) => line.trim() === '*' || (!line.startsWith('#') && line.includes(last)));
}
