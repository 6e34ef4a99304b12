import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  linkSync,
  lstatSync,
  openSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import type { FileSyncer } from './measured-sync.ts';
import { diskReason, writeError } from './reasons.ts';
import { syncFolder, syncFolderBy, withOpen } from './sync-folder.ts';

/**
 * How much of a file has survived a power failure when its write returns: all of it, its content but perhaps not its
 * name, or perhaps nothing. `content` is for a file whose folder is synced later; `none` for one that can be rebuilt.
 */
export type FileSync = 'all' | 'content' | 'none';

export interface WholeFileOptions {
  /** Default: `all`. */
  readonly sync?: FileSync;
  /** Permissions of the file, also if it exists. Default: the existing file's permissions, else 0666 minus the umask. */
  readonly mode?: number;
  /** Follows a symbolic link at `path` and writes its target. Default: true; false replaces the link. */
  readonly follow?: boolean;
}

/** Names of unfinished files: hidden and without a known extension. */
export const UNFINISHED_FILE = /^\.rye-[0-9a-f]{16}\.tmp$/;

const LF = 0x0a;

/** An unfinished file, invisible under its name until `commit`. */
export interface StagedFile {
  write(content: string | Uint8Array): void;
  /**
   * Renames the file to its name: checks the size, syncs the file, renames it and syncs the folder. `create` never
   * replaces a file; returns false if there is one.
   */
  commit(how?: 'replace' | 'create'): boolean;
  /** Like `commit`, with syncs that may leave the main thread to others. Replaces an existing file. */
  commitBy(syncer: FileSyncer): Promise<void>;
  /** Removes the unfinished file. Does nothing after `commit`. */
  discard(): void;
}

/**
 * Starts a file that appears whole or not at all: it is written under another name in the same folder. Keeps the owner and
 * permissions of an existing file. Its other hard links keep the old content, because the rename creates a new file.
 * Throws system errors unchanged, so that callers can word them.
 */
export function stageFile(path: string, options: WholeFileOptions = {}): StagedFile {
  const { mode, follow = true, sync = 'all' } = options;
  const { target, existing } = targetOf(path, follow);
  const folder = dirname(target);
  if (existing?.isDirectory() === true) throw systemError('EISDIR', 'it is a folder');
  if (existing?.isFile() === false) throw systemError('ENOTSUP', 'it is not a regular file');
  const temporary = join(folder, `.rye-${randomBytes(8).toString('hex')}.tmp`);
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const flags = O_WRONLY | O_CREAT | O_EXCL | (O_NOFOLLOW ?? 0);
  // a private file is never open to others, not even before its permissions are set
  const fd = openSync(temporary, flags, mode ?? (existing ? 0o600 : 0o666));
  let size = 0;
  let state: 'open' | 'closed' | 'gone' = 'open';
  const discard = (): void => {
    if (state === 'gone') return;
    try {
      if (state === 'open') closeSync(fd);
    } finally {
      state = 'gone';
      rmSync(temporary, { force: true });
    }
  };
  const complete = (): void => {
    keepAttributes(fd, mode, existing);
    const held = fstatSync(fd).size;
    if (held !== size) throw systemError('EIO', `the disk holds ${held} of ${size} bytes`);
  };
  const close = (): void => {
    state = 'closed';
    // some file systems report a full disk only here
    closeSync(fd);
  };
  const finish = (how: 'replace' | 'create'): boolean => {
    complete();
    if (sync !== 'none') fsyncSync(fd);
    close();
    if (how === 'create') {
      const isNew = linkNew(temporary, target);
      discard();
      if (isNew && sync === 'all') syncRenamed(target);
      return isNew;
    }
    renameSync(temporary, target);
    state = 'gone';
    if (sync === 'all') syncRenamed(target);
    return true;
  };
  const finishBy = async (syncer: FileSyncer): Promise<void> => {
    complete();
    if (sync !== 'none') await syncer(fd);
    close();
    renameSync(temporary, target);
    state = 'gone';
    if (sync !== 'all') return;
    try {
      await syncFolderBy(dirname(target), syncer);
    } catch (error) {
      throw nameNotSynced(target, error);
    }
  };
  return {
    write: (content) => {
      size += orDiscard(discard, () => writeFully(fd, content));
    },
    commit: (how = 'replace') => orDiscard(discard, () => finish(how)),
    commitBy: async (syncer) => {
      try {
        await finishBy(syncer);
      } catch (error) {
        return orDiscard(discard, () => {
          throw error;
        });
      }
    },
    discard,
  };
}

/** Replaces or creates a file, whole and, unless `sync` is less, durably; a failure leaves the old file as it was. */
export function writeWhole(
  path: string,
  content: string | Uint8Array,
  options: WholeFileOptions & { readonly hint?: string } = {},
): void {
  try {
    const staged = stageFile(path, options);
    staged.write(content);
    staged.commit();
  } catch (error) {
    throw writeError(path, error, options.hint);
  }
}

/** Like {@link writeWhole}, with syncs that may leave the main thread to others. */
export async function writeWholeBy(
  syncer: FileSyncer,
  path: string,
  content: string | Uint8Array,
  options: WholeFileOptions & { readonly hint?: string } = {},
): Promise<void> {
  try {
    const staged = stageFile(path, options);
    staged.write(content);
    await staged.commitBy(syncer);
  } catch (error) {
    throw writeError(path, error, options.hint);
  }
}

/** Creates a file that must not exist yet, whole and durably; returns false if it exists. Of two writers one wins. */
export function createWhole(
  path: string,
  content: string | Uint8Array,
  options: { readonly mode?: number } = {},
): boolean {
  try {
    const staged = stageFile(path, { ...options, follow: false });
    staged.write(content);
    return staged.commit('create');
  } catch (error) {
    throw writeError(path, error);
  }
}

/** Writes a file that the user named. Writes directly to a pipe or a device, which has no old content to keep. */
export function writeOutput(
  path: string,
  content: string | Uint8Array,
  options: WholeFileOptions & { readonly hint?: string } = {},
): void {
  if (!isStream(path)) {
    writeWhole(path, content, options);
    return;
  }
  try {
    withOpen(path, constants.O_WRONLY, (fd) => void writeFully(fd, content));
  } catch (error) {
    throw writeError(path, error, options.hint);
  }
}

/** Refuses an unwritable target of {@link writeOutput} before its content is produced. */
export function assertWritable(path: string): void {
  try {
    if (!isStream(path)) stageFile(path).discard();
  } catch (error) {
    throw writeError(path, error);
  }
}

function isStream(path: string): boolean {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats !== undefined && !stats.isFile() && !stats.isDirectory();
}

/** Appends to a file; truncates a partial write if it fails. */
export function appendWhole(path: string, content: string): void {
  appendBy(path, constants.O_WRONLY, () => content);
}

/** Like {@link appendWhole}, after a line feed if the file ends within a line that a crash cut. */
export function appendLine(path: string, line: string): void {
  appendBy(path, constants.O_RDWR, (fd, size) => (endsLine(fd, size) ? line : `\n${line}`));
}

function appendBy(
  path: string,
  access: number,
  contentFor: (fd: number, size: number) => string,
): void {
  try {
    withOpen(path, access | constants.O_APPEND, (fd) => {
      const { size } = fstatSync(fd);
      try {
        writeFully(fd, contentFor(fd, size));
      } catch (error) {
        cutBack(fd, size);
        throw error;
      }
    });
  } catch (error) {
    throw writeError(path, error);
  }
}

function endsLine(fd: number, size: number): boolean {
  const last = Buffer.alloc(1);
  return size === 0 || (readSync(fd, last, 0, 1, size - 1) === 1 && last[0] === LF);
}

/** Writes all of `content` with as many `write` calls as needed; returns its length in bytes. */
export function writeFully(fd: number, content: string | Uint8Array): number {
  const bytes = typeof content === 'string' ? Buffer.from(content, 'utf8') : content;
  for (let done = 0; done < bytes.length; ) {
    const taken = writeSync(fd, bytes, done);
    // a disk that writes nothing and reports no error would loop forever
    if (taken === 0) throw systemError('EIO', 'the disk accepts no more bytes');
    done += taken;
  }
  return bytes.length;
}

/** Renames a file in its folder durably; does nothing if it does not exist. */
export function moveAside(path: string, to: string): void {
  try {
    renameSync(path, to);
    syncFolder(dirname(to));
  } catch (error) {
    if (systemCodeOf(error) !== 'ENOENT') throw writeError(path, error);
  }
}

/** Renames a folder to a name that is free or an empty folder; returns false if the name is taken. */
export function moveFolder(path: string, to: string): boolean {
  try {
    renameSync(path, to);
  } catch (error) {
    if (['ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes(systemCodeOf(error) ?? '')) return false;
    throw writeError(to, error);
  }
  syncRenamed(to);
  return true;
}

function syncRenamed(target: string): void {
  try {
    syncFolder(dirname(target));
  } catch (error) {
    throw nameNotSynced(target, error);
  }
}

function nameNotSynced(target: string, cause: unknown): RyeError {
  const reason = `its folder cannot be synced: ${diskReason(cause)}`;
  return new RyeError('storage_failed', `${target} is written, but ${reason}`, {
    hint: 'A power failure could restore the old file. Repair the disk.',
    details: { path: target },
    cause,
  });
}

/** Returns the file that a write replaces, with what it is now. Costs one `lstat` for a path that is no link. */
function targetOf(
  path: string,
  follow: boolean,
): { readonly target: string; readonly existing: Stats | undefined } {
  const named = lstatSync(path, { throwIfNoEntry: false });
  if (named?.isSymbolicLink() !== true) return { target: path, existing: named };
  const target = follow ? realTarget(path) : path;
  return { target, existing: statSync(target, { throwIfNoEntry: false }) };
}

/** Returns the target of a link; a dangling link is replaced. */
function realTarget(path: string): string {
  try {
    return realpathSync(path);
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return path;
    throw error;
  }
}

function keepAttributes(fd: number, mode: number | undefined, existing: Stats | undefined): void {
  if (existing && mode === undefined) {
    const own = fstatSync(fd);
    if (own.uid !== existing.uid || own.gid !== existing.gid) keepOwner(fd, existing);
  }
  const wanted = mode ?? existing?.mode;
  if (wanted !== undefined) fchmodSync(fd, wanted & 0o7777);
}

/** Keeps the owner if permitted: only an administrator can change the owner of a file. */
function keepOwner(fd: number, { uid, gid }: Stats): void {
  try {
    fchownSync(fd, uid, gid);
  } catch (error) {
    if (!['EPERM', 'EINVAL', 'ENOSYS'].includes(systemCodeOf(error) ?? '')) throw error;
  }
}

function linkNew(temporary: string, target: string): boolean {
  try {
    linkSync(temporary, target);
    return true;
  } catch (error) {
    if (systemCodeOf(error) === 'EEXIST') return false;
    throw error;
  }
}

function cutBack(fd: number, size: number): void {
  try {
    ftruncateSync(fd, size);
  } catch {
    // the first failure is the one to report
  }
}

function orDiscard<T>(discard: () => void, effect: () => T): T {
  try {
    return effect();
  } catch (error) {
    try {
      discard();
    } catch {
      // the first failure is the one to report
    }
    throw error;
  }
}

function systemError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}
