import {
  closeSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  lstatSync,
  openSync,
  readdirSync,
  readSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { RyeError, systemCodeOf } from '../../core/errors.ts';
import { makeFolders } from '../../disk/folders.ts';
import { stageFile, writeWhole } from '../../disk/whole-file.ts';
import { sha256Hex } from '../../log/checkpoint.ts';
import { measure } from '../../log/reader.ts';
import type { QuarantinedPart } from '../store.ts';
import { readChunksSync } from './log-archive.ts';

const NAME = /^transcript\.unverified-(\d+)(?:-(\d+))?\.jsonl$/;
const CHUNK_BYTES = 256 * 1024;

/**
 * Moves what follows the first `end` bytes of a log to `transcript.unverified-<end>.jsonl` beside it. The copy is on the
 * disk before the log is cut, so a crash in between loses nothing.
 */
export function quarantineTail(path: string, end: number): void {
  const folder = dirname(path);
  const fd = openSync(path, 'r+');
  try {
    if (fstatSync(fd).size <= end) return;
    copyTail(fd, end, freeName(folder, end));
    ftruncateSync(fd, end);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** Returns the parts that were taken off the log in this folder, by offset. */
export function quarantinedIn(folder: string): readonly QuarantinedPart[] {
  return namesIn(folder)
    .flatMap((file) => {
      const [, offset, count = '1'] = NAME.exec(file) ?? [];
      return offset === undefined ? [] : [{ file, offset: Number(offset), count: Number(count) }];
    })
    .toSorted((left, right) => left.offset - right.offset || left.count - right.count)
    .map(({ file, offset }) => ({ offset, ...measure(readChunksSync(join(folder, file))), file }));
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return [];
    throw error;
  }
}

function freeName(folder: string, end: number): string {
  const taken = new Set(namesIn(folder));
  let name = `transcript.unverified-${end}.jsonl`;
  for (let count = 2; taken.has(name); count += 1) {
    name = `transcript.unverified-${end}-${count}.jsonl`;
  }
  return join(folder, name);
}

function copyTail(from: number, start: number, path: string): void {
  const copy = stageFile(path, { mode: 0o600, follow: false });
  try {
    const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
    for (let at = start, count = -1; count !== 0; at += count) {
      count = readSync(from, buffer, 0, buffer.length, at);
      copy.write(buffer.subarray(0, count));
    }
    copy.commit();
  } finally {
    copy.discard();
  }
}

/**
 * Keeps a text that is too long for a line of the log at `path`, durably and by its hash, so that the same text is kept once.
 * Returns where it is, from the project's root.
 */
export function saveArtifact(path: string, threadId: string, text: string): string {
  const folder = join(dirname(path), 'artifacts');
  makeFolders(folder, 0o700);
  if (lstatSync(folder).isSymbolicLink()) {
    throw new RyeError('path_denied', `nothing is written to ${folder}: it is a symbolic link`, {
      hint: 'Remove the link; rye makes its own files and folders.',
      location: { path: folder },
    });
  }
  const name = `text-${sha256Hex(text).slice(0, 32)}.txt`;
  writeWhole(join(folder, name), text, { mode: 0o600, follow: false });
  return `.ai/state/threads/${threadId}/artifacts/${name}`;
}
