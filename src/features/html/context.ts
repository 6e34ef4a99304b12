import { type ToolCallBlock, toolCallsOf } from '../../kernel/core/message.ts';
import type { ExportSource } from '../../kernel/export/source.ts';
import { foldContext } from '../../kernel/log/context.ts';
import { isKnown, pathTo, type SessionTree, type TreeEntry } from '../../kernel/log/tree.ts';
import { type TreeRow, viewTree } from '../../kernel/log/tree-view.ts';
import { type Annotations, annotate } from './annotations.ts';
import { CodeRenderer, ImageRenderer, plain, proseRenderer } from './prose.ts';
import { type Html, html, printable } from './safe.ts';

/** Everything that rendering an entry needs. */
export interface PageContext {
  readonly source: ExportSource;
  readonly annotations: Annotations;
  readonly code: CodeRenderer;
  readonly images: ImageRenderer;
  readonly prose: (text: string) => Html;
  /** Entries of the open path. */
  readonly active: ReadonlySet<string>;
  /** The marks of entries on the open path that the model sees differently. */
  readonly marks: ReadonlyMap<string, ViewMark>;
  /** The visible part of the tree. */
  readonly rows: readonly TreeRow[];
  /** The branches of the conversation by the entry where it forks. */
  readonly forks: ReadonlyMap<string, readonly TreeRow[]>;
  readonly calls: Calls;
  /** Number of each answer on its own branch. */
  readonly turns: ReadonlyMap<string, number>;
}

/** Looks at the whole source once, so that each entry can be rendered by itself. */
export function pageContext(source: ExportSource): PageContext {
  const { tree, leafId, events } = source;
  const code = new CodeRenderer();
  const rows = viewTree(tree);
  return {
    source,
    annotations: annotate(events),
    code,
    images: new ImageRenderer(),
    prose: proseRenderer(code),
    active: new Set(pathTo(tree, leafId).map(({ id }) => id)),
    marks: marksOf(tree, leafId),
    rows,
    forks: forksOf(rows),
    calls: callsOf(tree, leafId),
    turns: turnsOf(tree),
  };
}

/** The difference between an entry and what the model sees of it. */
export type ViewMark = 'unsent' | 'omitted' | 'replaced';

/** Returns what the model sees of the entries on the path to a head, where that differs from the entry. */
export function marksOf(tree: SessionTree, leafId: string | null): ReadonlyMap<string, ViewMark> {
  const path = pathTo(tree, leafId);
  const sent = new Set(foldContext(tree, { leafId }).sources);
  const marks = new Map<string, ViewMark>();
  for (const entry of path) if (isRead(entry) && !sent.has(entry.id)) marks.set(entry.id, 'unsent');
  for (const entry of path) {
    if (!isKnown(entry, 'context_edit')) continue;
    const { target_id: target, action } = entry.payload;
    marks.set(target, action === 'omit' ? 'omitted' : 'replaced');
  }
  return marks;
}

/** True for a message with a heading: results share the box of their call. */
function isRead(entry: TreeEntry): boolean {
  if (isKnown(entry, 'message')) return entry.payload.message?.role !== 'tool_result';
  return isKnown(entry, 'custom_message') && entry.payload.display;
}

function forksOf(rows: readonly TreeRow[]): PageContext['forks'] {
  const children = new Map<string, TreeRow[]>();
  for (const row of rows) {
    if (row.parentId === null) continue;
    const siblings = children.get(row.parentId);
    if (siblings) siblings.push(row);
    else children.set(row.parentId, [row]);
  }
  return new Map([...children].filter(([, siblings]) => siblings.length > 1));
}

/** A call that the answer shows itself: on some branch no result does. */
export interface LooseCall {
  readonly call: ToolCallBlock;
  /** Entries with a result, each on another branch. */
  readonly results: readonly string[];
}

/** The calls of a tree and their results. */
export interface Calls {
  /** By the entry of a result: the call that it answers. */
  readonly answered: ReadonlyMap<string, ToolCallBlock>;
  /** By the entry of an answer: calls without a result on every branch. */
  readonly loose: ReadonlyMap<string, readonly LooseCall[]>;
}

/** Steps from a result back to its call; parallel calls of one answer are few. */
const MAX_STEPS = 500;

function keyOf(entryId: string, callId: string): string {
  return JSON.stringify([entryId, callId]);
}

function callsOf(tree: SessionTree, leafId: string | null): Calls {
  const answered = new Map<string, ToolCallBlock>();
  const results = new Map<string, string[]>();
  const settled = new Set<string>();
  for (const entry of tree.entries) {
    const callId = resultCallOf(entry);
    if (callId === undefined) continue;
    let isOnEveryBranch = true;
    let at = parentOf(tree, entry);
    for (let step = 0; at && step < MAX_STEPS; step += 1) {
      isOnEveryBranch &&= tree.children.get(at.id)?.length === 1 && at.id !== leafId;
      const call = callsIn(at).find(({ call_id: id }) => id === callId);
      if (call) {
        const key = keyOf(at.id, callId);
        answered.set(entry.id, call);
        results.set(key, [...(results.get(key) ?? []), entry.id]);
        if (isOnEveryBranch) settled.add(key);
        break;
      }
      at = parentOf(tree, at);
    }
  }
  const loose = new Map<string, readonly LooseCall[]>();
  for (const entry of tree.entries) {
    const list = callsIn(entry)
      .filter(({ call_id: id }) => !settled.has(keyOf(entry.id, id)))
      .map((call) => ({ call, results: results.get(keyOf(entry.id, call.call_id)) ?? [] }));
    if (list.length > 0) loose.set(entry.id, list);
  }
  return { answered, loose };
}

function resultCallOf(entry: TreeEntry): string | undefined {
  if (!isKnown(entry, 'message')) return undefined;
  const { message } = entry.payload;
  return message?.role === 'tool_result' ? message.call_id : undefined;
}

function callsIn(entry: TreeEntry): readonly ToolCallBlock[] {
  if (!isKnown(entry, 'message')) return [];
  const { message } = entry.payload;
  return message?.role === 'assistant' && Array.isArray(message.content)
    ? toolCallsOf(message)
    : [];
}

export function parentOf(tree: SessionTree, { parent_id: id }: TreeEntry): TreeEntry | undefined {
  return id === null ? undefined : tree.byId.get(id);
}

/** Counts the answers of each branch from its root; attempts of one turn share its number. */
function turnsOf(tree: SessionTree): ReadonlyMap<string, number> {
  interface Place {
    readonly count: number;
    readonly turn: number | undefined;
  }
  const places = new Map<string | null, Place>();
  const turns = new Map<string, number>();
  for (const entry of tree.entries) {
    let place = places.get(entry.parent_id) ?? { count: 0, turn: undefined };
    if (isKnown(entry, 'message') && entry.payload.message?.role === 'assistant') {
      const { turn } = entry.payload;
      const isRetry = turn !== undefined && turn === place.turn;
      place = { count: isRetry ? place.count : place.count + 1, turn };
      turns.set(entry.id, place.count);
    }
    places.set(entry.id, place);
  }
  return turns;
}

/** The text of an entry's row in the tree and of links to it. */
export function rowText({ entry, kind, text }: TreeRow): string {
  // hidden entries are not in the page at all
  if (isKnown(entry, 'custom_message') && !entry.payload.display)
    return `${entry.payload.custom_type}: for the model only`;
  return plain(text === '' ? kind : text);
}

/** Address of an entry within the page. */
export function anchorOf(id: string): string {
  return `#entry-${encodeURIComponent(printable(id))}`;
}

/** A thread as a link to its page, if that lies beside this one; else the command that makes one. */
export function childAddress(
  id: string,
  { source }: Pick<PageContext, 'source'>,
  words = id,
): Html {
  const page = source.pageOf?.(id);
  if (page === undefined)
    return html`<code>${id}</code> <code class="command">rye threads export ${id} --format html</code>`;
  const address = printable(page).split('/').map(encodeURIComponent).join('/');
  return html`<a href="./${address}">${words}</a>`;
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const TIMESTAMP = /^(\d{4})-(\d\d)-(\d\d)T(\d\d:\d\d)(:\d\d)/;

/** `17 Feb 2026` and `10:00`; undefined for anything that is no timestamp. */
export function dayAndTime(
  timestamp: string,
): { readonly day: string; readonly time: string; readonly seconds: string } | undefined {
  const match = TIMESTAMP.exec(timestamp);
  if (!match) return undefined;
  const [, year = '', month = '', day = '', time = '', seconds = ''] = match;
  const name = MONTHS[Number(month) - 1] ?? month;
  return { day: `${Number(day)} ${name} ${year}`, time, seconds };
}

/** Renders a time of day, with the date if the day is another than before; shows any other value as it is. */
export function renderTime(timestamp: string, before?: string): Html {
  const at = dayAndTime(timestamp);
  const text = at && `${at.time}${at.seconds}`;
  const isNewDay = at !== undefined && at.day !== (before && dayAndTime(before)?.day);
  return html`<time datetime="${timestamp}" title="${timestamp}">${isNewDay && `${at.day}, `}${text ?? timestamp}</time>`;
}
