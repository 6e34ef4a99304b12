import { createHash } from 'node:crypto';
import { buildTree, isKnown } from '../../log/tree.ts';
import { TREE_FILTERS, type TreeRow, viewTree } from '../../log/tree-view.ts';
import { type ExportSource, onlyPath } from '../source.ts';
import { type PageContext, pageContext } from './context.ts';
import { notesBehind, renderEntry } from './entry.ts';
import { renderEnd, renderFoot, renderHead, titleOf } from './head.ts';
import { type Html, html, NOTHING, printable, trusted } from './safe.ts';

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
  const policy = `default-src 'none'; script-src ${hashOf(script)}; style-src ${hashOf(style)}; base-uri 'none'; form-action 'none'`;
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
${renderEnd(page)}${renderFoot(page)}</main>
<script type="application/json" class="data">${jsonFor(pageData(page))}</script>
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
  return html`<div class="notice" role="note"><p>This thread is too long for a page: ${omitted.toLocaleString('en')} entries, older ones and those of other branches, are not in it. The JSON Lines export has the whole branch.</p></div>`;
}

/** Inside a script element only this sequence is not text. */
function jsonFor(value: object): Html {
  return trusted(JSON.stringify(value).replaceAll('<', String.raw`\u003c`));
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
<div class="side-foot scripted"><button type="button" class="to-leaf">Open leaf</button><button type="button" class="toggle" data-folds="thinking">Thinking</button><button type="button" class="toggle" data-folds="call,result">Tools</button></div>
</aside>
<div class="shade"></div>`;

const BRANCH_BAR = html`<div class="branch-bar" role="status" hidden><span>You are reading a branch that was left.</span> <button type="button" class="to-leaf">Back to the open leaf</button></div>`;

/**
 * The data of the page's script: texts that it must only show as text, and numbers. Entries are named by their index in
 * `entries`, which is also that of their articles.
 */
export interface PageData {
  readonly entries: readonly {
    readonly id: string;
    /** Place of the parent; -1 for a root. */
    readonly parent: number;
    readonly kind: string;
    readonly text: string;
    readonly label?: string;
  }[];
  /** By filter: place and depth of each row, in turn, and the row that the leaf is or hangs on. */
  readonly views: Readonly<
    Record<string, { readonly rows: readonly number[]; readonly leaf: number }>
  >;
  /** Place of the last entry of the open path; -1 for none. */
  readonly leaf: number;
}

/** The tree as the five filters show it, which are the same as those of `rye threads entries`. */
export function pageData({ source }: PageContext): PageData {
  const { tree, leafId } = source;
  const places = new Map(tree.entries.map(({ id }, index) => [id, index]));
  const placeOf = (id: string | null): number => (id === null ? -1 : (places.get(id) ?? -1));
  const rows = new Map(viewTree(tree, { filter: 'all' }).map((row) => [row.entry.id, row]));
  return {
    entries: tree.entries.map(({ id, parent_id: parent }) => {
      const row = rows.get(id);
      return {
        id: printable(id),
        parent: placeOf(parent),
        kind: printable(row?.kind ?? ''),
        text: row ? printable(textOf(row)) : '',
        ...(row?.label === undefined ? {} : { label: printable(row.label) }),
      };
    }),
    views: Object.fromEntries(
      TREE_FILTERS.map((filter) => {
        const view = viewTree(tree, { filter });
        const leafRow = view.find(({ leaf, aboveLeaf }) => leaf || aboveLeaf);
        return [
          filter,
          {
            rows: view.flatMap(({ entry, depth }) => [placeOf(entry.id), depth]),
            leaf: placeOf(leafRow?.entry.id ?? null),
          },
        ];
      }),
    ),
    leaf: placeOf(leafId),
  };
}

/** Drops hidden entries: they are not in the page at all. */
function textOf({ entry, text }: TreeRow): string {
  const isHidden = isKnown(entry, 'custom_message') && !entry.payload.display;
  return isHidden ? `${entry.payload.custom_type}: for the model only` : text;
}
