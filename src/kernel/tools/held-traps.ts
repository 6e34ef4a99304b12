import { randomBytes } from 'node:crypto';
import { lstatSync, mkdirSync, readdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { guardOf, newNameGuard } from './guarded-paths.ts';

/**
 * Remembers the names in the root of a project before a command runs. The returned function moves new ones that could be traps
 * to `.ai/state/held` of `keptIn`, where nothing obeys them, and returns a sentence about them; undefined if there are none.
 * `keptIn` is the project itself, or that of a worktree, which is removed later.
 */
export function holdNewTraps(projectPath: string, keptIn: string): () => string | undefined {
  const before = new Map(judgedNames(projectPath).map((name) => [name, idOf(projectPath, name)]));
  return () => {
    const traps = judgedNames(projectPath).filter(
      (name) =>
        before.get(name) !== idOf(projectPath, name) && isTrap(projectPath, name, before.has(name)),
    );
    if (traps.length === 0) return undefined;
    const folder = join('.ai', 'state', 'held', randomBytes(4).toString('hex'));
    mkdirSync(join(keptIn, folder), { recursive: true, mode: 0o700 });
    for (const name of traps) {
      renameSync(join(projectPath, name), join(keptIn, folder, name.replace('/', '_')));
    }
    return `rye moved ${traps.map((name) => JSON.stringify(name)).join(', ')} to ${folder}: programs that a person starts may obey such a name in the root of a project. The directive needs the grant rye/file-system/guarded/traps to make it.`;
  };
}

/** Returns the traps that the root of a project has, but for git's own folder. */
export function presentTraps(projectPath: string): readonly string[] {
  return judgedNames(projectPath)
    .filter((name) => name !== '.git')
    .map((name) => join(projectPath, name))
    .filter((path) => guardOf(path, projectPath, true)?.kind === 'traps');
}

/** Tells a link from its replacement; a trap that is a file or folder cannot be replaced. */
function idOf(projectPath: string, name: string): string {
  const stats = lstatSync(join(projectPath, name), { throwIfNoEntry: false });
  return stats?.isSymbolicLink() === true ? `${stats.dev} ${stats.ino}` : 'no link';
}

/** `wasThere` is true for a name that the project had: a new one could be a trap that the table does not know. */
function isTrap(root: string, name: string, wasThere: boolean): boolean {
  const path = join(root, name);
  const known = guardOf(path, root, true);
  const guard = known ?? (wasThere ? undefined : newNameGuard(path, root, () => false));
  if (guard?.kind !== 'traps') return false;
  const stats = lstatSync(path, { throwIfNoEntry: false });
  // the place at which the sandbox of another command keeps a name away
  return stats !== undefined && !(stats.isFile() && stats.size === 0);
}

/** Folders that may be new, and whose entries are judged one by one. */
const JUDGED_FOLDERS = ['.github', '.gitlab', '.config'];

function judgedNames(root: string): readonly string[] {
  const below = JUDGED_FOLDERS.flatMap((folder) =>
    namesIn(join(root, folder)).map((name) => `${folder}/${name}`),
  );
  return [...namesIn(root), ...below];
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
