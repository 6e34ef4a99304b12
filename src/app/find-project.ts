import { existsSync, lstatSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

/**
 * The project: the nearest ancestor of `cwd` that holds `.ai/`, else `cwd` itself. The user space is never taken
 * for a project, although it holds `.ai/` too; nor is what somebody else put where everybody may put things, as in /tmp.
 */
export function findProject(
  cwd: string,
  userSpacePath: string,
  uid: number | undefined = process.getuid?.(),
): string {
  let folder = cwd;
  for (;;) {
    const holds = folder !== userSpacePath && existsSync(join(folder, '.ai'));
    if (holds && (folder === cwd || !isPlanted(folder, uid))) return folder;
    const parent = dirname(folder);
    if (parent === folder) return cwd;
    folder = parent;
  }
}

const WORLD_WRITABLE = 0o002;

function isPlanted(folder: string, uid: number | undefined): boolean {
  if (uid === undefined || (statSync(folder).mode & WORLD_WRITABLE) === 0) return false;
  return lstatSync(join(folder, '.ai')).uid !== uid;
}
