import { createHash } from 'node:crypto';
import { buildTree } from '../../log/tree.ts';
import { type ExportSource, onlyPath } from '../source.ts';
import { pageContext } from './context.ts';
import { entryLines, pageData } from './data.ts';
import { notesBehind, renderEntry, runDividers } from './entry.ts';
import { renderEnd, renderFoot, renderHead, titleOf } from './head.ts';
import { type Html, html, NOTHING, trusted } from './safe.ts';

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
  return html`<div class="notice" role="note"><p>This thread is too long for a page: ${omitted.toLocaleString('en')} entries, older ones and those of other branches, are not in it. The JSON Lines export has the whole branch.</p></div>`;
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
