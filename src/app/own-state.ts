import { realpathSync } from 'node:fs';
import { join, sep } from 'node:path';
import { RyeError } from '../core/errors.ts';

/** Folders below `.ai` that rye writes by itself. */
const WRITTEN = [
  'state',
  'state/threads',
  'knowledge',
  'knowledge/agent',
  'knowledge/agent/threads',
];

/**
 * Refuses with `path_denied` a project whose folders of state are links out of its `.ai`: a cloned repository must
 * not choose where rye writes.
 */
export function assertOwnState(projectPath: string): void {
  const root = join(projectPath, '.ai');
  const realRoot = realPath(root);
  if (realRoot === undefined) return;
  for (const name of WRITTEN) {
    const path = join(root, name);
    const real = realPath(path);
    if (real === undefined || real.startsWith(realRoot + sep)) continue;
    throw new RyeError('path_denied', `${path} is refused: it is a symbolic link out of ${root}`, {
      hint: 'Remove the link; rye makes the folder.',
    });
  }
}

function realPath(path: string): string | undefined {
  try {
    return realpathSync(path);
  } catch {
    return undefined; // it is not there yet
  }
}
