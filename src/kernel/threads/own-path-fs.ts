import { lstatSync, type Stats } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { RyeError } from '../core/errors.ts';

/**
 * Refuses with `path_denied` to write through a symbolic link below `root`: a folder from a cloned project must not
 * choose which file rye writes.
 */
export function assertOwnPath(root: string, path: string): void {
  let current = root;
  for (const part of relative(root, path).split(sep)) {
    current = join(current, part);
    const stats = statsOf(current);
    if (stats === undefined) return;
    if (!stats.isSymbolicLink()) continue;
    throw new RyeError('path_denied', `${path} is not written: ${current} is a symbolic link`, {
      hint: 'Remove the link; rye makes its own files and folders.',
      location: { path: current },
    });
  }
}

/** Undefined for what cannot be looked at: the write fails with its reason. */
function statsOf(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch {
    return undefined;
  }
}
