import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { ItemType, Space } from '../core/ids.ts';
import type { FileFingerprint, SearchDocument } from '../core/search.ts';
import { toSearchDocument } from './search-document.ts';

/** An item's file as a listing of the spaces gives it. */
export interface ScannedItem {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
}

/** How the files on disk differ from what an index knows. */
export interface ScanResult {
  /** Number of files that were compared. */
  readonly total: number;
  /** New and changed files; a document is made only when it is asked for. */
  readonly changedCount: number;
  /** Documents of new and changed files, in batches that fit one transaction each. */
  changed(): AsyncGenerator<readonly SearchDocument[], void>;
  /** Keys that the index knows and that are gone. */
  readonly removed: readonly string[];
}

export interface ScanOptions {
  /** Documents in a batch. */
  readonly batchSize?: number;
  /** Files that are read at the same time. */
  readonly concurrency?: number;
}

/** Files beyond this size are indexed by their head only. */
const MAX_TEXT = 1024 * 1024;

/**
 * Compares listed files with the fingerprints of an index by size and modification time. Costs one `stat` for each file; only
 * new and changed files are read, when {@link ScanResult.changed} is iterated. A file that vanishes meanwhile counts as absent.
 */
export function scanItems(
  items: Iterable<ScannedItem>,
  known: ReadonlyMap<string, FileFingerprint>,
  options: ScanOptions = {},
): ScanResult {
  const { batchSize = 200, concurrency = 16 } = options;
  const present = new Set<string>();
  const changed: { readonly item: ScannedItem; readonly fingerprint: FileFingerprint }[] = [];
  for (const item of items) {
    // Synchronous on purpose: ten thousand stats through the thread pool take several times as long.
    const stats = statSync(item.path, { throwIfNoEntry: false });
    if (stats === undefined || !stats.isFile() || present.has(item.path)) continue;
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
      for (let start = 0; start < changed.length; start += batchSize) {
        const batch = changed.slice(start, start + batchSize);
        const documents: (SearchDocument | undefined)[] = [];
        for (let from = 0; from < batch.length; from += concurrency) {
          const reading = batch.slice(from, from + concurrency);
          documents.push(...(await Promise.all(reading.map(readDocument))));
        }
        yield documents.filter((document) => document !== undefined);
      }
    },
  };
}

async function readDocument({
  item,
  fingerprint,
}: {
  readonly item: ScannedItem;
  readonly fingerprint: FileFingerprint;
}): Promise<SearchDocument | undefined> {
  let bytes: Buffer;
  try {
    bytes = await readFile(item.path);
  } catch {
    // Gone or unreadable since it was listed: the next scan sees it again or removes it.
    return undefined;
  }
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const text = bytes.subarray(0, MAX_TEXT).toString('utf8');
  return toSearchDocument({ ...item, fingerprint: { ...fingerprint, sha256 }, text });
}
