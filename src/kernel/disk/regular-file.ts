import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { RyeError } from '../core/errors.ts';

/** Without O_NONBLOCK a named pipe would hang the program. */
const READ = constants.O_RDONLY | constants.O_NONBLOCK;

/** Opens a regular file for reading; throws `path_denied` for a pipe or a device, which may have no end. */
export function openRegularSync(path: string): number {
  const descriptor = openSync(path, READ);
  if (fstatSync(descriptor).isFile()) return descriptor;
  closeSync(descriptor);
  throw notRegular(path);
}

/** Like {@link openRegularSync}. */
export async function openRegular(path: string): Promise<FileHandle> {
  const handle = await open(path, READ);
  if ((await handle.stat()).isFile()) return handle;
  await handle.close();
  throw notRegular(path);
}

/** Reads a regular file whole. */
export function readRegular(path: string): Buffer {
  const descriptor = openRegularSync(path);
  try {
    return readFileSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function notRegular(path: string): RyeError {
  return new RyeError('path_denied', `${path} is not a regular file`, {
    hint: 'Remove it, then run the command again.',
    location: { path },
  });
}
