import { childThreadOf, TREE_FILTERS, type TreeRow } from '../../../kernel/app/api/trees.ts';
import { graphemesOf } from '../terminal-text.ts';
import { helpLines } from './help.ts';
import { layoutOf } from './layout.ts';
import { findRow, isFoldable, reveal, withFolds } from './outline.ts';
import {
  atLeaf,
  BROWSE,
  type BrowserState,
  chosenRow,
  type Effect,
  type Mode,
  moveTo,
  moveToRow,
  nextFilter,
  type PromptKind,
  scrollTo,
  withFilter,
} from './state.ts';

/** A key by name, such as `up`, `ctrl+c` or `g`; `text` is the text that it types. */
export interface Key {
  readonly name: string;
  readonly text?: string;
}

/** Outcome of a key. */
export interface Step {
  readonly state: BrowserState;
  readonly effect?: Effect;
}

type Move = (state: BrowserState) => BrowserState;

/** Returns the state after a key. Pure: side effects are returned as an effect. */
export function update(last: BrowserState, key: Key): Step {
  const state = last.notice === '' ? last : { ...last, notice: '' };
  if (key.name === 'ctrl+c') return { state, effect: { kind: 'quit' } };
  switch (state.mode.kind) {
    case 'help':
      return { state: { ...state, mode: helped(state, state.mode.scroll, key) } };
    case 'prompt':
      return typed(state, state.mode, key);
    case 'confirm':
      return confirmed(state, state.mode, key);
    case 'browse':
      return browsed(state, key);
  }
}

function browsed(state: BrowserState, { name }: Key): Step {
  if (name === 'q') return { state, effect: { kind: 'quit' } };
  const common = EVERYWHERE.get(name);
  if (common) return { state: common(state) };
  if (name === 'f' || name === 'shift+f') return { state, effect: { kind: 'follow' } };
  if (state.focus === 'tree') {
    if (name === 'backspace' || name === 'escape') return { state, effect: { kind: 'back' } };
    const thread = name === 'enter' ? threadOf(state) : undefined;
    if (thread !== undefined) return { state, effect: { kind: 'open', thread } };
  }
  const move = (state.focus === 'tree' ? IN_TREE : IN_ENTRY).get(name);
  return { state: move ? move(state) : state };
}

/** Returns the thread that the chosen row leads to. */
function threadOf(state: BrowserState): string | undefined {
  const row = chosenRow(state);
  return row && childThreadOf(row.entry);
}

/** Scrolls help that is longer than the screen; another key closes it. */
function helped({ size, focus }: BrowserState, scroll: number, { name }: Key): Mode {
  const steps: Readonly<Record<string, number>> = { up: -1, k: -1, down: 1, j: 1 };
  const step = steps[name];
  if (step === undefined) return BROWSE;
  const last = helpLines(size.columns).length - layoutOf({ size, focus }).bodyRows;
  return { kind: 'help', scroll: Math.max(0, Math.min(scroll + step, last)) };
}

function page({ size, focus }: BrowserState): number {
  return Math.max(1, layoutOf({ size, focus }).bodyRows - 1);
}

const treeBy =
  (rows: (state: BrowserState) => number): Move =>
  (state) =>
    moveTo(state, state.cursor + rows(state));

const entryBy =
  (lines: (state: BrowserState) => number): Move =>
  (state) =>
    scrollTo(state, state.scroll + lines(state));

const half = (state: BrowserState): number => Math.ceil(page(state) / 2);
const toFocus =
  (focus: BrowserState['focus']): Move =>
  (state) => ({ ...state, focus });
const prompt =
  (kind: PromptKind): Move =>
  (state) => {
    const row = chosenRow(state);
    if (!row) return state;
    if (row.divider && kind !== 'search') return { ...state, notice: 'choose an entry first' };
    const refusal = kind === 'resume' ? refusalOf(state, row) : undefined;
    if (refusal !== undefined) return { ...state, notice: refusal };
    return { ...state, mode: { kind: 'prompt', prompt: kind, text: textFor(state, kind) } };
  };

function textFor(state: BrowserState, kind: PromptKind): string {
  return kind === 'label' ? (chosenRow(state)?.label ?? '') : '';
}

/** Keys with the same meaning in both panes. */
const EVERYWHERE: ReadonlyMap<string, Move> = new Map<string, Move>([
  ...TREE_FILTERS.map((filter, at): [string, Move] => [
    String(at + 1),
    (state) => withFilter(state, filter),
  ]),
  ['v', (state) => withFilter(state, nextFilter(state.filter, 1))],
  ['ctrl+o', (state) => withFilter(state, nextFilter(state.filter, 1))],
  ['shift+ctrl+o', (state) => withFilter(state, nextFilter(state.filter, -1))],
  ['p', (state) => withFilter(state, nextFilter(state.filter, -1))],
  ['/', prompt('search')],
  ['n', (state) => found(state, 1)],
  ['shift+n', (state) => found(state, -1)],
  ['shift+l', prompt('label')],
  ['b', askBranch],
  ['r', prompt('resume')],
  ['a', atLeaf],
  ['tab', (state) => ({ ...state, focus: state.focus === 'tree' ? 'entry' : 'tree' })],
  ['?', (state) => ({ ...state, mode: { kind: 'help', scroll: 0 } })],
]);

const IN_TREE: ReadonlyMap<string, Move> = new Map<string, Move>([
  ['up', treeBy(() => -1)],
  ['k', treeBy(() => -1)],
  ['down', treeBy(() => 1)],
  ['j', treeBy(() => 1)],
  ['pageUp', treeBy((state) => -page(state))],
  ['pageDown', treeBy(page)],
  ['space', treeBy(page)],
  ['ctrl+u', treeBy((state) => -half(state))],
  ['ctrl+d', treeBy(half)],
  ['home', (state) => moveTo(state, 0)],
  ['g', (state) => moveTo(state, 0)],
  ['end', (state) => moveTo(state, state.outline.visible.length - 1)],
  ['shift+g', (state) => moveTo(state, state.outline.visible.length - 1)],
  ['left', foldOrBack],
  ['h', foldOrBack],
  ['right', unfoldOrOn],
  ['l', unfoldOrOn],
  ['enter', toFocus('entry')],
]);

const IN_ENTRY: ReadonlyMap<string, Move> = new Map<string, Move>([
  ['up', entryBy(() => -1)],
  ['k', entryBy(() => -1)],
  ['down', entryBy(() => 1)],
  ['j', entryBy(() => 1)],
  ['pageUp', entryBy((state) => -page(state))],
  ['pageDown', entryBy(page)],
  ['space', entryBy(page)],
  ['ctrl+u', entryBy((state) => -half(state))],
  ['ctrl+d', entryBy(half)],
  ['home', (state) => scrollTo(state, 0)],
  ['g', (state) => scrollTo(state, 0)],
  ['end', (state) => scrollTo(state, Number.MAX_SAFE_INTEGER)],
  ['shift+g', (state) => scrollTo(state, Number.MAX_SAFE_INTEGER)],
  ['left', toFocus('tree')],
  ['h', toFocus('tree')],
  ['escape', toFocus('tree')],
  ['enter', toFocus('tree')],
]);

/** Folds the branch that starts here, or moves back to the start of the branch. */
function foldOrBack(state: BrowserState): BrowserState {
  const { outline, cursor } = state;
  const at = outline.visible[cursor];
  const row = chosenRow(state);
  if (at === undefined || row === undefined) return state;
  if (isFoldable(outline, at) && !outline.folded.has(row.entry.id)) {
    const folds = new Set([...outline.folded, row.entry.id]);
    return moveToRow({ ...state, outline: withFolds(outline, folds) }, at);
  }
  const start = outline.starts[at] ?? at;
  return moveToRow(state, start === at ? Math.max(0, at - 1) : start);
}

/** Opens a fold, or moves to the start of the next branch. */
function unfoldOrOn(state: BrowserState): BrowserState {
  const { outline, cursor } = state;
  const at = outline.visible[cursor];
  const row = chosenRow(state);
  if (at === undefined || row === undefined) return state;
  if (outline.folded.has(row.entry.id)) {
    const folds = new Set([...outline.folded].filter((id) => id !== row.entry.id));
    return moveToRow({ ...state, outline: withFolds(outline, folds) }, at);
  }
  const { visible, starts } = outline;
  let index = cursor + 1;
  while (index < visible.length && starts[visible[index] ?? 0] !== visible[index]) index += 1;
  return moveTo(state, index);
}

/** Moves to the next match, wrapping around at the ends of the tree. */
function found(state: BrowserState, step: 1 | -1): BrowserState {
  if (state.query === '') return { ...state, notice: 'press / to search first' };
  const from = state.outline.visible[state.cursor] ?? 0;
  const at = findRow(state.outline.rows, state.query, { from, step });
  if (at === undefined) return { ...state, notice: `no match for “${state.query}”` };
  const outline = reveal(state.outline, at);
  const next = moveToRow({ ...state, outline }, at);
  const isWrapped = step === 1 ? at <= from : at >= from;
  return isWrapped ? { ...next, notice: 'search wrapped around' } : next;
}

/** The conversation continues in the last thread of a session; an entry of an earlier one can be forked. */
function refusalOf({ source }: BrowserState, { entry }: TreeRow): string | undefined {
  const { id, thread_id: thread } = entry;
  if (thread === source.threadId) return undefined;
  return `${thread} was handed off. To fork it: rye threads branch ${thread} --at ${id} --new`;
}

function askBranch(state: BrowserState): BrowserState {
  const row = chosenRow(state);
  if (!row) return state;
  if (row.divider) return { ...state, notice: 'choose an entry first' };
  if (row.leaf) return { ...state, notice: 'the head is there already' };
  const refusal = refusalOf(state, row);
  if (refusal !== undefined) return { ...state, notice: refusal };
  const { id: entry } = row.entry;
  return {
    ...state,
    mode: {
      kind: 'confirm',
      question: `Move the head to ${entry.slice(0, 8)}?  m: model summary  t: own summary`,
      effect: { kind: 'branch', entry },
      others: { m: { kind: 'branch', entry, summary: 'model' }, t: 'summary' },
    },
  };
}

function confirmed(
  state: BrowserState,
  { effect, others }: Extract<Mode, { kind: 'confirm' }>,
  { name }: Key,
): Step {
  const rest = { ...state, mode: BROWSE };
  const other = others?.[name];
  if (typeof other === 'string') {
    return { state: { ...state, mode: { kind: 'prompt', prompt: other, text: '' } } };
  }
  if (other) return { state: rest, effect: other };
  if (name === 'y' || name === 'shift+y') return { state: rest, effect };
  if (name === 'n' || name === 'escape' || name === 'q') {
    return { state: { ...rest, notice: 'nothing was changed' } };
  }
  return { state };
}

function typed(state: BrowserState, mode: Extract<Mode, { kind: 'prompt' }>, key: Key): Step {
  const { text } = mode;
  const retyped = (next: string): Step => ({ state: { ...state, mode: { ...mode, text: next } } });
  switch (key.name) {
    case 'escape':
      return { state: { ...state, mode: BROWSE } };
    case 'enter':
      return entered({ ...state, mode: BROWSE }, mode);
    case 'backspace':
      return retyped(graphemesOf(text).slice(0, -1).join(''));
    case 'ctrl+u':
      return retyped('');
    case 'ctrl+w':
      return retyped(text.trimEnd().replace(/\S+$/, ''));
    default:
      return key.text === undefined ? { state } : retyped(text + key.text);
  }
}

function entered(
  state: BrowserState,
  { prompt: kind, text }: Extract<Mode, { kind: 'prompt' }>,
): Step {
  const row = chosenRow(state);
  if (!row) return { state };
  const { id } = row.entry;
  switch (kind) {
    case 'search':
      return { state: found(text === '' ? state : { ...state, query: text }, 1) };
    case 'label': {
      const label = text.trim();
      return { state, effect: { kind: 'label', entry: id, label: label === '' ? null : label } };
    }
    case 'summary': {
      const summary = text.trim();
      if (summary === '') return { state: { ...state, notice: 'nothing was changed' } };
      return { state, effect: { kind: 'branch', entry: id, summary: { text: summary } } };
    }
    case 'resume': {
      const message = text.trim();
      const what = message === '' ? 'without a message' : 'with that message';
      const question = `Leave the browser and resume the thread from ${id} ${what}?`;
      const effect: Effect = { kind: 'resume', entry: id, message };
      return { state: { ...state, mode: { kind: 'confirm', question, effect } } };
    }
  }
}
