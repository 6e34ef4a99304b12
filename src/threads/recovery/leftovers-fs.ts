import { readdir, rmdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { systemCodeOf } from '../../core/errors.ts';
import { UNFINISHED_FILE } from '../../disk/whole-file.ts';

/** Half-written files, and what was left for a process that never took it: it may hold secrets. */
const LEFTOVER =
  /^(?:handover\.json|(?:handover\.json|thread\.json|plan\.json|capabilities\.md)\..+|\.lease-\d+-[0-9a-f]+)$/;

/** Removes what a process that died was about to write to a thread's folder, and the folder where nothing else is in it. */
export async function removeLeftovers(folder: string): Promise<void> {
  try {
    const names = await readdir(folder);
    for (const name of names) {
      if (LEFTOVER.test(name) || UNFINISHED_FILE.test(name)) await unlink(join(folder, name));
    }
    await rmdir(folder);
  } catch (error) {
    const code = systemCodeOf(error);
    // the folder holds the thread's files, or those of a thread whose id begins with this one
    if (code !== 'ENOENT' && code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
  }
}
