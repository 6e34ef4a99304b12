import { dirname, join, relative, sep } from 'node:path';
import { ITEM_TYPES, type ItemType, isItemType, type Space } from '../core/ids.ts';
import type { SearchHit } from '../core/search.ts';
import { scanFolders } from '../items/folder-scan-fs.ts';
import { type ScannedItem, type ScanResult, scanItems } from '../items/search-fs.ts';
import { parseQuery } from '../items/search-query.ts';
import { grantedGlobs } from '../policy/capability.ts';
import type { SearchIndex } from '../storage/store.ts';
import type { Foundation } from './foundation.ts';

export interface SearchRequest {
  readonly type: ItemType | 'all';
  readonly query: string;
  readonly limit?: number;
  readonly space?: Space;
  /** A date, a time or an age such as `7d`. */
  readonly since?: string;
  /** What a thread holds: only items that it may fetch are found and counted. */
  readonly capabilities?: readonly string[];
}

const DEFAULT_LIMIT = 10;
/** Below the knowledge folder: where threads are exported to. */
const EXPORTS = 'agent/threads';

/** Full-text search over items and thread exports; brings the index up to date first. */
export async function searchItems(
  base: Foundation,
  { type, query, limit = DEFAULT_LIMIT, space, since, capabilities }: SearchRequest,
): Promise<{ readonly results: readonly SearchHit[]; readonly total: number }> {
  const parsed = parseQuery(
    since === undefined ? query : `${query} after:${since}`,
    base.clock.now(),
  );
  await refreshIndex(base);
  const { hits, total } = await base.store.index.search({
    ...(parsed.text ? { text: parsed.text } : {}),
    filters: {
      ...parsed.filters,
      ...(type === 'all' ? {} : { types: [type] }),
      ...(space === undefined ? {} : { space }),
      ...(capabilities === undefined ? {} : { granted: grantedGlobs(capabilities) }),
    },
    limit,
  });
  return { results: hits, total };
}

/**
 * Reads new and changed files into the index and drops what is gone. Costs one stat for each item, and for thread
 * exports, of which there may be many, one for each folder.
 */
export async function refreshIndex(base: Foundation): Promise<void> {
  const { index } = base.store;
  const exports = join(base.spaces.root('project') ?? '', 'knowledge', EXPORTS);
  const items = ITEM_TYPES.flatMap((type) => base.spaces.list(type, { without: EXPORTS }));
  const scanned = items.flatMap(({ type, id, space, path }): ScannedItem[] =>
    isItemType(type) ? [{ type, id, space, path }] : [],
  );
  await take(
    index,
    scanItems(scanned, await index.fingerprints({ folder: exports, side: 'outside' })),
  );
  await refreshExports(base, exports);
}

async function refreshExports(base: Foundation, root: string): Promise<void> {
  const { index } = base.store;
  const { files, changed, gone } = scanFolders(root, await index.folders(), base.clock.now());
  if (changed.size === 0 && gone.length === 0) return;
  const touched = new Set([...changed.keys(), ...gone]);
  const known = await index.fingerprints({ folder: root, side: 'inside' });
  const before = new Map([...known].filter(([path]) => touched.has(dirname(path))));
  const found = files
    .filter((path) => path.endsWith('.md'))
    .map((path): ScannedItem => {
      const id = `${EXPORTS}/${relative(root, path).split(sep).join('/').slice(0, -'.md'.length)}`;
      return { type: 'knowledge', id, space: 'project', path };
    });
  await take(index, scanItems(found, before));
  await index.updateFolders(changed, gone);
}

async function take(index: SearchIndex, scan: ScanResult): Promise<void> {
  let { removed } = scan;
  for await (const batch of scan.changed()) {
    await index.update(batch, removed);
    removed = [];
  }
  if (removed.length > 0) await index.update([], removed);
}
