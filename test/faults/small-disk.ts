import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';

/** A disk that fills up: a small file system, or a limit on the size of files if this user may mount none. */
export interface SmallDisk {
  readonly folder: string;
  /** The system's error when the disk is full. */
  readonly code: 'ENOSPC' | 'EFBIG';
  /** From now on this much can be written. */
  leave(kib: number): void;
  /** The command line that runs a program on this disk. */
  command(argv: readonly string[]): readonly string[];
}

/** A small disk for the running test. `mounted: false` asks for the limit on the size of files. */
export function smallDisk(kib: number, { mounted = true } = {}): SmallDisk {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-small-')));
  onTestFinished(() => removeFolder(folder));
  const mount = ['-t', 'tmpfs', '-o', `size=${kib}k`, 'tmpfs', folder];
  if (!mounted || spawnSync('mount', mount).status !== 0) return limited(folder);
  onTestFinished(() => void spawnSync('umount', ['-l', folder]));
  const ballast = path.join(folder, 'ballast');
  return {
    folder,
    code: 'ENOSPC',
    leave: (left) => {
      rmSync(ballast, { force: true });
      const { bavail, bsize } = statfsSync(folder);
      writeFileSync(ballast, Buffer.alloc(Math.max(0, bavail * bsize - left * 1024)));
    },
    command: (argv) => argv,
  };
}

function limited(folder: string): SmallDisk {
  let limit = 'unlimited';
  mkdirSync(folder, { recursive: true });
  return {
    folder,
    code: 'EFBIG',
    leave: (left) => {
      limit = String(left);
    },
    command: (argv) => ['bash', '-c', `ulimit -f ${limit}; exec "$@"`, 'bash', ...argv],
  };
}
