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

/** Codes of a full or broken disk: a retry can succeed after it has room or is repaired. */
const EXHAUSTED = new Set(['ENOSPC', 'EDQUOT', 'EFBIG', 'EIO']);

/** Returns a clause that explains a failed file operation, with the system's code. */
export function diskReason(error: unknown): string {
  const code = systemCodeOf(error);
  return REASONS[code ?? ''] ?? code ?? messageOf(error);
}

/** Codes of missing resources, which are not a problem of the file. */
const RESOURCES = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']);

/**
 * Returns the error of an operation that failed for lack of file descriptors or memory; undefined for other failures. Such
 * a file is neither absent nor unsafe.
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
 * Returns the error of a failed write: `storage_failed` if the disk is full or broken, `state_unwritable` if the system
 * denies the write. Returns a RyeError unchanged.
 */
export function writeError(path: string, error: unknown, hint?: string): RyeError {
  if (error instanceof RyeError) return error;
  const resource = resourceError(path, error);
  if (resource) return resource;
  const system = systemCodeOf(error);
  const isExhausted = EXHAUSTED.has(system ?? '');
  return new RyeError(
    isExhausted ? 'storage_failed' : 'state_unwritable',
    `cannot write ${path}: ${diskReason(error)}`,
    {
      hint:
        hint ??
        (isExhausted
          ? 'The file is unchanged. Free some space or repair the disk, then repeat the command.'
          : 'The file is unchanged. Check the owner and permissions of it and its folder.'),
      details: { path, ...(system === undefined ? {} : { system }) },
      cause: error,
    },
  );
}
