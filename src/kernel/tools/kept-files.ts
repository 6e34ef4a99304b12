import { createHash } from 'node:crypto';
import { type FileHandle, lstat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { FileState, KeepFile } from '../core/file-change.ts';
import { diskReason } from '../disk/reasons.ts';
import { type ConfinedPath, shownPath } from './paths.ts';
import type { ToolContext } from './tool.ts';

/** A file before a tool changes it. */
export interface FileBefore {
  readonly state: FileState;
  /** Absent for a file that is too large to copy. */
  readonly bytes?: Uint8Array;
}

/** A write that a tool is about to make. */
export interface IntendedWrite {
  readonly path: ConfinedPath;
  /** undefined: the file is new. */
  readonly before: FileBefore | undefined;
  readonly content: string;
}

/** Keeps what a file has before a tool writes it, so that the write can be undone. */
export async function keepBefore(
  keep: KeepFile | undefined,
  { callId, signal }: ToolContext,
  { path, before, content }: IntendedWrite,
): Promise<void> {
  if (!keep) return;
  const made = before ? [] : await missingFolders(path);
  const mode = before?.state.mode;
  const change = {
    path: path.shown,
    before: before?.state ?? null,
    after: {
      sha256: sha256(content),
      bytes: Buffer.byteLength(content),
      ...(mode === undefined ? {} : { mode }),
    },
    ...(made.length === 0 ? {} : { made }),
    ...(before && !before.bytes ? { unkept: 'the file is too large' } : {}),
  };
  try {
    await keep(callId, change, before?.bytes);
  } catch (error) {
    if (error instanceof RyeError && error.code === 'log_write_failed') throw error;
    throw new RyeError(
      'tool_failed',
      `${JSON.stringify(path.shown)} was not written: its old content could not be kept for an undo: ${diskReason(error)}`,
      { cause: error },
    );
  }
  if (signal.aborted) throw new RyeError('cancelled', 'the write was cancelled');
}

/** Returns the folders that a write of a path will make, the outermost first. */
export async function missingFolders({ real, project }: ConfinedPath): Promise<readonly string[]> {
  const missing: string[] = [];
  for (let folder = dirname(real); folder !== dirname(folder); folder = dirname(folder)) {
    const isThere = await lstat(folder).then(
      () => true,
      () => false,
    );
    if (isThere) break;
    missing.unshift(folder);
  }
  return missing.map((folder) => shownPath(folder, project));
}

/** Returns the SHA-256 of a content as hex. */
export function sha256(content: string | Uint8Array): string {
  return createHash('sha256').update(content).digest('hex');
}

/** Returns the SHA-256 of an open file as hex, in constant memory. */
export async function hashOf(handle: FileHandle): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of handle.createReadStream({ start: 0, autoClose: false })) {
    hash.update(chunk as Buffer);
  }
  return hash.digest('hex');
}
