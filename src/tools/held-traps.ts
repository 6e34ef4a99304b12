import { randomBytes } from 'node:crypto';
import { lstatSync, mkdirSync, readdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { guardOf, newNameGuard } from './guarded-paths.ts';

/**
 * Remembers the names in the root of a project before a command runs. The returned function moves new ones that could be traps
 * to `.ai/state/held`, where nothing obeys them, and returns a sentence about them; undefined if there are none.
 */
export function holdNewTraps(projectPath: string): () => string | undefined {
  const before = new Set(judgedNames(projectPath));
  return () => {
    const traps = judgedNames(projectPath).filter(
      (name) => !before.has(name) && isTrap(join(projectPath, name), projectPath),
    );
    if (traps.length === 0) return undefined;
    const folder = join('.ai', 'state', 'held', randomBytes(4).toString('hex'));
    mkdirSync(join(projectPath, folder), { recursive: true, mode: 0o700 });
    for (const name of traps) {
      renameSync(join(projectPath, name), join(projectPath, folder, name.replace('/', '_')));
    }
    return `rye moved ${traps.map((name) => JSON.stringify(name)).join(', ')} to ${folder}: programs that a person starts may obey such a name in the root of a project. The directive needs the grant rye/file-system/guarded/traps to make it.`;
  };
}

function isTrap(path: string, root: string): boolean {
  const guard = guardOf(path, root, true) ?? newNameGuard(path, root, () => false);
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
