import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { systemCodeOf } from '../../core/errors.ts';
import { isRecord, parseJson } from '../../core/json.ts';
import { openRegularSync } from '../../disk/regular-file.ts';
import { writeWhole } from '../../disk/whole-file.ts';
import { decodeHeader, decodeLine, upgradeFrom } from '../../log/codec.ts';
import type { OpenedLog } from '../../log/reader.ts';
import { eachLine, lineStartAfter, lineStartBefore, scanNow } from '../../log/scanner.ts';
import { buildTree, type TreeEntry } from '../../log/tree.ts';

/** A log as long as this gets an index: a shorter one is read whole in less time than anybody notices. */
const INDEXED_BYTES = 4 * 1024 * 1024;
/** Bytes after the indexed part that are searched without it; beyond these and an eighth of the log, it is rebuilt. */
const TAIL_BYTES = 1024 * 1024;
const TAIL_SHARE = 8;
const KEY_BYTES = 16;
const RECORD_BYTES = KEY_BYTES + 8;
/** Records with one key that are looked at: ids that begin alike for so long are not rye's. */
const MAX_SAME_KEY = 16;
const HEAD_BYTES = 4096;
const SAMPLE_BYTES = 4096;
const BLOCK_BYTES = 64 * 1024;

/** The result of a look-up. `stale`: no index fits the log. */
export type Lookup = TreeEntry | 'absent' | 'stale';

function indexPath(path: string): string {
  return join(dirname(path), 'transcript.index');
}

/**
 * Finds the entry with exactly this id through the index beside a large log. The index is only a hint: the line
 * must be the entry, and its parent must come before it. Never throws for the content of an index or a log.
 */
export function lookUpByIndex(path: string, threadId: string, id: string): Lookup {
  const files: number[] = [];
  try {
    const log = openRegularSync(path);
    files.push(log);
    const { size } = fstatSync(log);
    if (size < INDEXED_BYTES) return 'absent';
    const index = openSync(indexPath(path), READ_NO_LINK);
    files.push(index);
    const head = headOf(index, threadId);
    if (!head || !fits(head, { log, size, threadId })) return 'stale';
    return new IndexedLog({ log, size, index, head, threadId }).entry(id);
  } catch (error) {
    if (systemCodeOf(error) === undefined) throw error;
    return 'stale';
  } finally {
    for (const file of files) closeSync(file);
  }
}

/** A named pipe in its place must not keep anybody waiting. */
const READ_NO_LINK = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** The first line of an index. */
interface Head {
  /** Length of the part of the log that is indexed, up to a line's end. */
  readonly bytes: number;
  readonly entries: number;
  /** Fingerprint of that part. */
  readonly sha256: string;
  /** Offset of the first record. */
  readonly start: number;
}

function headOf(index: number, threadId: string): Head | undefined {
  const stats = fstatSync(index);
  if (!stats.isFile()) return undefined;
  const text = bytesAt(index, 0, HEAD_BYTES);
  const start = lineStartAfter(text, 0);
  const head = start === 0 ? undefined : parseJson(text.toString('utf8', 0, start));
  if (!isRecord(head) || head['version'] !== 1 || head['thread_id'] !== threadId) return undefined;
  const { bytes, entries, sha256 } = head;
  if (!isCount(bytes) || !isCount(entries) || typeof sha256 !== 'string') return undefined;
  return stats.size === start + entries * RECORD_BYTES
    ? { bytes, entries, sha256, start }
    : undefined;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** True where the log is the thread's, of today's version, begins as the indexed one did and is not much longer. */
function fits(
  { bytes, sha256 }: Head,
  {
    log,
    size,
    threadId,
  }: { readonly log: number; readonly size: number; readonly threadId: string },
): boolean {
  if (bytes > size || size - bytes > Math.max(TAIL_BYTES, bytes / TAIL_SHARE)) return false;
  const first = lineAt(log, 0);
  const decoded = decodeHeader(first ?? '');
  if ('problem' in decoded || decoded.header.thread_id !== threadId) return false;
  return upgradeFrom(decoded.header.version) === undefined && fingerprint(log, bytes) === sha256;
}

/** SHA-256 in hex of the first and the last indexed bytes, which tells a replaced log from the indexed one. */
function fingerprint(log: number, bytes: number): string | undefined {
  const length = Math.min(SAMPLE_BYTES, bytes);
  const last = bytesAt(log, bytes - length, length);
  if (length === 0 || lineStartBefore(last, last.length) < length) return undefined;
  return createHash('sha256')
    .update(bytesAt(log, 0, length))
    .update(last)
    .digest('hex');
}

/** The bytes that are there, at most `length`. */
function bytesAt(file: number, position: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  return bytes.subarray(0, readSync(file, bytes, 0, length, position));
}

/** The line that starts at `position`, without its line feed; undefined where it has none within what a line may have. */
function lineAt(log: number, position: number): string | undefined {
  let line: string | undefined;
  scanNow(blocks(log, position), {
    lines(run) {
      line = run.toString('utf8', 0, lineStartAfter(run, 0) - 1);
      return false;
    },
    oversized: () => false,
  });
  return line;
}

/** The bytes of a file from `from` to `end`, in blocks. */
function* blocks(
  file: number,
  from: number,
  end = Number.POSITIVE_INFINITY,
): Generator<Buffer, void, undefined> {
  for (let at = from; at < end; ) {
    const block = bytesAt(file, at, BLOCK_BYTES);
    if (block.length === 0) return;
    yield block;
    at += block.length;
  }
}

/** The first bytes of an id, filled up with zeros. */
function keyOf(id: string): Buffer {
  const key = Buffer.alloc(KEY_BYTES);
  key.write(id);
  return key;
}

interface IndexedParts {
  readonly log: number;
  readonly size: number;
  readonly index: number;
  readonly head: Head;
  readonly threadId: string;
}

class IndexedLog {
  readonly #parts: IndexedParts;

  constructor(parts: IndexedParts) {
    this.#parts = parts;
  }

  entry(id: string): Lookup {
    const found = this.#find(id);
    // an index that leads elsewhere is as good as none
    if (found === 'stale') return 'stale';
    if (!found) return 'absent';
    const { parent_id: parent = null } = found.event;
    const before = parent === null ? undefined : this.#find(parent);
    const isPlaced = typeof before === 'object' && before.offset < found.offset;
    if (parent !== null && !isPlaced) return 'absent';
    return { ...found.event, id, parent_id: parent };
  }

  #find(id: string): PlacedEntry | 'stale' | undefined {
    return this.#indexed(id) ?? this.#inTail(id);
  }

  #indexed(id: string): PlacedEntry | 'stale' | undefined {
    const key = keyOf(id);
    const { entries } = this.#parts.head;
    let at = this.#firstNotBelow(key);
    const last = Math.min(at + MAX_SAME_KEY, entries);
    const isLong = Buffer.byteLength(id) > KEY_BYTES;
    for (; at < last; at += 1) {
      const record = this.#record(at);
      if (record.compare(key, 0, KEY_BYTES, 0, KEY_BYTES) !== 0) return undefined;
      const found = this.#entryAt(Number(record.readBigUInt64BE(KEY_BYTES)), id);
      if (found) return found;
      // another long id may begin alike
      if (!isLong) return 'stale';
    }
    return undefined;
  }

  #firstNotBelow(key: Buffer): number {
    let low = 0;
    let high = this.#parts.head.entries;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      if (this.#record(middle).compare(key, 0, KEY_BYTES, 0, KEY_BYTES) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #record(at: number): Buffer {
    const { index, head } = this.#parts;
    const record = Buffer.alloc(RECORD_BYTES);
    readSync(index, record, 0, RECORD_BYTES, head.start + at * RECORD_BYTES);
    return record;
  }

  /** The entry at `offset`, if it and nothing else is there up to the line's end: no part of a sound line is that. */
  #entryAt(offset: number, id: string): PlacedEntry | undefined {
    const { log, size, threadId } = this.#parts;
    if (!(offset > 0 && offset < size)) return undefined;
    const line = lineAt(log, offset);
    const [piece, more] = line === undefined ? [] : decodeLine(line);
    if (!piece || !('event' in piece) || more) return undefined;
    const { event } = piece;
    return event.id === id && event.thread_id === threadId ? { offset, event } : undefined;
  }

  /** Finds the entry after the indexed part. Only lines that contain the id are parsed. */
  #inTail(id: string): PlacedEntry | undefined {
    const { log, size, head } = this.#parts;
    const needle = Buffer.from(JSON.stringify(id));
    let found: PlacedEntry | undefined;
    scanNow(blocks(log, head.bytes, size), {
      lines: (run, offset) =>
        eachLine(run, (start, end) => {
          const isIn = run.subarray(start, end).includes(needle);
          found = isIn ? this.#entryAt(head.bytes + offset + start, id) : undefined;
          return found === undefined;
        }),
      oversized: () => true,
    });
    return found;
  }
}

interface PlacedEntry {
  readonly offset: number;
  readonly event: TreeEntry | OpenedLog['events'][number];
}

/**
 * Rebuilds the index of a large log without defects. It appears whole, through a rename. If it can't be
 * written there is none, without a notice: everything works without it.
 */
export function writeIndex(path: string, threadId: string, opened: OpenedLog): void {
  let log: number | undefined;
  try {
    log = openRegularSync(path);
    const text = fstatSync(log).size < INDEXED_BYTES ? undefined : encoded(log, threadId, opened);
    if (!text) return;
    writeWhole(indexPath(path), text, { mode: 0o600, follow: false });
  } catch (error) {
    // a RyeError has a code too: that of the disk that took no index
    if (systemCodeOf(error) === undefined) throw error;
  } finally {
    if (log !== undefined) closeSync(log);
  }
}

function discard(file: string): void {
  try {
    rmSync(file, { force: true });
  } catch {
    // a folder that takes no file gives none up either
  }
}

/** Takes the index away from a log that is kept in another form. */
export function removeIndex(path: string): void {
  discard(indexPath(path));
}

function encoded(log: number, threadId: string, opened: OpenedLog): Buffer | undefined {
  const { events, offsets, problems } = opened;
  if (problems.length > 0 || buildTree(events).problems.length > 0) return undefined;
  const records: { readonly key: string; readonly offset: number }[] = [];
  for (const [at, { id }] of events.entries()) {
    if (id !== undefined)
      records.push({ key: keyOf(id).toString('latin1'), offset: offsets[at] ?? 0 });
  }
  // of latin1 texts, the order is that of the bytes
  records.sort((left, right) => (left.key < right.key ? -1 : left.key > right.key ? 1 : 0));
  const end = offsets.at(-1) ?? 0;
  const last = lineAt(log, end);
  if (last === undefined) return undefined;
  const bytes = end + Buffer.byteLength(last) + 1;
  const sha256 = fingerprint(log, bytes);
  if (sha256 === undefined) return undefined;
  const head = { version: 1, thread_id: threadId, bytes, entries: records.length, sha256 };
  const packed = Buffer.alloc(records.length * RECORD_BYTES);
  for (const [at, { key, offset }] of records.entries()) {
    packed.write(key, at * RECORD_BYTES, 'latin1');
    packed.writeBigUInt64BE(BigInt(offset), at * RECORD_BYTES + KEY_BYTES);
  }
  return Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), packed]);
}
