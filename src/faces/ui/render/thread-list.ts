import type { ListedThread } from '../../../kernel/app/api/threads.ts';
import { isFinal } from '../../../kernel/core/thread.ts';
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
function childrenOf(thread: ListedThread, all: readonly ListedThread[]): string {
  const ids = new Set([thread.thread_id, ...(thread.chain ?? [])]);
  const children = all.filter(({ parent_id: parent }) => parent !== null && ids.has(parent));
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
  /** Number of threads without the bound of the screen. */
  readonly total: number;
}

/** Lines of a terminal that a list leaves to its heading, its sums, a hint and the prompts around it. */
const OTHER_LINES = 8;
const LEAST_ROWS = 5;

/** Returns how many threads a list shows on one screen; undefined: it is no terminal. */
export function screenful({ isTty, rows }: Sink): number | undefined {
  return isTty ? Math.max(LEAST_ROWS, rows - OTHER_LINES) : undefined;
}

interface ListedThreads {
  /** Threads that fit the filter, without the bound of the screen. */
  readonly found: readonly ListedThread[];
  /** All threads, for the children of those that are shown. */
  readonly every: readonly ListedThread[];
}

/** Formats a list for a terminal: what a person looks for first, as much as fits, and the sums. */
export function threadTable(
  listed: readonly ListedThread[],
  { found, every }: ListedThreads,
  { sink, colors, now, total }: ListStyle,
): readonly Shown[] {
  const more = total - listed.length;
  const hasLabels = listed.some((thread) => workOf(thread) !== '');
  const isLabeled = hasLabels && sink.columns >= LABELED;
  const children = listed.map((thread) => childrenOf(thread, every));
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
    ...(more === 0
      ? []
      : [colors.dim(shown`${more} more; to list them: rye threads --limit ${total}`)]),
    colors.dim(totals({ found, every }, listed.length)),
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

/** Formats `95 threads (20 shown) · 3 running · $1.24`. */
function totals({ found, every }: ListedThreads, rows: number): Shown {
  const running = found.filter(({ status }) => status === 'running').length;
  const known = new Map(every.flatMap((row) => idsOf(row).map((id) => [id, row] as const)));
  const counted = new Set(found.flatMap(idsOf));
  // a row has the money of its descendants
  const isBelow = (thread: ListedThread): boolean => {
    const seen = new Set<string>();
    for (let id = thread.parent_id; id !== null && !seen.has(id); ) {
      if (counted.has(id)) return true;
      seen.add(id);
      id = known.get(id)?.parent_id ?? null;
    }
    return false;
  };
  const spent = found
    .filter((thread) => !isBelow(thread))
    .map(({ cost }) => cost.total)
    .reduce(addSpend, { spend: 0 });
  const hidden = rows < found.length ? ` (${rows} shown)` : '';
  const parts = [
    shown`${count(found.length, 'thread')}${oneLine(hidden)}`,
    ...(running === 0 ? [] : [shown`${running} running`]),
    oneLine(formatSpend(spent)),
  ];
  return joined(parts, ' · ');
}

function idsOf({ thread_id: id, chain = [] }: ListedThread): readonly string[] {
  return [id, ...chain];
}
