import { lstat } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { RyeError } from '../core/errors.ts';

/**
 * Refuses with `path_denied` to write where a link below `root` leads elsewhere: a folder that came with a cloned
 * project must not choose which file rye writes.
 */
export async function assertOwnPath(root: string, path: string): Promise<void> {
  let current = root;
  for (const part of relative(root, path).split(sep)) {
    current = join(current, part);
    const stats = await lstat(current).catch(() => undefined);
    if (stats === undefined) return;
    if (!stats.isSymbolicLink()) continue;
    throw new RyeError('path_denied', `${path} is not written: ${current} is a symbolic link`, {
      hint: 'Remove the link; rye makes its own files and folders.',
      location: { path: current },
    });
  }
}
