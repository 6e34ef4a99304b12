import type { ListedThread } from '../../app/api/threads.ts';
import { isFinal } from '../../core/thread.ts';
import { formatSeconds, formatUsd } from '../../core/usage.ts';
import type { Sink } from '../io.ts';
import { count, formatTable, resultText } from '../output.ts';
import { type Colors, oneLine, truncate } from '../terminal-text.ts';
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
function stateOf({ status, process_gone, chain = [] }: ListedThread): string {
  const handoffs = chain.length > 1 ? `, ${count(chain.length - 1, 'handoff')}` : '';
  return `${status}${process_gone === true ? ' (crashed)' : ''}${handoffs}`;
}

/** Returns the error or the first line of the result as plain text. */
export function summaryOf(thread: ListedThread): string {
  if (thread.error !== null) return truncate(oneLine(thread.error.message), MAX_RESULT);
  if (thread.outputs !== null) return truncate(oneLine(resultText(thread)), MAX_RESULT);
  const lines = (thread.result ?? '').split('\n').map(withoutMarkdown);
  return truncate(lines.find((line) => line !== '') ?? '', MAX_RESULT);
}

function withoutMarkdown(line: string): string {
  const text = line
    .replace(/^\s*(?:#{1,6}\s+|>\s?|[-*+]\s+|```.*|~~~.*|\|?(?:\s*:?-{2,}:?\s*\|)+.*)/, '')
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/\*\*|__|`/g, '')
    .replaceAll(/^\s*\||\|\s*$/g, '');
  return oneLine(text);
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
}

/** Formats a list for a terminal: what a person looks for first, as much as fits, and the sums. */
export function threadTable(
  shown: readonly ListedThread[],
  all: readonly ListedThread[],
  { sink, colors, now }: ListStyle,
): readonly string[] {
  const isWide = sink.columns >= WIDE;
  const isLabeled = sink.columns >= LABELED && shown.some((thread) => workOf(thread) !== '');
  const rows = shown.map((thread) => [
    thread.chain?.[0] ?? thread.thread_id,
    ...(isLabeled ? [truncate(workOf(thread), MAX_LABEL)] : []),
    stateOf(thread),
    ...(isWide ? [childrenOf(thread, all), timeOf(thread)] : []),
    formatUsd(thread.cost.total.spend),
    formatAge(thread.created_at, now),
    summaryOf(thread),
  ]);
  const wide = isWide ? ['CHILDREN', 'TIME'] : [];
  const labels = isLabeled ? ['LABEL'] : [];
  const headings = ['THREAD', ...labels, 'STATUS', ...wide, 'SPEND', 'CREATED', 'RESULT'];
  const [head = '', ...lines] = formatTable(headings, rows, sink);
  return [
    colors.dim(head),
    ...lines.map((line, at) => colored(line, shown[at], colors)),
    colors.dim(totals(all, shown.length)),
  ];
}

/** Formats a list for a pipe: no sums, the times in ISO 8601. */
export function plainTable(shown: readonly ListedThread[], sink: Sink): readonly string[] {
  const isLabeled = shown.some((thread) => workOf(thread) !== '');
  const rows = shown.map((thread) => [
    thread.chain?.[0] ?? thread.thread_id,
    ...(isLabeled ? [workOf(thread)] : []),
    stateOf(thread),
    thread.created_at,
    String(thread.cost.turns),
    formatUsd(thread.cost.total.spend),
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

function colored(line: string, thread: ListedThread | undefined, colors: Colors): string {
  if (!thread) return line;
  const paints: Readonly<Record<string, (text: string) => string>> = {
    completed: colors.green,
    error: colors.red,
    cancelled: colors.yellow,
    suspended: colors.yellow,
    running: colors.cyan,
  };
  const paint = paints[thread.status] ?? colors.dim;
  const start = line.indexOf('  ');
  const at = line.indexOf(thread.status, start);
  if (start === -1 || at === -1) return line;
  const end = at + thread.status.length;
  return `${line.slice(0, at)}${paint(line.slice(at, end))}${line.slice(end)}`;
}

/** Formats `95 threads (20 shown) · 3 running · $1.24`. */
function totals(all: readonly ListedThread[], shown: number): string {
  const running = all.filter(({ status }) => status === 'running').length;
  const spend = all.reduce((sum, { cost }) => sum + cost.spend, 0);
  const hidden = shown < all.length ? ` (${shown} shown)` : '';
  return [
    `${count(all.length, 'thread')}${hidden}`,
    ...(running === 0 ? [] : [`${running} running`]),
    formatUsd(spend),
  ].join(' · ');
}
