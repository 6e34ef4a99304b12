import type { ThreadTreeNode } from '../../app/api/threads.ts';
import { type CostedThread, isFinal } from '../../core/thread.ts';
import {
  addFamilyCost,
  addSpend,
  formatSeconds,
  formatSpend,
  toMicroUsd,
  toUsd,
} from '../../core/usage.ts';
import { type Colors, clipStyled, displayWidth, truncate } from '../terminal-text.ts';
import { oneLine } from '../visible.ts';
import type { Paint } from './spans.ts';
import { stateMark, stateWord, workOf } from './status-mark.ts';
import { formatAge } from './thread-list.ts';

export interface TreeStyle {
  readonly colors: Colors;
  /** Columns at which lines are cut; absent: nothing is cut, and states and ids are always named. */
  readonly columns?: number | undefined;
  /** Maximum rows. If there are more, ended threads are folded first, then the rest is cut. */
  readonly rows?: number | undefined;
  /** Milliseconds since 1970, for the run time of open threads; absent: not shown. */
  readonly now?: number | undefined;
  /** True for a list of roots: one short line each, and the children only of the newest and of those that run. */
  readonly isList?: boolean;
}

/** One line before its columns are laid out. */
interface Row {
  readonly mark: string;
  readonly paint: Paint;
  readonly name: string;
  /** Its label or its inputs. */
  readonly work: string;
  readonly time: string;
  readonly spend: string;
  /** Parts after the columns, the most important first. */
  readonly tail: readonly string[];
}

interface Line {
  readonly indent: string;
  readonly text: string;
}

/** Narrower terminals show no ids of children. */
const WIDE = 72;
const GAP = '  ';
const MIN_WORK = 8;

/** Draws threads as a tree, one line each: `├─ ✓ summarize  docs20/f01.txt  0.6s  $0.0004`. */
export function drawThreadTree(
  nodes: readonly ThreadTreeNode[],
  style: TreeStyle,
): readonly string[] {
  const { rows = Number.POSITIVE_INFINITY, columns } = style;
  const whole = linesOf(nodes, { ...style, folds: false });
  const lines = whole.length > rows ? linesOf(nodes, { ...style, folds: true }) : whole;
  const shown = lines.length > rows ? lines.slice(0, rows - 1) : lines;
  const left = lines.length - shown.length;
  return [
    ...shown.map(({ indent, text }) => {
      const line = `${indent}${text}`.trimEnd();
      return columns === undefined ? line : clipStyled(line, columns);
    }),
    ...(left > 0 ? [`… ${left} more lines`] : []),
  ];
}

interface Detail extends TreeStyle {
  /** Finished siblings with finished descendants share one line. */
  readonly folds: boolean;
}

function linesOf(nodes: readonly ThreadTreeNode[], detail: Detail): readonly Line[] {
  const { isList = false } = detail;
  const roots = joinChains(nodes);
  const rows = roots.map((node) => rootRow(node, detail));
  const texts = layOut(isList ? rows : rows.slice(0, 1), 0, detail);
  return roots.flatMap((node, at) => {
    const text = texts[at] ?? layOut(rows.slice(at, at + 1), 0, detail)[0] ?? '';
    const isShown = !isList || at === 0;
    const children = isShown ? node.children : node.children.filter((child) => !isOver(child));
    return [{ indent: '', text }, ...childLines(children, '', detail)];
  });
}

/** A session: a thread, or the threads of a chain of handoffs. */
interface SessionNode extends ThreadTreeNode {
  /** The thread that the last handoff made. */
  readonly last?: string;
}

/** Makes one node of the threads of a chain: the id of the first, the status of the last, the costs and children of all. */
function joinChains(nodes: readonly ThreadTreeNode[]): readonly SessionNode[] {
  const successors = new Map(nodes.map((node) => [node.thread.continuation_of ?? '', node]));
  const ids = new Set(nodes.map(({ thread }) => thread.thread_id));
  const firsts = nodes.filter(({ thread }) => !ids.has(thread.continuation_of ?? ''));
  return firsts.map((first) => {
    let joined: SessionNode = first;
    let next = successors.get(first.thread.thread_id);
    while (next) {
      const { thread, subtree_spend: spend, children } = next;
      const cost = addFamilyCost(joined.thread.cost, thread.cost);
      const { thread_id, continuation_of } = first.thread;
      joined = {
        thread: { ...thread, thread_id, continuation_of, cost },
        subtree_spend: toUsd(toMicroUsd(joined.subtree_spend) + toMicroUsd(spend)),
        children: [...joined.children, ...children],
        last: thread.thread_id,
      };
      next = successors.get(thread.thread_id);
    }
    return joined;
  });
}

function childLines(
  threads: readonly ThreadTreeNode[],
  indent: string,
  detail: Detail,
): readonly Line[] {
  const nodes = joinChains(threads);
  const ended = detail.folds ? nodes.filter(isOver) : [];
  const shown = ended.length > 1 ? nodes.filter((node) => !isOver(node)) : nodes;
  const texts = layOut(
    shown.map((node) => rowOf(node, detail)),
    displayWidth(indent) + BRANCH.length,
    detail,
  );
  const groups = [
    ...(ended.length > 1 ? [{ text: summary(ended), children: [] }] : []),
    ...shown.map(({ children }, at) => ({ text: texts[at] ?? '', children })),
  ];
  return groups.flatMap(({ text, children }, at) => {
    const isLast = at === groups.length - 1;
    const below = childLines(children, `${indent}${isLast ? '   ' : '│  '}`, detail);
    return [{ indent: `${indent}${isLast ? LAST_BRANCH : BRANCH}`, text }, ...below];
  });
}

const BRANCH = '├─ ';
const LAST_BRANCH = '└─ ';

/** True for a thread that has ended, as have all below it. */
function isOver({ thread, children }: ThreadTreeNode): boolean {
  return isFinal(thread.status) && children.every(isOver);
}

/** Formats `37 completed, 1 error  $0.0310`. */
function summary(nodes: readonly ThreadTreeNode[]): string {
  const counts = new Map<string, number>();
  for (const { thread } of nodes) counts.set(thread.status, (counts.get(thread.status) ?? 0) + 1);
  const spent = nodes.map(({ thread }) => thread.cost.total).reduce(addSpend, { spend: 0 });
  const parts = [...counts].map(([status, count]) => `${count} ${status}`);
  return `${parts.join(', ')}${GAP}${formatSpend(spent)}`;
}

/** Draws threads one below the other without connectors, as {@link drawThreadTree} draws siblings. */
export function siblingLines(
  threads: readonly CostedThread[],
  { indent, ...style }: TreeStyle & { readonly indent: number },
): readonly string[] {
  const detail = { ...style, folds: false };
  const rows = threads.map((thread) =>
    rowOf({ thread, subtree_spend: thread.cost.total.spend, children: [] }, detail),
  );
  const { columns } = style;
  return layOut(rows, indent, detail).map((line) =>
    columns === undefined ? line : clipStyled(line, Math.max(1, columns - indent)),
  );
}

/** A root is named by its id, which the next command needs. */
function rootRow(node: SessionNode, detail: Detail): Row {
  const { thread, children } = node;
  const row = rowOf(node, detail);
  const { isList, now } = detail;
  const age = isList === true && now !== undefined ? [formatAge(thread.created_at, now)] : [];
  const isCounted = isList === true && children.length > 0;
  const work = [row.work, isCounted ? endedWell(children) : ''].filter((part) => part !== '');
  const tail = row.tail.filter((part) => part !== thread.thread_id);
  return { ...row, name: thread.thread_id, work: work.join(' · '), tail: [...age, ...tail] };
}

/** Formats `18/20`: how many have completed, of all. */
function endedWell(children: readonly ThreadTreeNode[]): string {
  const sessions = joinChains(children);
  const good = sessions.filter(({ thread }) => thread.status === 'completed').length;
  return `${good}/${sessions.length}`;
}

function rowOf({ thread, subtree_spend: total, last }: SessionNode, detail: Detail): Row {
  const { colors, columns, now, isList } = detail;
  const { mark, paint } = stateMark(thread, colors);
  const { cost, error, continuation_of: previous, directive } = thread;
  const isPlain = columns === undefined;
  const elapsed = elapsedSeconds(thread, now);
  const word = stateWord(thread);
  const isNamed = isPlain || !['completed', 'error', 'running'].includes(word);
  const why = error === null ? '' : `[${error.code}]`;
  const tail = [
    ...(isNamed ? [paint(word)] : []),
    ...(total === cost.spend ? [] : [`own ${formatSpend(cost)}`]),
    ...(isPlain || columns >= WIDE ? [thread.thread_id] : []),
    ...(previous === null ? [] : [`↪ continues ${previous}`]),
    ...(last === undefined ? [] : [`↪ handed off to ${last}`]),
    ...(error === null ? [] : [paint(isList === true ? why : `${reasonOf(error.message)} ${why}`)]),
  ];
  return {
    mark,
    paint,
    name: oneLine(directive.split('/').at(-1) ?? directive),
    work: oneLine(workOf(thread)),
    time: elapsed === undefined ? '' : formatSeconds(elapsed),
    spend: formatSpend({ ...cost.total, spend: total }),
    tail,
  };
}

/** Returns a message without the model that it begins with, which the width is too precious for. */
function reasonOf(message: string): string {
  return oneLine(message).replace(/^\S+\/\S+: /, '');
}

/** Lays siblings out in columns. What they work on is cut first. */
function layOut(
  rows: readonly Row[],
  indent: number,
  { columns, colors }: Detail,
): readonly string[] {
  const widest = (of: (row: Row) => string): number =>
    Math.max(0, ...rows.map((row) => displayWidth(of(row))));
  const [name, time, spend] = [
    widest((row) => row.name),
    widest((row) => row.time),
    widest((row) => row.spend),
  ];
  const others = indent + 2 + name + time + spend + 3 * GAP.length;
  const room = columns === undefined ? Number.POSITIVE_INFINITY : columns - others;
  const work = Math.min(
    widest((row) => row.work),
    Math.max(MIN_WORK, room),
  );
  return rows.map((row) => {
    const cells = [
      pad(row.name, name),
      ...(work === 0 ? [] : [pad(truncate(row.work, work), work)]),
      ...(time === 0 ? [] : [colors.dim(pad(row.time, time))]),
      pad(row.spend, spend),
    ];
    const tail = row.tail.map((part) => (part.startsWith('\u001b') ? part : colors.dim(part)));
    return `${row.paint(row.mark)} ${[...cells, ...tail].join(GAP)}`.trimEnd();
  });
}

function pad(text: string, columns: number): string {
  return text + ' '.repeat(Math.max(0, columns - displayWidth(text)));
}

function elapsedSeconds(thread: CostedThread, now: number | undefined): number | undefined {
  const { status, cost, created_at: created, working_since: since = created } = thread;
  if (isFinal(status) || status === 'suspended') return cost.elapsed_seconds;
  // whole seconds, to avoid a redraw ten times a second
  if (now === undefined) return undefined;
  return Math.max(0, Math.floor((now - Date.parse(since)) / 1000));
}
