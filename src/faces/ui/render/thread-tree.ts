import type { ThreadTreeNode } from '../../../kernel/app/api/threads.ts';
import { type CostedThread, isFinal } from '../../../kernel/core/thread.ts';
import {
  addFamilyCost,
  addSpend,
  formatSeconds,
  formatSpend,
  toMicroUsd,
  toUsd,
} from '../../../kernel/core/usage.ts';
import { pad } from '../../cli/output.ts';
import { type Colors, clipStyled, displayWidth, type Paint, truncate } from '../terminal-text.ts';
import { joined, oneLine, replaced, type Shown, shown, trimmed } from '../visible.ts';
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
  readonly mark: Shown;
  readonly paint: Paint;
  readonly name: Shown;
  /** Its label or its inputs. */
  readonly work: Shown;
  readonly time: Shown;
  readonly spend: Shown;
  /** Parts after the columns, the most important first. */
  readonly tail: readonly Shown[];
}

interface Line {
  readonly indent: Shown;
  readonly text: Shown;
}

/** Narrower terminals show no ids of children. */
const WIDE = 72;
const GAP = '  ';
const MIN_WORK = 8;

/** Draws threads as a tree, one line each: `├─ ✓ summarize  docs20/f01.txt  0.6s  $0.0004`. */
export function drawThreadTree(
  nodes: readonly ThreadTreeNode[],
  style: TreeStyle,
): readonly Shown[] {
  const { rows = Number.POSITIVE_INFINITY, columns } = style;
  const whole = treeLines(nodes, { ...style, folds: false });
  const lines = whole.length > rows ? treeLines(nodes, { ...style, folds: true }) : whole;
  const drawn = lines.length > rows ? lines.slice(0, rows - 1) : lines;
  const left = lines.length - drawn.length;
  return [
    ...drawn.map(({ indent, text }) => {
      const line = trimmed(shown`${indent}${text}`);
      return columns === undefined ? line : clipStyled(line, columns);
    }),
    ...(left > 0 ? [shown`… ${left} more lines`] : []),
  ];
}

interface Detail extends TreeStyle {
  /** Finished siblings with finished descendants share one line. */
  readonly folds: boolean;
}

function treeLines(nodes: readonly ThreadTreeNode[], detail: Detail): readonly Line[] {
  const { isList = false } = detail;
  const roots = joinChains(nodes);
  const rows = roots.map((node) => rootRow(node, detail));
  const texts = layOut(isList ? rows : rows.slice(0, 1), 0, detail);
  return roots.flatMap((node, at) => {
    const text = texts[at] ?? layOut(rows.slice(at, at + 1), 0, detail)[0] ?? shown``;
    const isShown = !isList || at === 0;
    const children = isShown ? node.children : node.children.filter((child) => !isOver(child));
    return [{ indent: shown``, text }, ...childLines(children, shown``, detail)];
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
    let chain: SessionNode = first;
    let next = successors.get(first.thread.thread_id);
    while (next) {
      const { thread, subtree_spend: spend, children } = next;
      const cost = addFamilyCost(chain.thread.cost, thread.cost);
      const { thread_id, continuation_of } = first.thread;
      chain = {
        thread: { ...thread, thread_id, continuation_of, cost },
        subtree_spend: toUsd(toMicroUsd(chain.subtree_spend) + toMicroUsd(spend)),
        children: [...chain.children, ...children],
        last: thread.thread_id,
      };
      next = successors.get(thread.thread_id);
    }
    return chain;
  });
}

function childLines(
  threads: readonly ThreadTreeNode[],
  indent: Shown,
  detail: Detail,
): readonly Line[] {
  const nodes = joinChains(threads);
  const ended = detail.folds ? nodes.filter(isOver) : [];
  const drawn = ended.length > 1 ? nodes.filter((node) => !isOver(node)) : nodes;
  const texts = layOut(
    drawn.map((node) => rowOf(node, detail)),
    displayWidth(indent) + BRANCH.length,
    detail,
  );
  const groups = [
    ...(ended.length > 1 ? [{ text: summary(ended), children: [] }] : []),
    ...drawn.map(({ children }, at) => ({ text: texts[at] ?? shown``, children })),
  ];
  return groups.flatMap(({ text, children }, at) => {
    const isLast = at === groups.length - 1;
    const below = childLines(children, shown`${indent}${isLast ? '   ' : '│  '}`, detail);
    return [{ indent: shown`${indent}${isLast ? LAST_BRANCH : BRANCH}`, text }, ...below];
  });
}

const BRANCH = '├─ ';
const LAST_BRANCH = '└─ ';

/** True for a thread that has ended, as have all below it. */
function isOver({ thread, children }: ThreadTreeNode): boolean {
  return isFinal(thread.status) && children.every(isOver);
}

/** Formats `37 completed, 1 error  $0.0310`. */
function summary(nodes: readonly ThreadTreeNode[]): Shown {
  const counts = new Map<string, number>();
  for (const { thread } of nodes) counts.set(thread.status, (counts.get(thread.status) ?? 0) + 1);
  const spent = nodes.map(({ thread }) => thread.cost.total).reduce(addSpend, { spend: 0 });
  const parts = [...counts].map(([status, count]) => `${count} ${status}`);
  return oneLine(`${parts.join(', ')}${GAP}${formatSpend(spent)}`);
}

/** Draws threads one below the other without connectors, as {@link drawThreadTree} draws siblings. */
export function siblingLines(
  threads: readonly CostedThread[],
  { indent, ...style }: TreeStyle & { readonly indent: number },
): readonly Shown[] {
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
  const id = oneLine(thread.thread_id);
  const age =
    isList === true && now !== undefined ? [oneLine(formatAge(thread.created_at, now))] : [];
  const isCounted = isList === true && children.length > 0;
  const work = [row.work, isCounted ? endedWell(children) : shown``].filter((part) => part !== '');
  const tail = row.tail.filter((part) => part !== id);
  return { ...row, name: id, work: joined(work, ' · '), tail: [...age, ...tail] };
}

/** Formats `18/20`: how many have completed, of all. */
function endedWell(children: readonly ThreadTreeNode[]): Shown {
  const sessions = joinChains(children);
  const good = sessions.filter(({ thread }) => thread.status === 'completed').length;
  return shown`${good}/${sessions.length}`;
}

function rowOf({ thread, subtree_spend: total, last }: SessionNode, detail: Detail): Row {
  const { colors, columns, now, isList } = detail;
  const { mark, paint } = stateMark(thread, colors);
  const { cost, error, continuation_of: previous, directive } = thread;
  const isPlain = columns === undefined;
  const elapsed = elapsedSeconds(thread, now);
  const word = oneLine(stateWord(thread));
  const isNamed = isPlain || !['completed', 'error', 'running'].includes(word);
  const why = error === null ? shown`` : shown`[${oneLine(error.code)}]`;
  const tail = [
    ...(isNamed ? [paint(word)] : []),
    ...(total === cost.spend ? [] : [oneLine(`own ${formatSpend(cost)}`)]),
    ...(isPlain || columns >= WIDE ? [oneLine(thread.thread_id)] : []),
    ...(previous === null ? [] : [oneLine(`↪ continues ${previous}`)]),
    ...(last === undefined ? [] : [oneLine(`↪ handed off to ${last}`)]),
    ...(error === null
      ? []
      : [paint(isList === true ? why : shown`${reasonOf(error.message)} ${why}`)]),
  ];
  return {
    mark: oneLine(mark),
    paint,
    name: oneLine(directive.split('/').at(-1) ?? directive),
    work: oneLine(workOf(thread)),
    time: oneLine(elapsed === undefined ? '' : formatSeconds(elapsed)),
    spend: oneLine(formatSpend({ ...cost.total, spend: total })),
    tail,
  };
}

/** Returns a message without the model that it begins with, which the width is too precious for. */
function reasonOf(message: string): Shown {
  return replaced(oneLine(message), /^\S+\/\S+: /g, () => shown``);
}

/** Lays siblings out in columns. What they work on is cut first. */
function layOut(
  rows: readonly Row[],
  indent: number,
  { columns, colors }: Detail,
): readonly Shown[] {
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
    return trimmed(shown`${row.paint(row.mark)} ${joined([...cells, ...tail], GAP)}`);
  });
}

function elapsedSeconds(thread: CostedThread, now: number | undefined): number | undefined {
  const { status, cost, created_at: created, working_since: since = created } = thread;
  if (isFinal(status) || status === 'suspended') return cost.elapsed_seconds;
  // whole seconds, to avoid a redraw ten times a second
  if (now === undefined) return undefined;
  return Math.max(0, Math.floor((now - Date.parse(since)) / 1000));
}
