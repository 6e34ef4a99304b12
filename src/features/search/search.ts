import { dirname, extname, join, sep } from 'node:path';
import { programItems } from '../../kernel/app/program/items.ts';
import type { SearchRequest } from '../../kernel/app/search-request.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { ITEM_TYPES, isItemType } from '../../kernel/core/ids.ts';
import { compact } from '../../kernel/core/json.ts';
import type {
  IndexedHit,
  SearchAnswer,
  SearchDocument,
  SearchFilters,
  SearchHit,
  SearchNode,
  SearchQuery,
} from '../../kernel/core/search.ts';
import { headChars } from '../../kernel/core/text.ts';
import { itemFolder } from '../../kernel/items/spaces-fs.ts';
import { verifyFile, verifySkill } from '../../kernel/items/verified-fs.ts';
import { grantedGlobs } from '../../kernel/policy/capability.ts';
import type { SearchIndex } from '../../kernel/storage/search-index.ts';
import { signatureState } from '../../kernel/trust/signature.ts';
import { parseQuery } from './query.ts';
import {
  isUnchanged,
  MAX_TEXT,
  readHead,
  type ScannedItem,
  type ScanResult,
  scanFolders,
  scanItems,
  toSearchDocument,
} from './scan-fs.ts';
import { contextOf, snippetOf } from './snippet.ts';

const DEFAULT_LIMIT = 20;
/** Below the knowledge folder: where threads are exported to. */
const EXPORTS = 'agent/threads';

/** Milliseconds that one search spends at most on bringing the index up to date; the next one continues. */
const REFRESH_MS = 10_000;
/** Milliseconds from there on for the matches and for reading their files. */
const ANSWER_MS = 2000;
/** Bytes of files whose signature one search checks; the smallest come first. */
const VERIFY_BYTES = 48 * 1024 * 1024;

/**
 * Full-text search over items and thread exports; brings the index up to date first. The index only names and ranks files:
 * titles and snippets come from the files, whose signatures are checked. Time and bytes are bounded, and the answer reports
 * if a bound cut it.
 */
export async function searchItems(
  workspace: Workspace,
  { type, query, limit = DEFAULT_LIMIT, space, since, ...request }: SearchRequest,
): Promise<SearchAnswer> {
  const { capabilities } = request;
  const parsed = parseQuery(
    since === undefined ? query : `${query} after:${since}`,
    workspace.clock.now(),
  );
  const withoutThreads = request.withoutThreads === true && !isAboutThreads(parsed.filters);
  const areWanted = !withoutThreads && (type === 'all' || type === 'knowledge');
  const { items, left } = await refreshIndex(workspace, { exports: areWanted });
  const end = workspace.clock.now() + ANSWER_MS;
  const isOver = (): boolean => workspace.clock.now() >= end;
  const indexed: SearchQuery = {
    ...compact({ text: parsed.text }),
    filters: compact({
      ...parsed.filters,
      types: type === 'all' ? undefined : [type],
      space,
      granted: capabilities && grantedGlobs(capabilities),
      without: withoutThreads ? `${EXPORTS}/` : undefined,
    }),
    limit,
  };
  const own = await searchProgram(workspace, indexed);
  const all = await workspace.store.index.search(indexed, isOver);
  const open = all.hits.filter(({ path }) => request.denies?.(path) !== true);
  const found = { ...all, hits: open, total: all.total - all.hits.length + open.length };
  const view = { items, isOver, node: parsed.text, contextLines: request.contextLines };
  const files = readHits(workspace, found.hits, view);
  const hits =
    own.length === 0
      ? files.map(({ hit }) => hit)
      : await rankTogether([...own.map((hit) => programHit(hit, view)), ...files], indexed);
  const results = await Promise.all(hits.map((hit) => withSession(workspace, hit)));
  const unchecked = results.filter(({ signature }) => signature === 'unchecked').length;
  const notices = [
    ...(left > 0 ? [`${left} files are not indexed yet: search again to continue`] : []),
    ...(found.complete ? [] : [`stopped after ${ANSWER_MS / 1000} s: more may match`]),
    ...(unchecked > 0
      ? [`${unchecked} results are not checked: time or size is over the bound`]
      : []),
  ];
  const complete = left === 0 && found.complete;
  return { results, total: own.length + found.total, complete, notices };
}

/** Names the thread of an export, and the first thread of its session. */
async function withSession({ store }: Workspace, hit: SearchHit): Promise<SearchHit> {
  const folder = `${EXPORTS}/${hit.directive}/`;
  if (hit.directive === undefined || !hit.id.startsWith(folder)) return hit;
  const thread_id = hit.id.slice(folder.length);
  const record = await store.registry.get(thread_id);
  return { ...hit, thread_id, session_id: record?.chain_root_id ?? thread_id };
}

/** A match among the items of the program. */
interface ProgramHit extends IndexedHit {
  readonly document: SearchDocument;
  readonly text: string;
}

/** A result with what was indexed of it. */
interface Shown {
  readonly hit: SearchHit;
  readonly document: SearchDocument;
}

/** Orders results of two indexes, whose scores cannot be compared, by one: the best first, without a text the newest. */
async function rankTogether(
  shown: readonly Shown[],
  query: SearchQuery,
): Promise<readonly SearchHit[]> {
  if (query.text === undefined) {
    const byTime = shown.toSorted((one, other) =>
      one.document.time < other.document.time ? 1 : -1,
    );
    return byTime.slice(0, query.limit).map(({ hit }) => hit);
  }
  const hits = new Map(shown.map(({ hit, document }) => [document.key, hit]));
  const ranked = await rank(
    shown.map(({ document }) => document),
    query,
  );
  return ranked.flatMap(({ path, score }) => {
    const hit = hits.get(path);
    return hit === undefined ? [] : [{ ...hit, score }];
  });
}

/** Searches documents in a separate index. */
async function rank(
  documents: readonly SearchDocument[],
  query: SearchQuery,
): Promise<readonly IndexedHit[]> {
  const { SqliteSearchIndex } = await import('../../kernel/storage/sqlite/search-index.ts');
  const index = new SqliteSearchIndex({ path: ':memory:' });
  try {
    await index.update(documents, []);
    return (await index.search(query, () => false)).hits;
  } finally {
    index.close();
  }
}

/** Searches the items of the program by the query that files are searched by. */
async function searchProgram(
  workspace: Workspace,
  query: SearchQuery,
): Promise<readonly ProgramHit[]> {
  const items = programItems(workspace);
  if (items.length === 0) return [];
  const found = items.map((item) => {
    const fingerprint = { size: item.text.length, mtime_ms: workspace.clock.now() };
    const document = toSearchDocument({ ...item, fingerprint });
    return { document, text: item.text };
  });
  const hits = await rank(
    found.map(({ document }) => document),
    query,
  );
  return hits.flatMap((hit) =>
    found.filter(({ document }) => document.key === hit.path).map((one) => ({ ...hit, ...one })),
  );
}

function programHit(
  { document, text, type, id, space, path, score }: ProgramHit,
  { node, contextLines }: View,
): Shown {
  const hit = compact({
    type,
    id,
    space,
    path,
    title: document.title,
    score,
    snippet: snippetOf(document, node),
    signature: 'program',
    verified: false,
    context: contextLines === undefined ? undefined : contextOf(text, node, contextLines),
    time: document.time,
  });
  return { hit, document };
}

function isAboutThreads({ directive, status, model }: SearchFilters): boolean {
  return [directive, status, model].some((field) => field !== undefined);
}

/** The inputs for showing the matches of one search. */
interface View {
  readonly items: ReadonlyMap<string, ScannedItem>;
  readonly isOver: () => boolean;
  readonly node: SearchNode | undefined;
  readonly contextLines: number | undefined;
}

/** A match whose file was found, with the bytes to read: all of them, or only the head. */
interface Place {
  readonly item: ScannedItem;
  readonly score: number;
  readonly size: number;
  readonly isWhole: boolean;
}

function readHits(workspace: Workspace, hits: readonly IndexedHit[], view: View): readonly Shown[] {
  const places = hits.flatMap((hit): Omit<Place, 'isWhole'>[] => {
    const item = itemOf(workspace, hit, view.items);
    const head = item && readHead(item, 0);
    // an index that names other files than the spaces have is damaged or forged
    return item && head ? [{ item, score: hit.score, size: head.fingerprint.size }] : [];
  });
  // one huge file must not leave the others unchecked
  let left = VERIFY_BYTES;
  const whole = new Set<ScannedItem>();
  for (const { item, size } of places.toSorted((one, other) => one.size - other.size)) {
    left -= size;
    if (left >= 0) whole.add(item);
  }
  return places.flatMap((place) => {
    const hit = readHit(workspace, { ...place, isWhole: whole.has(place.item) }, view);
    return hit === undefined ? [] : [hit];
  });
}

/** The item that a path of the index names; undefined if the spaces have no such item. */
function itemOf(
  workspace: Workspace,
  { type, id, space, path }: IndexedHit,
  items: ReadonlyMap<string, ScannedItem>,
): ScannedItem | undefined {
  const item = items.get(path) ?? exportAt(exportsRoot(workspace), path);
  return item?.type === type && item.id === id && item.space === space ? item : undefined;
}

function readHit(workspace: Workspace, place: Place, view: View): Shown | undefined {
  const { item, score, isWhole } = place;
  const { node, contextLines } = view;
  const isLate = view.isOver();
  const read = readHead(item, isLate ? 0 : Math.max(MAX_TEXT, isWhole ? place.size : 0));
  if (read === undefined) return undefined;
  const text = read.bytes.toString('utf8');
  const signature = isWhole && !isLate ? stateOf(workspace, item, read.bytes, text) : 'unchecked';
  const head = text.length > MAX_TEXT ? headChars(text, MAX_TEXT) : text;
  const document = toSearchDocument({ ...item, fingerprint: read.fingerprint, text: head });
  const { directive, status } = document;
  const hit = compact({
    type: item.type,
    id: item.id,
    space: item.space,
    path: item.path,
    title: document.title,
    score,
    snippet: snippetOf(document, node),
    signature,
    verified: signature === 'signed' || signature === 'system',
    context: contextLines === undefined ? undefined : contextOf(head, node, contextLines),
    directive: directive === '' ? undefined : directive,
    status: status === '' ? undefined : status,
    time: document.time,
  });
  return { hit, document };
}

function stateOf(workspace: Workspace, item: ScannedItem, bytes: Uint8Array, text: string): string {
  const found = { ...item, extension: extname(item.path), bytes, text, shadows: [] };
  const check = item.type === 'skill' ? verifySkill : verifyFile;
  return signatureState(check(found, workspace.verification));
}

/**
 * Reads new and changed files into the index and drops what is gone, for a bounded time. Costs one `lstat` for each item and
 * each export of a thread; not `exports`: exports of threads stay as they are. Returns the items other than exports by
 * their paths, and how many changed files are left.
 */
export async function refreshIndex(
  workspace: Workspace,
  { exports: areWanted = true }: { readonly exports?: boolean } = {},
): Promise<{ readonly items: ReadonlyMap<string, ScannedItem>; readonly left: number }> {
  const { index } = workspace.store;
  const exports = exportsRoot(workspace);
  const end = workspace.clock.now() + REFRESH_MS;
  const items = ITEM_TYPES.flatMap((type) => workspace.spaces.list(type, { without: EXPORTS }));
  const scanned = items.flatMap(({ type, id, space, path }): ScannedItem[] =>
    isItemType(type)
      ? [
          {
            type,
            id,
            space,
            path,
            root: join(workspace.spaces.root(space) ?? '', itemFolder(type)),
          },
        ]
      : [],
  );
  const isOver = (): boolean => workspace.clock.now() >= end;
  const known = await index.fingerprints({ folder: exports, side: 'outside' });
  const left = await take(index, scanItems(scanned, known), isOver);
  return {
    items: new Map(scanned.map((item) => [item.path, item])),
    left: left + (areWanted ? await refreshExports(workspace, exports, isOver) : 0),
  };
}

async function refreshExports(
  workspace: Workspace,
  root: string,
  isOver: () => boolean,
): Promise<number> {
  const { index } = workspace.store;
  const { files, changed, gone } = scanFolders(root, await index.folders(), workspace.clock.now());
  const touched = new Set([...changed.keys(), ...gone]);
  const isListed = (path: string): boolean => touched.size > 0 && touched.has(dirname(path));
  // an editor may write into the file, which changes no folder
  const before = await index.fingerprints(
    { folder: root, side: 'inside' },
    (path, fingerprint) => isListed(path) || !isUnchanged(path, fingerprint),
  );
  const edited = [...before.keys()].filter((path) => !isListed(path));
  if (touched.size === 0 && edited.length === 0) return 0;
  const found = [...files, ...edited].flatMap((path) => exportAt(root, path) ?? []);
  const left = await take(index, scanItems(found, before), isOver);
  // folders are remembered once all of their files are indexed
  await index.updateFolders(left === 0 ? changed : new Map(), gone);
  return left;
}

/**
 * Indexes one export of a thread. Costs the same however many exports there are: the next search looks at the others.
 * Does nothing if the file is gone or not below the folder of exports.
 */
export async function indexExport(workspace: Workspace, path: string): Promise<void> {
  const item = exportAt(exportsRoot(workspace), path);
  const head = item && readHead(item, MAX_TEXT);
  if (item === undefined || head === undefined) return;
  const text = head.bytes.toString('utf8');
  const document = toSearchDocument({ ...item, fingerprint: head.fingerprint, text });
  await workspace.store.index.update([document], []);
}

function exportsRoot(workspace: Workspace): string {
  return join(workspace.spaces.root('project') ?? '', itemFolder('knowledge'), EXPORTS);
}

/** The export of a thread that a path below the folder of exports names. */
function exportAt(root: string, path: string): ScannedItem | undefined {
  if (!path.startsWith(root + sep) || !path.endsWith('.md')) return undefined;
  const id = `${EXPORTS}/${path
    .slice(root.length + 1, -'.md'.length)
    .split(sep)
    .join('/')}`;
  return { type: 'knowledge', id, space: 'project', path, root };
}

/** Returns how many changed files were left when the time was over. */
async function take(index: SearchIndex, scan: ScanResult, isOver: () => boolean): Promise<number> {
  let { removed } = scan;
  for await (const { documents, left } of scan.changed()) {
    await index.update(documents, removed);
    removed = [];
    if (left > 0 && isOver()) return left;
  }
  if (removed.length > 0) await index.update([], removed);
  return 0;
}
