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
import { makeFolders } from '../disk/folders.ts';
import { resourceError } from '../disk/reasons.ts';
import { createWhole, writeWhole } from '../disk/whole-file.ts';

const MAX_KEY_FILE_BYTES = 65_536;
const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;
const GROUP_AND_WORLD = 0o077;
const GROUP_AND_WORLD_WRITE = 0o022;

/** A small file read through one descriptor, with the descriptor's stats. */
export interface KeyFile {
  readonly text: string;
  readonly stats: Stats;
}

/**
 * Reads a key file; undefined if it does not exist. Throws `key_unsafe` for a symbolic link, anything but a regular file,
 * more than 64 KiB and an unreadable file: a file that cannot be checked does not count as absent.
 */
export function readKeyFile(path: string): KeyFile | undefined {
  let descriptor: number;
  try {
    // runs for every check of a signature; much cheaper than a failing open
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

/** Reads a private key file; refuses it if the group or others can access it or its folder. */
export function readPrivateFile(path: string): string | undefined {
  const file = readKeyFile(path);
  if (file === undefined) return undefined;
  if (process.platform !== 'win32') {
    if (file.stats.nlink > 1) throw unsafe(path, 'it has another hard link');
    assertPrivate(path, file.stats, FILE_MODE);
    assertPrivate(dirname(path), lstatSync(dirname(path)), DIRECTORY_MODE);
  }
  return file.text;
}

/**
 * Reads a trusted key's file like {@link readKeyFile}; refuses it if the group or others can write to it or its folder.
 */
export function readTrustFile(path: string): string | undefined {
  const file = readKeyFile(path);
  if (file === undefined) return undefined;
  if (process.platform !== 'win32') {
    for (const { mode } of [file.stats, lstatSync(dirname(path))]) {
      if ((mode & GROUP_AND_WORLD_WRITE) !== 0)
        throw unsafe(path, 'others can write to it or its folder');
    }
  }
  return file.text;
}

function assertPrivate(path: string, stats: Stats, expected: number): void {
  if (stats.isSymbolicLink()) throw unsafe(path, 'it is a symbolic link');
  if ((stats.mode & GROUP_AND_WORLD) === 0) return;
  const mode = (stats.mode & 0o777).toString(8).padStart(4, '0');
  throw new RyeError('key_unsafe', `others can access the signing key: ${path} has mode ${mode}`, {
    hint: `Run: chmod ${expected.toString(8)} ${path} (and rotate the key if others may have read it)`,
    details: { path, mode },
  });
}

function unsafe(path: string, why: string, cause?: unknown): RyeError {
  return new RyeError('key_unsafe', `the key file ${path} is refused: ${why}`, {
    hint: 'Key files must be regular files that you own, with mode 0600.',
    details: { path },
    cause,
  });
}

/** Creates a folder of the key store that only its owner can access from the start. */
export function makeKeyDirectory(path: string): void {
  try {
    makeFolders(path, DIRECTORY_MODE);
  } catch (error) {
    if (!(error instanceof RyeError) || error.code !== 'state_unwritable') throw error;
    throw new RyeError(error.code, error.message, {
      hint: 'Set HOME or RYE_USER_SPACE to a folder that you can write to.',
      details: error.details,
      cause: error,
    });
  }
}

/** Creates a key file atomically; false if it already exists. */
export function createKeyFile(path: string, text: string): boolean {
  return createWhole(path, text, { mode: FILE_MODE });
}

/** Replaces or creates a key file atomically with mode 0600 from its creation; never through a symbolic link. */
export function writeKeyFile(path: string, text: string): void {
  if (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink()) {
    throw unsafe(path, 'it is a symbolic link');
  }
  writeWhole(path, text, { mode: FILE_MODE, follow: false });
}

/**
 * Reads a statement that a project brings along. What is not a plain small file counts as absent, because the project
 * could leave it out as well.
 */
export function readStatement(path: string): string | undefined {
  try {
    return readKeyFile(path)?.text;
  } catch (error) {
    if (error instanceof RyeError && error.code === 'key_unsafe') return undefined;
    throw error;
  }
}

/** Returns the sorted names of the `.toml` files in a folder without extension; none if the folder is missing. */
export function keyFileNames(folder: string): readonly string[] {
  try {
    // much cheaper than a failing listing
    if (lstatSync(folder, { throwIfNoEntry: false }) === undefined) return [];
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

/** Returns the paths of a space's keys. */
export function keyPaths(spacePath: string) {
  const root = join(spacePath, '.ai', 'config', 'keys');
  const signing = join(root, 'signing');
  return {
    signing,
    privateKey: join(signing, 'private_key.pem'),
    publicKey: join(signing, 'public_key.pem'),
    /** Names the key of ssh-agent; it is in place of a private key. */
    agentKey: join(signing, 'agent_key'),
    trusted: join(root, 'trusted'),
    revoked: join(root, 'revoked'),
    rotated: join(root, 'rotated'),
    untrusted: join(root, 'untrusted'),
    certified: join(root, 'certified'),
    fleet: join(root, 'fleet'),
    archive: join(root, 'archive'),
    trustedFile: (keyId: string) => join(root, 'trusted', `${keyId}.toml`),
    revokedFile: (keyId: string) => join(root, 'revoked', `${keyId}.toml`),
    rotatedFile: (keyId: string) => join(root, 'rotated', `${keyId}.toml`),
    untrustedFile: (keyId: string) => join(root, 'untrusted', `${keyId}.toml`),
    certifiedFile: (keyId: string) => join(root, 'certified', `${keyId}.toml`),
    fleetFile: (keyId: string) => join(root, 'fleet', `${keyId}.pem`),
  };
}
