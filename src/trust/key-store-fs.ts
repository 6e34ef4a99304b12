import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readFileSync,
  type Stats,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { resourceError } from '../disk/reasons.ts';
import { createWhole, makeFolders, writeWhole } from '../disk/whole-file.ts';

const MAX_KEY_FILE_BYTES = 65_536;
const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;
const GROUP_AND_WORLD = 0o077;
const GROUP_AND_WORLD_WRITE = 0o022;

/** A small file that was read through one descriptor, with what the descriptor said about it. */
export interface KeyFile {
  readonly text: string;
  readonly stats: Stats;
}

/**
 * Reads a key file; undefined when it is not there. A symbolic link, anything but a regular file, one above
 * 64 KiB and one that cannot be read throw `key_unsafe`: what cannot be checked does not count as absent.
 */
export function readKeyFile(path: string): KeyFile | undefined {
  let descriptor: number;
  try {
    // asked at every check of a signature: much cheaper than an open that fails
    if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return undefined;
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    const code = systemCodeOf(error);
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw (
      resourceError(path, error) ??
      unsafe(
        path,
        code === 'ELOOP' ? 'it is a symbolic link' : `it cannot be opened (${code})`,
        error,
      )
    );
  }
  try {
    const stats = fstatSync(descriptor);
    if (!stats.isFile()) throw unsafe(path, 'it is not a regular file');
    if (stats.size > MAX_KEY_FILE_BYTES) throw unsafe(path, 'it is too large for a key file');
    return { text: readFileSync(descriptor, 'utf8'), stats };
  } finally {
    closeSync(descriptor);
  }
}

/** Reads a private key file, refusing one that the group or the world could read, or its folder. */
export function readPrivateFile(path: string): string | undefined {
  const file = readKeyFile(path);
  if (file === undefined) return undefined;
  if (process.platform !== 'win32') {
    if (file.stats.nlink > 1) throw unsafe(path, 'it has a second name elsewhere');
    assertPrivate(path, file.stats, FILE_MODE);
    assertPrivate(dirname(path), lstatSync(dirname(path)), DIRECTORY_MODE);
  }
  return file.text;
}

/**
 * Reads a file that says whom to trust; like {@link readKeyFile}, but refuses one that the group or the world could
 * have written, or put into its folder.
 */
export function readTrustFile(path: string): string | undefined {
  const file = readKeyFile(path);
  if (file === undefined) return undefined;
  if (process.platform !== 'win32') {
    for (const { mode } of [file.stats, lstatSync(dirname(path))]) {
      if ((mode & GROUP_AND_WORLD_WRITE) !== 0)
        throw unsafe(path, 'others can write it or its folder');
    }
  }
  return file.text;
}

function assertPrivate(path: string, stats: Stats, wanted: number): void {
  if (stats.isSymbolicLink()) throw unsafe(path, 'it is a symbolic link');
  if ((stats.mode & GROUP_AND_WORLD) === 0) return;
  const mode = (stats.mode & 0o777).toString(8).padStart(4, '0');
  throw new RyeError('key_unsafe', `others can reach the signing key: ${path} has mode ${mode}`, {
    hint: `Run: chmod ${wanted.toString(8)} ${path} (and rotate the key if somebody may have read it)`,
    details: { path, mode },
  });
}

function unsafe(path: string, why: string, cause?: unknown): RyeError {
  return new RyeError('key_unsafe', `the key file ${path} is refused: ${why}`, {
    hint: 'Key files are regular files of yours, mode 0600.',
    details: { path },
    cause,
  });
}

/** Creates a folder of the key store, reachable by its owner only from the start. */
export function makeKeyDirectory(path: string): void {
  makeFolders(path, DIRECTORY_MODE);
}

/** Creates a key file that must not exist yet, whole or not at all; false when it exists. */
export function createKeyFile(path: string, text: string): boolean {
  return createWhole(path, text, { mode: FILE_MODE });
}

/** Replaces or creates a key file atomically, mode 0600 from its creation; never through a symbolic link. */
export function writeKeyFile(path: string, text: string): void {
  if (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink()) {
    throw unsafe(path, 'it is a symbolic link');
  }
  writeWhole(path, text, { mode: FILE_MODE, follow: false });
}

/** Names of the `.toml` files in a folder without the extension, sorted; none when there is no folder. */
export function keyFileNames(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
      .filter((name) => name.endsWith('.toml'))
      .map((name) => name.slice(0, -'.toml'.length))
      .toSorted();
  } catch (error) {
    const code = systemCodeOf(error);
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw resourceError(folder, error) ?? unsafe(folder, `it cannot be listed (${code})`, error);
  }
}

/** Where a space keeps its keys. */
export function keyPaths(spacePath: string) {
  const root = join(spacePath, '.ai', 'config', 'keys');
  const signing = join(root, 'signing');
  return {
    signing,
    privateKey: join(signing, 'private_key.pem'),
    publicKey: join(signing, 'public_key.pem'),
    trusted: join(root, 'trusted'),
    revoked: join(root, 'revoked'),
    archive: join(root, 'archive'),
    trustedFile: (keyId: string) => join(root, 'trusted', `${keyId}.toml`),
    revokedFile: (keyId: string) => join(root, 'revoked', `${keyId}.toml`),
  };
}
