import {
  TREE_FILTERS,
  type TreeFilter,
  type TreeRow,
  type TurnFacts,
} from '../../../kernel/app/api/trees.ts';
import { entryLines } from './entry-lines.ts';
import { type Focus, layoutOf, type Size } from './layout.ts';
import { indexOfRow, type Outline, outlineOf, withFolds } from './outline.ts';

/** The tree that the browser shows. */
export interface TreeSource {
  /** The thread that the conversation continues in. */
  readonly threadId: string;
  /** The first thread of the session, if it was handed off. */
  readonly firstThreadId?: string;
  readonly title: string | null;
  readonly total: number;
  readonly leafId: string | null;
  rows(filter: TreeFilter): readonly TreeRow[];
  /** True if the context of the entry's branch holds the entry. */
  readonly isSent: (entry: string) => boolean;
  /** The price and the time of an answer. */
  readonly turnOf: (entry: string) => TurnFacts | undefined;
}

/** A side effect that the browser requests. */
export type Effect =
  | { readonly kind: 'quit' }
  | { readonly kind: 'label'; readonly entry: string; readonly label: string | null }
  /** `model`: the browser is left, because the summary costs a model call. */
  | {
      readonly kind: 'branch';
      readonly entry: string;
      readonly summary?: 'model' | { readonly text: string };
    }
  | { readonly kind: 'open'; readonly thread: string }
  | { readonly kind: 'back' }
  | { readonly kind: 'follow' }
  | { readonly kind: 'resume'; readonly entry: string; readonly message: string };

/** Purpose of the prompt at the bottom of the screen. */
export type PromptKind = 'search' | 'label' | 'resume' | 'summary';

export type Mode =
  | { readonly kind: 'browse' }
  | { readonly kind: 'help'; readonly scroll: number }
  | { readonly kind: 'prompt'; readonly prompt: PromptKind; readonly text: string }
  /** `others` are further answers than yes, by their keys. */
  | {
      readonly kind: 'confirm';
      readonly question: string;
      readonly effect: Effect;
      readonly others?: Readonly<Record<string, Effect | PromptKind>>;
    };

/** Everything that the screen depends on. Immutable: a key produces a new state. */
export interface BrowserState {
  readonly source: TreeSource;
  /** The threads that led to this one, from the first. */
  readonly trail: readonly string[];
  /** True while new entries are shown as they are written. */
  readonly isFollowing: boolean;
  readonly size: Size;
  readonly filter: TreeFilter;
  readonly outline: Outline;
  /** Index in the outline's `visible`. */
  readonly cursor: number;
  /** Index of the first row on the screen. */
  readonly top: number;
  readonly focus: Focus;
  /** First line of the entry on the screen. */
  readonly scroll: number;
  readonly mode: Mode;
  /** Last search query. */
  readonly query: string;
  /** One line for the person, which the next key removes. */
  readonly notice: string;
}

export const BROWSE: Mode = { kind: 'browse' };

/** Returns the first state: everything unfolded, the first entry selected. */
export function openState(
  source: TreeSource,
  size: Size,
  trail: readonly string[] = [],
): BrowserState {
  const state: BrowserState = {
    source,
    trail,
    isFollowing: false,
    size,
    filter: 'default',
    outline: outlineOf(source.rows('default')),
    cursor: 0,
    top: 0,
    focus: 'tree',
    scroll: 0,
    mode: BROWSE,
    query: '',
    notice: '',
  };
  return inView(state);
}

/** Returns the selected row; undefined if the filter shows none. */
export function chosenRow({ outline, cursor }: BrowserState): TreeRow | undefined {
  return outline.rows[outline.visible[cursor] ?? -1];
}

/** Selects a row by its index in `visible` and scrolls no further than needed. */
export function moveTo(state: BrowserState, index: number): BrowserState {
  const last = state.outline.visible.length - 1;
  const cursor = Math.max(0, Math.min(index, last));
  const scroll = cursor === state.cursor ? state.scroll : 0;
  return inView({ ...state, cursor, scroll });
}

/** Selects a row by its position. */
export function moveToRow(state: BrowserState, at: number): BrowserState {
  return moveTo(state, indexOfRow(state.outline, at));
}

/** Scrolls the tree so that the selected row is visible and the screen is full. */
function inView(state: BrowserState): BrowserState {
  const { bodyRows } = layoutOf(state);
  const { cursor, outline } = state;
  const lastTop = Math.max(0, outline.visible.length - bodyRows);
  const top = Math.min(Math.max(state.top, cursor - bodyRows + 1), cursor, lastTop);
  return { ...state, top: Math.max(0, top) };
}

/** Selects the head, or its nearest shown ancestor. */
export function atLeaf(state: BrowserState): BrowserState {
  return moveToRow(state, Math.max(0, state.outline.head));
}

/** Changes the filter. Keeps the selection, or moves it to the nearest visible row before it. */
export function withFilter(state: BrowserState, filter: TreeFilter): BrowserState {
  return withRows({ ...state, filter }, chosenRow(state)?.entry);
}

/** Replaces the tree after a write. A follower that looks at the head stays with it. */
export function withSource(state: BrowserState, source: TreeSource, notice: string): BrowserState {
  const isAtHead = state.isFollowing && state.outline.visible[state.cursor] === state.outline.head;
  const next = withRows({ ...state, source }, isAtHead ? undefined : chosenRow(state)?.entry);
  return { ...next, notice };
}

function withRows(state: BrowserState, chosen: TreeRow['entry'] | undefined): BrowserState {
  const whole = outlineOf(state.source.rows(state.filter));
  const outline = withFolds(whole, state.outline.folded);
  const next = { ...state, outline, scroll: 0 };
  return chosen ? moveToRow(next, nearestRow(outline.rows, chosen)) : atLeaf(next);
}

/** Returns the row of this entry, or the nearest one before it in its thread. */
function nearestRow(rows: readonly TreeRow[], { thread_id, seq }: TreeRow['entry']): number {
  let best = 0;
  let bestSeq = -1;
  for (const [at, { entry }] of rows.entries()) {
    if (entry.thread_id !== thread_id || entry.seq > seq || entry.seq < bestSeq) continue;
    best = at;
    bestSeq = entry.seq;
  }
  return best;
}

/** Returns the filter `step` places further, wrapping around. */
export function nextFilter(filter: TreeFilter, step: number): TreeFilter {
  const { length } = TREE_FILTERS;
  return TREE_FILTERS[(TREE_FILTERS.indexOf(filter) + step + length) % length] ?? 'default';
}

/** Scrolls the entry, no further than its end. */
export function scrollTo(state: BrowserState, line: number): BrowserState {
  const row = chosenRow(state);
  if (!row) return state;
  const { entryColumns, bodyRows } = layoutOf(state);
  const last = entryLines(row, entryColumns, state.source).length - bodyRows;
  return { ...state, scroll: Math.max(0, Math.min(line, last)) };
}

/** Adapts the state to another screen size. */
export function withSize(state: BrowserState, size: Size): BrowserState {
  return inView(scrollTo({ ...state, size }, state.scroll));
}
