import { createHash } from 'node:crypto';
import type { JsonObject } from '../../kernel/core/json.ts';
import type { ContentBlock, Message } from '../../kernel/core/message.ts';
import { type ExportSource, onlyPath } from '../../kernel/export/source.ts';
import { buildTree, isKnown, type SessionTree, type TreeEntry } from '../../kernel/log/tree.ts';
import { TREE_FILTERS } from '../../kernel/log/tree-filter.ts';
import { viewTree } from '../../kernel/log/tree-view.ts';
import { marksOf, type PageContext, pageContext, rowText, type ViewMark } from './context.ts';
import { notesBehind, renderEntry, runDividers } from './entry.ts';
import { renderEnd, renderFoot, renderHead, titleOf } from './head.ts';
import { type Html, html, NOTHING, printable, trusted } from './safe.ts';

/**
 * The data of the page's script: texts that it must only show as text, and numbers. Entries are named by their index in
 * `entries`, which is also that of their articles.
 */
interface PageData {
  readonly entries: readonly {
    readonly id: string;
    /** Place of the parent; -1 for a root. */
    readonly parent: number;
    readonly kind: string;
    readonly text: string;
    readonly label?: string;
  }[];
  /** By filter: the places that it shows. */
  readonly views: Readonly<Record<string, readonly number[]>>;
  /** Place of the head, the last entry of the open path; -1 for none. */
  readonly leaf: number;
  /** By the place where a branch ends: place and mark of each entry that the model sees differently, in turn. */
  readonly marks: Readonly<Record<string, readonly (number | ViewMark)[]>>;
}

function pageData(page: PageContext): PageData {
  const { tree, leafId } = page.source;
  const rows = new Map(viewTree(tree, { filter: 'all' }).map((row) => [row.entry.id, row]));
  const placeOf = (id: string | null): number => (id === null ? -1 : tree.byId.positionOf(id));
  return {
    entries: tree.entries.map(({ id, parent_id: parent }) => {
      const row = rows.get(id);
      return {
        id: printable(id),
        parent: placeOf(parent),
        kind: printable(row?.kind ?? ''),
        text: row ? printable(rowText(row)) : '',
        ...(row?.label === undefined ? {} : { label: printable(row.label) }),
      };
    }),
    views: Object.fromEntries(
      TREE_FILTERS.map((filter) => [
        filter,
        viewTree(tree, { filter }).map(({ entry }) => placeOf(entry.id)),
      ]),
    ),
    leaf: placeOf(leafId),
    marks: branchMarks(tree, leafId),
  };
}

/** Entries that are looked at for the marks of left branches: each branch is folded by itself. */
const MAX_FOLDED = 1_000_000;

/** The newest branches first: a page of a tree with very many branches has no marks on the oldest. */
function branchMarks(tree: SessionTree, leafId: string | null): PageData['marks'] {
  const ends = tree.entries.filter(({ id }) => !tree.children.has(id)).toReversed();
  const marks: Record<string, readonly (number | ViewMark)[]> = {};
  let folded = 0;
  for (const id of [leafId, ...ends.map((entry) => entry.id)]) {
    if (id === null) continue;
    const place = tree.byId.positionOf(id);
    folded += place;
    if (folded > MAX_FOLDED && id !== leafId) break;
    const seen = [...marksOf(tree, id)].flatMap(([entryId, mark]) =>
      tree.byId.has(entryId) ? [tree.byId.positionOf(entryId), mark] : [],
    );
    if (seen.length > 0) marks[String(place)] = seen;
  }
  return marks;
}

/** The header and the entries of the page, one JSON object a line: an unsigned log. */
function* entryLines({ source, images }: PageContext): Iterable<object> {
  yield source.header;
  let seq = 0;
  for (const { payload, ...entry } of source.tree.entries) {
    seq += 1;
    yield { ...entry, seq, payload: shownPayload({ ...entry, payload } as TreeEntry, images) };
  }
}

/** The payload without the parts that the page omits: hidden text, signatures of thinking, data of results, some images. */
function shownPayload(entry: TreeEntry, images: PageContext['images']): object {
  const { pi_line: _line, details: _details, ...payload } = entry.payload as JsonObject;
  if (isKnown(entry, 'custom_message') && !entry.payload.display)
    return { ...payload, content: '', images: [] };
  if (isKnown(entry, 'custom_message') && entry.payload.images !== undefined) {
    const shown = entry.payload.images.filter(
      (block) => block.type !== 'image' || !images.omits(block),
    );
    return { ...payload, images: shown };
  }
  if (!isKnown(entry, 'message')) return payload;
  const message = entry.payload.message as Partial<Message> | undefined;
  if (!message || !Array.isArray(message.content)) return payload;
  const { data: _data, ...rest } = message as Partial<Message> & { readonly data?: unknown };
  const content = (message.content as readonly ContentBlock[]).flatMap((block) => {
    if (block.type === 'image') return images.omits(block) ? [] : [block];
    const {
      signature: _signature,
      redacted: _redacted,
      ...shown
    } = block as ContentBlock & {
      readonly signature?: string;
      readonly redacted?: string;
    };
    return [shown];
  });
  return { ...payload, message: { ...rest, content } };
}

// the script and the style of `client/`, put in by the build
declare const __RYE_PAGE_SCRIPT__: string;
declare const __RYE_PAGE_STYLE__: string;

/** Beyond this a browser takes seconds for every click: the newest entries of the open path are shown then. */
const MAX_ENTRIES = 20_000;

/**
 * Renders the thread as one self-contained page: the tree at the side, the conversation beside it. Text from the log is
 * escaped; scripts and styles run only by their hashes, and the page can load nothing.
 */
export function* exportHtml(whole: ExportSource): Iterable<string> {
  const { source, omitted } = shownPart(whole);
  const page = pageContext(source);
  const script = trusted(__RYE_PAGE_SCRIPT__);
  const style = trusted(__RYE_PAGE_STYLE__);
  const policy = `default-src 'none'; script-src ${hashOf(script)}; style-src ${hashOf(style)}; img-src data:; base-uri 'none'; form-action 'none'`;
  yield html`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="rye ${source.version}">
<title>${titleOf(page)}</title>
<style>${style}</style>
</head>
<body>
<a class="skip" href="#conversation">Skip to the conversation</a>
${SIDEBAR}
<main id="conversation" tabindex="-1">
${renderHead(page)}${omittedNotice(omitted)}${BRANCH_BAR}${notesBehind('', page)}<div class="entries">
`.text;
  for (const entry of source.tree.entries) yield renderEntry(entry, page).text;
  yield html`</div>
${runDividers('', page)}${renderEnd(page)}${renderFoot(page)}</main>
${HELP}
<script type="application/json" class="data">${scriptText(pageData(page))}</script>
<script type="application/x-ndjson" class="lines">`.text;
  for (const line of entryLines(page)) yield `${scriptText(line).text}\n`;
  yield html`</script>
<script>${script}</script>
</body>
</html>
`.text;
}

function shownPart(whole: ExportSource): {
  readonly source: ExportSource;
  readonly omitted: number;
} {
  if (whole.tree.entries.length <= MAX_ENTRIES) return { source: whole, omitted: 0 };
  const path = onlyPath(whole);
  const shown = path.tree.entries.slice(-MAX_ENTRIES);
  const first = shown[0]?.seq ?? 0;
  const ids = new Set(shown.map(({ id }) => id));
  const entries = shown.map((entry) =>
    entry.parent_id !== null && ids.has(entry.parent_id) ? entry : { ...entry, parent_id: null },
  );
  const { labels, leafId } = path.tree;
  const tree = { ...buildTree(entries), labels, leafId };
  const events = path.events.filter((event) => event.id === undefined || event.seq >= first);
  return {
    source: { ...path, events, tree },
    omitted: whole.tree.entries.length - shown.length,
  };
}

function omittedNotice(omitted: number): Html {
  if (omitted === 0) return NOTHING;
  return html`<div class="notice" role="note"><p>This thread is too long for a page: ${omitted.toLocaleString('en')} entries, from the older part and from other branches, are not in it. The JSON Lines export has the whole branch.</p></div>`;
}

/** Inside a script element only this character is not text. Invisible characters become escapes, as in all of the page. */
function scriptText(value: object): Html {
  return trusted(JSON.stringify(value).replaceAll(/[<\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, escapeUnits));
}

function escapeUnits(character: string): string {
  return character
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');
}

function hashOf({ text }: Html): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

const FILTERS = [
  ['default', 'Default'],
  ['no-tools', 'No tools'],
  ['user-only', 'User'],
  ['labeled-only', 'Labels'],
  ['all', 'All'],
] as const;

const SIDEBAR = html`<div class="bar scripted"><button type="button" class="open-tree" aria-expanded="false">Tree</button><span class="bar-title"></span></div>
<aside class="side" aria-label="Session tree">
<div class="side-head">
<div class="search scripted"><input type="search" placeholder="Search  /" aria-label="Search the conversation" autocomplete="off" spellcheck="false"><button type="button" class="close-tree" aria-label="Close the tree">×</button></div>
<fieldset class="filters scripted"><legend>Show in the tree</legend>${FILTERS.map(([value, name], index) => html`<label><input type="radio" name="filter" value="${value}"${index === 0 && html` checked`}><span>${name}</span></label>`)}</fieldset>
<p class="count" aria-live="polite"></p>
</div>
<ul class="rows"></ul>
<noscript><p class="quiet">Without scripts this page shows the open branch only.</p></noscript>
<div class="side-foot scripted"><button type="button" class="to-leaf">Head</button><button type="button" class="toggle" data-folds="thinking" title="T">Thinking</button><button type="button" class="toggle" data-folds="more" title="O">Outputs</button><button type="button" class="toggle" data-folds="tool">Tools</button><button type="button" class="show-details" aria-pressed="false" title="D">Details</button><button type="button" class="save" title="Download the entries of this page as JSON lines">JSONL</button><button type="button" class="show-help" aria-label="Keys" title="?">?</button></div>
</aside>
<div class="shade"></div>`;

const BRANCH_BAR = html`<div class="branch-bar" role="status" hidden><span>You are reading a branch that was left.</span> <button type="button" class="to-leaf">Back to the head</button></div>`;

const KEYS = [
  ['/', 'Search texts, arguments and outputs'],
  ['j k', 'Next and previous entry'],
  ['h', 'Go to the head'],
  ['t', 'Show or fold thinking'],
  ['o', 'Show all or the first lines of long outputs'],
  ['d', 'Show or hide details: hooks, state, checkpoints'],
  ['↑ ↓', 'Move in the tree'],
  ['← →', 'Fold and unfold in the tree'],
  ['Esc', 'Leave the search or the tree'],
  ['?', 'This help'],
] as const;

const HELP = html`<dialog class="help" aria-label="Keys"><h2>Keys</h2><dl>${KEYS.map(([key, purpose]) => html`<div><dt>${key.split(' ').map((name) => html`<kbd>${name}</kbd> `)}</dt><dd>${purpose}</dd></div>`)}</dl><button type="button" class="close-help">Close</button></dialog>`;
