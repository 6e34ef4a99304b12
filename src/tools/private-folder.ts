import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { killGuard } from './kill-guard.ts';

/** A folder that only this user may enter, and that goes with this process however it ends. */
export interface PrivateFolder {
  readonly path: string;
  remove(): Promise<void>;
}

/** Makes a folder whose name begins with `rye-<purpose>-`, below the temporary folder unless another root is given. */
export async function makePrivateFolder(
  purpose: string,
  root: string = tmpdir(),
): Promise<PrivateFolder> {
  const path = await mkdtemp(join(root, `rye-${purpose}-`));
  killGuard.holdFolder(path);
  return {
    path,
    remove: async () => {
      await rm(path, { recursive: true, force: true });
      killGuard.releaseFolder(path);
    },
  };
}
