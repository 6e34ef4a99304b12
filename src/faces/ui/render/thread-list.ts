import type { ListedThread } from '../../../kernel/app/api/threads.ts';
import { isFinal, type ThreadRecord } from '../../../kernel/core/thread.ts';
import { addSpend, formatSeconds, formatSpend } from '../../../kernel/core/usage.ts';
import { count, formatTable, resultText } from '../../cli/output.ts';
import type { Sink } from '../io.ts';
import { type Colors, displayWidth, graphemesOf, type Paint, truncate } from '../terminal-text.ts';
import { joined, oneLine, partOf, type Shown, shown } from '../visible.ts';
import { workOf } from './status-mark.ts';

/** Narrower terminals get fewer columns. */
const WIDE = 80;
/** Narrower terminals get no labels. */
const LABELED = 100;
const MAX_LABEL = 32;
const MAX_RESULT = 120;
const SECOND = 1000;
const DAYS_SHOWN = 14;

/** Formats a time as `12s ago`, `2m ago`, `3h ago` or `4d ago`, and an older one as its date. */
export function formatAge(iso: string, now: number): string {
  const seconds = Math.max(0, Math.floor((now - Date.parse(iso)) / SECOND));
  if (seconds < 60) return `${seconds}s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h ago`;
  const days = Math.floor(seconds / 86_400);
  return days <= DAYS_SHOWN ? `${days}d ago` : iso.slice(0, 10);
}

/** Returns the status for people. */
function stateOf({ status, process_gone, directive, chain = [] }: ListedThread): string {
  const handoffs = chain.length > 1 ? `, ${count(chain.length - 1, 'handoff')}` : '';
  const origin = directive.startsWith('imported/') ? ' (imported)' : '';
  return `${status}${process_gone === true ? ' (crashed)' : ''}${origin}${handoffs}`;
}

/** Returns the error or the first line of the result as plain text. */
export function summaryOf(thread: ListedThread): string {
  if (thread.error !== null) return truncate(thread.error.message, MAX_RESULT);
  if (thread.outputs !== null) return truncate(resultText(thread), MAX_RESULT);
  const lines = (thread.result ?? '').split('\n').map(withoutMarkdown);
  return truncate(lines.find((line) => line !== '') ?? '', MAX_RESULT);
}

function withoutMarkdown(line: string): string {
  const text = line
    .replace(/^\s*(?:#{1,6}\s+|>\s?|[-*+]\s+|```.*|~~~.*|\|?(?:\s*:?-{2,}:?\s*\|)+.*)/, '')
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/\*\*|__|`/g, '')
    .replaceAll(/^\s*\||\|\s*$/g, '');
  return text.trim();
}

/** Formats the children of a thread as `✓ 20/20`: how many have ended well, of all. */
function childrenOf(thread: ListedThread, below: readonly ThreadRecord[]): string {
  const ids = new Set(idsOf(thread));
  const children = below.filter(
    ({ parent_id: parent, continuation_thread_id: next }) =>
      parent !== null && ids.has(parent) && next === null,
  );
  if (children.length === 0) return '';
  const good = children.filter(({ status }) => status === 'completed').length;
  const isOver = children.every(({ status }) => isFinal(status));
  const mark = isOver ? (good === children.length ? '✓' : '✗') : '…';
  return `${mark} ${good}/${children.length}`;
}

export interface ListStyle {
  readonly sink: Sink;
  readonly colors: Colors;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** Tells how to see the others. */
  readonly hint: Shown | undefined;
}

/** Lines of a terminal that a list leaves to its heading, its sums, a hint and the prompts around it. */
const OTHER_LINES = 8;
const LEAST_ROWS = 5;
const PIPE_ROWS = 30;

/** Returns how many threads a list shows: one screen, or a page in a pipe. */
export function pageSize({ isTty, rows }: Sink): number {
  return isTty ? Math.max(LEAST_ROWS, rows - OTHER_LINES) : PIPE_ROWS;
}

/** Counts and threads that a list does not show as rows. */
export interface OtherThreads {
  /** Number of rows without the bound of the page. */
  readonly rows: number;
  /** Number of all threads that fit the filter, and how many of them run. */
  readonly threads: number;
  readonly running: number;
  /** The threads below those that are shown. */
  readonly below: readonly ThreadRecord[];
}

/** Formats a list for a terminal: what a person looks for first, as much as fits, and the sums. */
export function threadTable(
  listed: readonly ListedThread[],
  others: OtherThreads,
  { sink, colors, now, hint }: ListStyle,
): readonly Shown[] {
  const hasLabels = listed.some((thread) => workOf(thread) !== '');
  const isLabeled = hasLabels && sink.columns >= LABELED;
  const children = listed.map((thread) => childrenOf(thread, others.below));
  const hasChildren = sink.columns >= WIDE && children.some((text) => text !== '');
  const hasTime = sink.columns >= (hasLabels ? LABELED : WIDE);
  const rows = listed.map((thread, at) => [
    thread.chain?.[0] ?? thread.thread_id,
    ...(isLabeled ? [truncate(workOf(thread), MAX_LABEL)] : []),
    stateOf(thread),
    ...(hasChildren ? [children[at] ?? ''] : []),
    ...(hasTime ? [timeOf(thread)] : []),
    formatSpend(thread.cost.total),
    formatAge(thread.created_at, now),
    (isLabeled ? '' : workOf(thread)) || summaryOf(thread),
  ]);
  const headings = [
    'THREAD',
    ...(isLabeled ? ['LABEL'] : []),
    'STATUS',
    ...(hasChildren ? ['CHILDREN'] : []),
    ...(hasTime ? ['TIME'] : []),
    'SPEND',
    'CREATED',
    hasLabels && !isLabeled ? 'ABOUT' : 'RESULT',
  ];
  const [head = shown``, ...lines] = formatTable(headings, rows, sink);
  return [
    colors.dim(head),
    ...lines.map((line, at) => colored(line, listed[at], { colors, from: head.indexOf('STATUS') })),
    ...(hint === undefined ? [] : [colors.dim(hint)]),
    colors.dim(totals(listed, others)),
  ];
}

/** Formats a list for a pipe: no sums, the times in ISO 8601. */
export function plainTable(listed: readonly ListedThread[], sink: Sink): readonly Shown[] {
  const isLabeled = listed.some((thread) => workOf(thread) !== '');
  const rows = listed.map((thread) => [
    thread.chain?.[0] ?? thread.thread_id,
    ...(isLabeled ? [workOf(thread)] : []),
    stateOf(thread),
    thread.created_at,
    String(thread.cost.turns),
    formatSpend(thread.cost.total),
    summaryOf(thread),
  ]);
  const labels = isLabeled ? ['LABEL'] : [];
  return formatTable(
    ['THREAD', ...labels, 'STATUS', 'CREATED', 'TURNS', 'SPEND', 'RESULT'],
    rows,
    sink,
  );
}

function timeOf({ cost, status }: ListedThread): string {
  return isFinal(status) ? formatSeconds(cost.elapsed_seconds) : '';
}

/** Returns where a column of the screen begins in the text of a line: wide characters take two. */
function statusStart(line: string, column: number): number {
  let start = 0;
  let width = 0;
  for (const grapheme of graphemesOf(line)) {
    if (width >= column) break;
    width += displayWidth(grapheme);
    start += grapheme.length;
  }
  return start;
}

/** Paints the status, which is in the column `from`; other columns may have the same word. */
function colored(
  line: Shown,
  thread: ListedThread | undefined,
  { colors, from }: { readonly colors: Colors; readonly from: number },
): Shown {
  if (!thread) return line;
  const paints: Readonly<Record<string, Paint>> = {
    completed: colors.green,
    error: colors.red,
    cancelled: colors.yellow,
    suspended: colors.yellow,
    running: colors.cyan,
  };
  const paint = paints[thread.status] ?? colors.dim;
  const at = line.indexOf(thread.status, statusStart(line, from));
  if (at === -1) return line;
  const end = at + thread.status.length;
  return shown`${partOf(line, 0, at)}${paint(partOf(line, at, end))}${partOf(line, end)}`;
}

/** Formats `95 threads (20 shown) · 3 running · $1.24`. The money is that of the rows, so it is not the sum if some are missing. */
function totals(
  listed: readonly ListedThread[],
  { rows, threads, running, below }: OtherThreads,
): Shown {
  const parents = new Map<string, string | null>();
  for (const { thread_id: id, parent_id: parent } of below) parents.set(id, parent);
  for (const row of listed) for (const id of idsOf(row)) parents.set(id, row.parent_id);
  const counted = new Set(listed.flatMap(idsOf));
  // a row has the money of its descendants
  const isBelow = (thread: ListedThread): boolean => {
    const seen = new Set<string>();
    for (let id = thread.parent_id; id !== null && !seen.has(id); ) {
      if (counted.has(id)) return true;
      seen.add(id);
      id = parents.get(id) ?? null;
    }
    return false;
  };
  const spent = listed
    .filter((thread) => !isBelow(thread))
    .map(({ cost }) => cost.total)
    .reduce(addSpend, { spend: 0 });
  const isPart = listed.length < rows;
  const shownRows = isPart || listed.length === threads ? '' : ` (${listed.length} shown)`;
  const parts = [
    `${grouped(threads)} thread${threads === 1 ? '' : 's'}${shownRows}`,
    ...(running === 0 ? [] : [`${running} running`]),
    `${formatSpend(spent)}${isPart ? ` for the ${listed.length} shown` : ''}`,
  ];
  return joined(parts.map(oneLine), ' · ');
}

/** Formats `10,001`. */
export function grouped(value: number): string {
  return String(value).replaceAll(/\B(?=(?:\d{3})+$)/g, ',');
}

function idsOf({ thread_id: id, chain = [] }: ListedThread): readonly string[] {
  return [id, ...chain];
}
