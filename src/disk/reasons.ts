import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';

const REASONS: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full (ENOSPC)',
  EDQUOT: 'the disk quota is used up (EDQUOT)',
  EFBIG: 'the file may not grow further (EFBIG)',
  EIO: 'the disk reports an error (EIO)',
  EROFS: 'the file system is read-only (EROFS)',
  EACCES: 'the operating system does not permit it (EACCES)',
  EPERM: 'the operating system does not permit it (EPERM)',
  ENOENT: 'its folder is missing (ENOENT)',
  ENOTDIR: 'a part of its path is a file, not a folder (ENOTDIR)',
  EISDIR: 'it is a folder (EISDIR)',
  ENOTSUP: 'it is not a regular file (ENOTSUP)',
  ENAMETOOLONG: 'its name is too long (ENAMETOOLONG)',
  EMFILE: 'this process has too many open files (EMFILE)',
  ENFILE: 'the system has too many open files (ENFILE)',
  ENOMEM: 'the system is out of memory (ENOMEM)',
};

/** The disk itself took no more, so that another try can succeed once there is room or the disk is repaired. */
const EXHAUSTED = new Set(['ENOSPC', 'EDQUOT', 'EFBIG', 'EIO']);

/** Returns one clause that says why the system refused an operation on a file, with the system's code. */
export function diskReason(error: unknown): string {
  const code = systemCodeOf(error);
  return REASONS[code ?? ''] ?? code ?? messageOf(error);
}

/** This process or the system has no more of something: nothing is wrong with the file. */
const RESOURCES = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']);

/**
 * The error of an operation that failed for lack of open files or memory, undefined if it failed for another reason. A file
 * that could not be looked at for that is neither absent nor unsafe.
 */
export function resourceError(path: string, error: unknown): RyeError | undefined {
  const system = systemCodeOf(error);
  if (system === undefined || !RESOURCES.has(system)) return undefined;
  return new RyeError('resource_exhausted', `cannot open ${path}: ${diskReason(error)}`, {
    hint: 'Close other programs or raise the limit (`ulimit -n` shows it), then repeat the command.',
    details: { path, system },
    cause: error,
  });
}

/**
 * The error of a write that failed: `storage_failed` if the disk is full or broken, `state_unwritable` if the system
 * does not permit the write. A RyeError passes through unchanged.
 */
export function writeError(path: string, error: unknown, hint?: string): RyeError {
  if (error instanceof RyeError) return error;
  const lack = resourceError(path, error);
  if (lack) return lack;
  const system = systemCodeOf(error);
  const isExhausted = EXHAUSTED.has(system ?? '');
  return new RyeError(
    isExhausted ? 'storage_failed' : 'state_unwritable',
    `cannot write ${path}: ${diskReason(error)}`,
    {
      hint:
        hint ??
        (isExhausted
          ? 'It was not changed. Free some space or repair the disk, then repeat the command.'
          : 'It was not changed. Check who owns it and its folder, and their permissions.'),
      details: { path, ...(system === undefined ? {} : { system }) },
      cause: error,
    },
  );
}
