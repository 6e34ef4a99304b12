import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readSync,
  realpathSync,
  type Stats,
  statSync,
} from 'node:fs';
import { sep } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import type { ItemType, Space } from '../core/ids.ts';
import type { FileFingerprint, SearchDocument } from '../core/search.ts';
import { toSearchDocument } from './search-document.ts';

/** An item's file as a listing of the spaces gives it. */
export interface ScannedItem {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
  /** Folder of the type in its space. A link out of it is not followed. */
  readonly root: string;
}

/** How the files on disk differ from what an index knows. */
export interface ScanResult {
  /** Number of files that were compared. */
  readonly total: number;
  /** New and changed files; a document is made only when it is asked for. */
  readonly changedCount: number;
  /** Documents of new and changed files, in batches that fit one transaction each. */
  changed(): AsyncGenerator<Batch, void>;
  /** Keys that the index knows and that are gone. */
  readonly removed: readonly string[];
}

export interface Batch {
  readonly documents: readonly SearchDocument[];
  /** Changed files that no batch has covered yet. */
  readonly left: number;
}

/** Files larger than this are indexed by their head only: the work for a document is bounded. */
export const MAX_TEXT = 1024 * 1024;
/** A batch ends at either of these. */
const BATCH_FILES = 200;
const BATCH_BYTES = 8 * MAX_TEXT;

/**
 * Compares listed files with the fingerprints of an index by size and modification time. Costs one `lstat` for each file; only
 * new and changed files are read, when {@link ScanResult.changed} is iterated. A file that vanishes meanwhile counts as absent.
 */
export function scanItems(
  items: Iterable<ScannedItem>,
  known: ReadonlyMap<string, FileFingerprint>,
): ScanResult {
  const present = new Set<string>();
  const changed: { readonly item: ScannedItem; readonly fingerprint: FileFingerprint }[] = [];
  for (const item of items) {
    // Synchronous on purpose: ten thousand stats through the thread pool take several times as long.
    const stats = statsInside(item);
    if (stats === undefined || present.has(item.path)) continue;
    present.add(item.path);
    const fingerprint = { size: stats.size, mtime_ms: stats.mtimeMs };
    const before = known.get(item.path);
    if (before?.size === fingerprint.size && before.mtime_ms === fingerprint.mtime_ms) continue;
    changed.push({ item, fingerprint });
  }
  return {
    total: present.size,
    changedCount: changed.length,
    removed: [...known.keys()].filter((key) => !present.has(key)),
    async *changed() {
      let documents: SearchDocument[] = [];
      let bytes = 0;
      for (const [at, { item, fingerprint }] of changed.entries()) {
        const read = readInside(item, MAX_TEXT);
        if (read !== undefined) {
          const text = read.bytes.toString('utf8');
          documents.push(toSearchDocument({ ...item, fingerprint, text }));
          bytes += read.bytes.length;
        }
        const left = changed.length - at - 1;
        if (left > 0 && documents.length < BATCH_FILES && bytes < BATCH_BYTES) continue;
        yield { documents, left };
        [documents, bytes] = [[], 0];
        // a thread that searches still hears its signals
        await setImmediate();
      }
    },
  };
}

/** The first bytes of a file, and what its index entry would be. */
export interface FileHead {
  readonly bytes: Buffer;
  readonly fingerprint: FileFingerprint;
}

/** Reads the head of an item's file; undefined if it is gone, no regular file, or a link out of its folder. */
export function readInside(item: ScannedItem, limit: number): FileHead | undefined {
  if (statsInside(item) === undefined) return undefined;
  let descriptor: number | undefined;
  try {
    // without O_NONBLOCK a FIFO would hang the program
    descriptor = openSync(item.path, constants.O_RDONLY | constants.O_NONBLOCK);
    const stats = fstatSync(descriptor);
    if (!stats.isFile()) return undefined;
    const buffer = Buffer.allocUnsafe(Math.min(stats.size, limit));
    let length = 0;
    while (length < buffer.length) {
      const count = readSync(descriptor, buffer, length, buffer.length - length, null);
      if (count === 0) break;
      length += count;
    }
    const fingerprint = { size: stats.size, mtime_ms: stats.mtimeMs };
    return { bytes: buffer.subarray(0, length), fingerprint };
  } catch {
    // gone or unreadable since it was listed: the next scan sees it again or removes it
    return undefined;
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

function statsInside({ path, root }: ScannedItem): Stats | undefined {
  const own = lstatSync(path, { throwIfNoEntry: false });
  if (own?.isSymbolicLink() !== true) return own?.isFile() === true ? own : undefined;
  try {
    if (!realpathSync(path).startsWith(realpathSync(root) + sep)) return undefined;
    const stats = statSync(path);
    return stats.isFile() ? stats : undefined;
  } catch {
    return undefined;
  }
}
