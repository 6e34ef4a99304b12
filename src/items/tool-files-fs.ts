import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { resourceError } from '../disk/reasons.ts';
import { sha256Hex } from '../trust/keys.ts';
import { toolMalformed } from './tool-metadata.ts';

const MAX_BYTES = 4 * 1024 * 1024;

/** A file that a tool's manifest pins, as it was when its hash was checked. */
export interface ToolFile {
  /** Relative to the manifest's folder, with forward slashes. */
  readonly name: string;
  readonly bytes: Uint8Array;
}

/**
 * Reads the files that a manifest pins by their SHA-256, which its signature covers. Where a path leads does not matter:
 * only the pinned bytes are taken. Throws `tool_malformed` for a file that cannot be read, `content_modified` for one
 * that is another.
 */
export function readToolFiles(
  manifestPath: string,
  files: Readonly<Record<string, string>>,
): readonly ToolFile[] {
  return Object.entries(files).map(([name, sha256]) => {
    const bytes = readBytes(manifestPath, name);
    if (sha256Hex(bytes) === sha256) return { name, bytes };
    throw new RyeError(
      'content_modified',
      `${name} is not the file that the manifest pins: its SHA-256 is ${sha256Hex(bytes)}`,
      {
        location: { path: manifestPath },
        hint: 'Review what changed, put the new hash into the manifest and sign it again.',
        details: { path: join(dirname(manifestPath), name) },
      },
    );
  });
}

function readBytes(manifestPath: string, name: string): Uint8Array {
  const unreadable = (why: string): RyeError =>
    toolMalformed(`the manifest pins ${name}, ${why}`, { path: manifestPath });
  let descriptor: number;
  try {
    // without O_NONBLOCK a FIFO would hang the program
    descriptor = openSync(
      join(dirname(manifestPath), name),
      constants.O_RDONLY | constants.O_NONBLOCK,
    );
  } catch (error) {
    throw (
      resourceError(manifestPath, error) ??
      unreadable(`which cannot be opened (${systemCodeOf(error) ?? 'unknown error'})`)
    );
  }
  try {
    const stats = fstatSync(descriptor);
    if (!stats.isFile() || stats.size > MAX_BYTES)
      throw unreadable('which is no regular file of at most 4 MiB');
    return readFileSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
