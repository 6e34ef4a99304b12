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
  mkdirSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { diskReason, writeError } from './reasons.ts';

export interface WholeFileOptions {
  /** Permissions of the file, also if it exists. Default: those of the existing file, or what the umask leaves of 0666. */
  readonly mode?: number;
  /** Follows a symbolic link at `path` and writes the file that it names. Default: true; false replaces the link. */
  readonly follow?: boolean;
}

/** Names of unfinished files: hidden, and without an ending that any reader of a folder looks for. */
export const UNFINISHED_FILE = /^\.rye-[0-9a-f]{16}\.tmp$/;

/** A file in the making. Nothing is under its name until `commit`. */
export interface StagedFile {
  write(content: string | Uint8Array): void;
  /**
   * Puts the file under its name, durably: it checks the size, syncs the file, renames it and syncs the folder. With
   * `create` it never replaces a file; returns false if there is one.
   */
  commit(how?: 'replace' | 'create'): boolean;
  /** Removes what was written. Does nothing after `commit`. */
  discard(): void;
}

/**
 * Begins a file that appears whole or not at all: it is written under another name in the same folder. An existing file
 * keeps its owner and permissions. Other hard links of it keep the old content, because a rename gives the name to a
 * new file. Throws system errors as they are, so that callers can word them.
 */
export function stageFile(path: string, options: WholeFileOptions = {}): StagedFile {
  const { mode, follow = true } = options;
  const target = follow ? realTarget(path) : path;
  const folder = dirname(target);
  const existing = statSync(target, { throwIfNoEntry: false });
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
  const finish = (how: 'replace' | 'create'): boolean => {
    keepAttributes(fd, mode, existing);
    const held = fstatSync(fd).size;
    if (held !== size) throw systemError('EIO', `the disk holds ${held} of ${size} bytes`);
    fsyncSync(fd);
    state = 'closed';
    // some file systems report a full disk only here
    closeSync(fd);
    if (how === 'create') {
      const isNew = linkNew(temporary, target);
      discard();
      if (isNew) syncRenamed(target);
      return isNew;
    }
    renameSync(temporary, target);
    state = 'gone';
    syncRenamed(target);
    return true;
  };
  return {
    write: (content) => {
      size += orDiscard(discard, () => writeFully(fd, content));
    },
    commit: (how = 'replace') => orDiscard(discard, () => finish(how)),
    discard,
  };
}

/** Replaces or creates a file, whole and durably; a failure leaves the old file as it was. */
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

/** Writes a file that a person named. A pipe or a device takes the bytes as they come: it has no old content to keep. */
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
    withOpen(path, constants.O_WRONLY, (fd) => writeFully(fd, content));
  } catch (error) {
    throw writeError(path, error, options.hint);
  }
}

/** Refuses a target of {@link writeOutput} that can't be written, before anything is spent on what is to go into it. */
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

/** Appends to a file; takes a half-written part off again if the write fails. */
export function appendWhole(path: string, content: string): void {
  try {
    withOpen(path, constants.O_WRONLY | constants.O_APPEND, (fd) => {
      const { size } = fstatSync(fd);
      try {
        writeFully(fd, content);
      } catch (error) {
        cutBack(fd, size);
        throw error;
      }
    });
  } catch (error) {
    throw writeError(path, error);
  }
}

/** Writes all of `content` at the end of what was written; returns its length in bytes. One `write` may take only a part. */
export function writeFully(fd: number, content: string | Uint8Array): number {
  const bytes = typeof content === 'string' ? Buffer.from(content, 'utf8') : content;
  for (let done = 0; done < bytes.length; ) {
    const taken = writeSync(fd, bytes, done);
    // without this a disk that takes nothing and reports no error would be asked for ever
    if (taken === 0) throw systemError('EIO', 'the disk takes no more bytes');
    done += taken;
  }
  return bytes.length;
}

/** Gives a file another name in its folder, durably; does nothing if there is none. */
export function moveAside(path: string, to: string): void {
  try {
    renameSync(path, to);
    syncFolder(dirname(to));
  } catch (error) {
    if (systemCodeOf(error) !== 'ENOENT') throw writeError(path, error);
  }
}

/** Makes a folder and what is missing above it, durably. */
export function makeFolders(path: string, mode?: number): void {
  const wanted = resolve(path);
  try {
    const first = mkdirSync(wanted, { recursive: true, ...(mode === undefined ? {} : { mode }) });
    if (first === undefined) return;
    for (let made = wanted; made.length >= first.length; made = dirname(made)) {
      syncFolder(dirname(made));
      if (made === dirname(made)) return;
    }
  } catch (error) {
    throw writeError(path, error);
  }
}

/** A file's name survives a power cut only once its folder is on the disk too. */
export function syncFolder(folder: string): void {
  // Windows opens no folder
  if (process.platform === 'win32') return;
  try {
    withOpen(folder, constants.O_RDONLY, fsyncSync);
  } catch (error) {
    // a folder that may be written but not read can't be opened, and some file systems sync no folder
    if (!['EACCES', 'EPERM', 'EINVAL', 'ENOTSUP'].includes(systemCodeOf(error) ?? '')) throw error;
  }
}

function syncRenamed(target: string): void {
  try {
    syncFolder(dirname(target));
  } catch (error) {
    const reason = `its folder cannot be synced: ${diskReason(error)}`;
    throw new RyeError('storage_failed', `${target} is written, but ${reason}`, {
      hint: 'A power cut could bring the old file back. Repair the disk.',
      details: { path: target },
      cause: error,
    });
  }
}

/** A link that leads nowhere is replaced. */
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

/** Only an administrator may give a file to others; anyone else's file becomes the writer's own. */
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

function withOpen(path: string, flags: number, use: (fd: number) => unknown): void {
  const fd = openSync(path, flags);
  try {
    use(fd);
  } finally {
    closeSync(fd);
  }
}

function systemError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}
