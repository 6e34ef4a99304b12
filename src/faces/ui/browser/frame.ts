import {
  holds,
  shortKind,
  TREE_FILTERS,
  type TreeFilter,
  type TreeRow,
  wordsOf,
} from '../../../kernel/app/api/trees.ts';
import { timeOf } from '../../../kernel/core/original.ts';
import { displayWidth, graphemesOf, truncate } from '../terminal-text.ts';
import { oneLine } from '../visible.ts';
import { entryLines, turnText } from './entry-lines.ts';
import { helpLines } from './help.ts';
import { layoutOf, type Span, type Style } from './layout.ts';
import { countBelow } from './outline.ts';
import { type BrowserState, chosenRow, type Mode } from './state.ts';

/** One row of the screen: the left pane, and the right pane after the line between them. */
export interface FrameRow {
  readonly left: readonly Span[];
  readonly right?: readonly Span[];
}

/** A whole screen. */
export interface Frame {
  readonly rows: readonly FrameRow[];
  /** Column (from 1) of the line between the panes; 0: there is none. */
  readonly border: number;
}

/** The screen for a state: exactly as many rows as the terminal has, none wider than it. */
export function frameOf(state: BrowserState): Frame {
  const { size } = state;
  const layout = layoutOf(state);
  const rows = [head(state), ...body(state), ...foot(state)].slice(0, Math.max(1, size.rows));
  const cut = rows.map(({ left, right }): FrameRow => {
    const width = right ? layout.treeColumns : size.columns;
    return right
      ? { left: fit(left, width), right: fit(right, layout.entryColumns) }
      : { left: fit(left, width) };
  });
  return { rows: cut, border: state.mode.kind === 'help' ? 0 : layout.border };
}

/** Truncates a line to a width, with an ellipsis at the cut. */
function fit(spans: readonly Span[], columns: number): readonly Span[] {
  const fitted: Span[] = [];
  let left = columns;
  for (const { text, style } of spans) {
    if (left <= 0) break;
    const cut = truncate(text, left);
    fitted.push({ text: cut, style });
    left = cut === text ? left - displayWidth(text) : 0;
  }
  return fitted;
}

function head({ source, trail, isFollowing, outline, filter, size }: BrowserState): FrameRow {
  const { threadId, firstThreadId = threadId, title, total } = source;
  const id = [...trail, firstThreadId].map(oneLine).join(' › ');
  const count = outline.rows.filter(({ divider }) => !divider).length;
  const shown = `${count} of ${total} entries${isFollowing ? ' · following' : ''}`;
  const named = tabsOf(filter, () => true);
  const room = size.columns - displayWidth(id) - displayWidth(shown) - 2;
  const isWide = displayWidth(named.map(({ text }) => text).join('')) <= room;
  return {
    left: [
      { text: `${id} `, style: 'heading' },
      ...(isWide ? named : tabsOf(filter, (name) => name === filter)),
      { text: ` ${shown}`, style: 'dim' },
      { text: title === null ? '' : `  ${oneLine(title)}`, style: 'plain' },
    ],
  };
}

/** The filters with the keys that choose them; the one in force in brackets. */
function tabsOf(filter: TreeFilter, isNamed: (name: TreeFilter) => boolean): readonly Span[] {
  return TREE_FILTERS.map((name, at) => {
    const text = isNamed(name) ? `${at + 1} ${name}` : String(at + 1);
    return name === filter
      ? { text: `[${text}]`, style: 'key' }
      : { text: ` ${text} `, style: 'dim' };
  });
}

function body(state: BrowserState): readonly FrameRow[] {
  const { bodyRows, treeColumns, border } = layoutOf(state);
  const lines = Array.from({ length: bodyRows }, (_, at) => at);
  if (state.mode.kind === 'help') {
    const help = helpLines(state.size.columns);
    const { scroll } = state.mode;
    return lines.map((at) => ({ left: help[scroll + at] ?? [] }));
  }
  if (treeColumns === 0) return lines.map((at) => ({ left: entryLine(state, at) }));
  const words = wordsOf(state.query);
  return lines.map((at) => {
    const left = treeLine(state, at, words);
    return border === 0 ? { left } : { left, right: entryLine(state, at) };
  });
}

const MAX_LINES_SHARE = 3;
/** Minimum columns of a tree that shows times. */
const TIMED_COLUMNS = 80;
const TIME_COLUMNS = 11;
/** Minimum columns of a tree that shows prices. */
const NOTED_COLUMNS = 40;

/** A line of the tree: cursor, connectors, place, kind, label, text, and if there is room the time. */
function treeLine(state: BrowserState, at: number, words: readonly string[]): readonly Span[] {
  const { outline, top, cursor } = state;
  const index = top + at;
  const position = outline.visible[index];
  const row = position === undefined ? undefined : outline.rows[position];
  if (!row || position === undefined) {
    const none = state.source.total === 0 ? 'no entries yet' : 'this filter shows nothing';
    const text = at === 0 ? none : '';
    return [{ text, style: 'dim' }];
  }
  const isChosen = index === cursor;
  const columns = layoutOf(state).treeColumns;
  const isFolded = outline.folded.has(row.entry.id);
  const spans: Span[] = [
    { text: isChosen ? '› ' : '  ', style: 'key' },
    { text: linesOf(row, columns), style: 'dim' },
    ...contentOf(row, words, isFolded ? countBelow(outline, position) : 0),
  ];
  const before = outline.rows[outline.visible[index - 1] ?? -1];
  const facts = turnText(state.source.turnOf(row.entry.id));
  const time = columns < TIMED_COLUMNS || row.divider ? '' : timeText(row, before);
  const line = withNote(spans, columns, [facts, time].filter((part) => part !== '').join('  '));
  return isChosen ? chosen(line, { columns, isFocused: state.focus === 'tree' }) : line;
}

/** Keeps the innermost connectors of a tree that is too deep for its pane. */
function linesOf({ lines }: TreeRow, columns: number): string {
  const most = Math.floor(columns / MAX_LINES_SHARE / 2) * 2;
  return lines.length <= most ? lines : `… ${lines.slice(lines.length - most + 2)}`;
}

function contentOf(row: TreeRow, words: readonly string[], hidden: number): readonly Span[] {
  if (row.divider) return [{ text: `── ${oneLine(row.text)} ──`, style: 'key' }];
  const kind = shortKind(row.kind).padEnd(KIND_COLUMNS);
  return [
    { text: `${placeMark(row)} `, style: row.leaf ? 'label' : row.active ? 'plain' : 'dim' },
    { text: `${oneLine(kind).padEnd(KIND_COLUMNS)} `, style: kindStyle(row.kind) },
    { text: hidden === 0 ? '' : `(+${hidden} folded) `, style: 'label' },
    { text: row.label === undefined ? '' : `[${oneLine(row.label)}] `, style: 'label' },
    { text: oneLine(row.text), style: textStyle(row, words) },
  ];
}

/** Returns the time, with the date if the day differs from that of the row before. */
function timeText({ entry }: TreeRow, before: TreeRow | undefined): string {
  const timestamp = timeOf(entry);
  const isSameDay = before && timeOf(before.entry).slice(0, 10) === timestamp.slice(0, 10);
  return oneLine(timestamp.slice(isSameDay ? 11 : 5, 16).replace('T', ' ')).padStart(TIME_COLUMNS);
}

/** Adds a note at the right edge; a narrow pane has none. */
function withNote(spans: readonly Span[], columns: number, note: string): readonly Span[] {
  if (note === '' || columns < NOTED_COLUMNS) return spans;
  const fitted = fit(spans, columns - note.length - 2);
  const width = fitted.reduce((sum, { text }) => sum + displayWidth(text), 0);
  const gap = ' '.repeat(Math.max(1, columns - width - note.length - 1));
  return [...fitted, { text: `${gap}${note}`, style: 'dim' }];
}

function placeMark({ leaf, aboveLeaf, active }: TreeRow): string {
  if (leaf) return '◆';
  if (aboveLeaf) return '◇';
  return active ? '●' : '○';
}

const KIND_COLUMNS = 5;

function kindStyle(kind: string): Style {
  if (kind === 'user') return 'user';
  if (kind === 'assistant') return 'model';
  return kind === 'tool_result' ? 'tool' : 'key';
}

function textStyle(row: TreeRow, words: readonly string[]): Style {
  if (words.length > 0 && holds(row, words)) return 'match';
  return row.active ? 'plain' : 'dim';
}

/** The chosen line as one bar over the whole width. */
function chosen(
  spans: readonly Span[],
  { columns, isFocused }: { readonly columns: number; readonly isFocused: boolean },
): readonly Span[] {
  const text = truncate(spans.map((span) => span.text).join(''), columns);
  const bar = text + ' '.repeat(Math.max(0, columns - displayWidth(text)));
  return [{ text: bar, style: isFocused ? 'chosen' : 'chosen-dim' }];
}

function entryLine(state: BrowserState, at: number): readonly Span[] {
  const row = chosenRow(state);
  if (!row) return [];
  return entryLines(row, layoutOf(state).entryColumns, state.source)[state.scroll + at] ?? [];
}

/** A ruler with the place in tree and entry, then keys, a question, what is typed, or a notice. */
function foot(state: BrowserState): readonly FrameRow[] {
  return [{ left: [{ text: ruler(state), style: 'dim' }] }, { left: footLine(state) }];
}

function ruler(state: BrowserState): string {
  const { outline, cursor, scroll, size, focus, source } = state;
  const row = chosenRow(state);
  const count = outline.visible.length;
  const parts = [`row ${Math.min(cursor + 1, count)} of ${count}`];
  const { entryColumns, bodyRows } = layoutOf(state);
  const lines = row ? entryLines(row, entryColumns, source).length : 0;
  if (lines > bodyRows && (focus === 'entry' || entryColumns < size.columns)) {
    const end = Math.min(lines, scroll + bodyRows);
    parts.push(`text: lines ${scroll + 1} to ${end} of ${lines}`);
  }
  if (outline.rows[outline.head]?.leaf !== true && source.leafId !== null) {
    const where = outline.head === -1 ? '' : ', which is below ◇';
    parts.push(`the filter hides the head${where}`);
  }
  const text = `── ${parts.join(' · ')} `;
  return text + '─'.repeat(Math.max(0, size.columns - displayWidth(text)));
}

const TREE_KEYS =
  '? help  q quit  ⏎ read  f follow  / search  v filter  ← → fold  L label  b branch  r resume';
const ENTRY_KEYS = '? help  q quit  ↑ ↓ scroll  ← tree  / search  L label  b branch  r resume';
const PROMPTS = {
  search: 'search: ',
  label: 'label (empty clears): ',
  resume: 'message (may be empty): ',
  summary: 'summary of the branch you leave: ',
} as const;

function footLine({ mode, notice, focus, size }: BrowserState): readonly Span[] {
  switch (mode.kind) {
    case 'prompt':
      return promptLine(mode, size.columns);
    case 'confirm':
      return [
        { text: 'y/n ', style: 'warn' },
        { text: mode.question, style: 'plain' },
      ];
    case 'help':
      return [{ text: '↑ ↓ scroll, any other key goes back', style: 'dim' }];
    case 'browse':
      if (notice !== '') return [{ text: oneLine(notice), style: 'warn' }];
      return [{ text: focus === 'tree' ? TREE_KEYS : ENTRY_KEYS, style: 'dim' }];
  }
}

/** Shows the end of the typed text. */
function promptLine(
  { prompt, text }: Extract<Mode, { kind: 'prompt' }>,
  columns: number,
): readonly Span[] {
  const question = PROMPTS[prompt];
  const room = Math.max(1, columns - question.length - 1);
  // the bar keeps a space at the end
  let shown = oneLine(`${text}|`).slice(0, -1);
  while (displayWidth(shown) > room) shown = graphemesOf(shown).slice(1).join('');
  return [
    { text: question, style: 'key' },
    { text: shown, style: 'plain' },
    { text: '█', style: 'plain' },
  ];
}
