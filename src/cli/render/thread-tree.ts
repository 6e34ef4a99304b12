import type { Rye } from '../../app/api/rye.ts';
import type { ThreadTreeNode } from '../../app/api/threads.ts';
import { isFinal, type ThreadRecord } from '../../core/thread.ts';
import { addFamilyCost, formatSeconds, formatUsd, toMicroUsd, toUsd } from '../../core/usage.ts';
import type { Io } from '../io.ts';
import { type Colors, ERASE_LINE, oneLine, truncate } from '../terminal-text.ts';

/** A line of the tree: the drawing, the status, and the details of the thread. */
interface TreeLine {
  readonly indent: string;
  readonly state: string;
  readonly text: string;
}

export interface TreeStyle {
  readonly colors: Colors;
  /** Columns at which lines are cut. */
  readonly columns?: number | undefined;
  /** Maximum rows. If there are more, ended threads are folded first, then the rest is cut. */
  readonly rows?: number | undefined;
  /** Milliseconds since 1970, for the run time of open threads; absent: not shown. */
  readonly now?: number | undefined;
}

/** Draws threads as a tree, one line each: status, id, turns, time, spend and error. */
export function drawThreadTree(
  nodes: readonly ThreadTreeNode[],
  style: TreeStyle,
): readonly string[] {
  const { rows = Number.POSITIVE_INFINITY, columns, colors, now } = style;
  const whole = linesOf(nodes, { now, folds: false });
  const lines = whole.length > rows ? linesOf(nodes, { now, folds: true }) : whole;
  const shown = lines.length > rows ? lines.slice(0, rows - 1) : lines;
  const left = lines.length - shown.length;
  return [
    ...shown.map((line) => paint(line, colors, columns)),
    ...(left > 0 ? [`… ${left} more lines`] : []),
  ];
}

interface Detail {
  readonly now: number | undefined;
  /** Finished siblings with finished descendants share one line. */
  readonly folds: boolean;
}

function linesOf(nodes: readonly ThreadTreeNode[], detail: Detail): readonly TreeLine[] {
  return joinChains(nodes).flatMap((node) => [
    { indent: '', ...describe(node, detail.now) },
    ...childLines(node.children, '', detail),
  ]);
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
): readonly TreeLine[] {
  const nodes = joinChains(threads);
  const ended = detail.folds ? nodes.filter(isOver) : [];
  const shown = ended.length > 1 ? nodes.filter((node) => !isOver(node)) : nodes;
  const folded = ended.length > 1 ? [{ indent: '', ...summary(ended) }] : [];
  const groups = [
    ...folded.map((line) => [line]),
    ...shown.map((node) => [
      { indent: '', ...describe(node, detail.now) },
      ...childLines(node.children, '', detail),
    ]),
  ];
  return groups.flatMap((lines, index) => {
    const isLast = index === groups.length - 1;
    return lines.map((line, at) => {
      const stem = isLast ? '   ' : '│  ';
      const branch = isLast ? '└─ ' : '├─ ';
      return { ...line, indent: `${indent}${at === 0 ? branch : stem}${line.indent}` };
    });
  });
}

function isOver({ thread, children }: ThreadTreeNode): boolean {
  return isFinal(thread.status) && children.every(isOver);
}

/** Formats `37 completed, 1 error ($0.0310)`. */
function summary(nodes: readonly ThreadTreeNode[]): Omit<TreeLine, 'indent'> {
  const counts = new Map<string, number>();
  for (const { thread } of nodes) counts.set(thread.status, (counts.get(thread.status) ?? 0) + 1);
  const micro = nodes.reduce((sum, { subtree_spend }) => sum + toMicroUsd(subtree_spend), 0);
  const parts = [...counts].map(([status, count]) => `${count} ${status}`);
  return { state: parts.join(', '), text: `(${formatUsd(toUsd(micro))})` };
}

function describe(
  { thread, subtree_spend, last }: SessionNode,
  now: number | undefined,
): Omit<TreeLine, 'indent'> {
  const { cost, error, continuation_of: previous } = thread;
  const elapsed = elapsedSeconds(thread, now);
  const facts = [
    ...(cost.turns === 0 ? [] : [`${cost.turns} turn${cost.turns === 1 ? '' : 's'}`]),
    ...(elapsed === undefined ? [] : [formatSeconds(elapsed)]),
    formatUsd(cost.spend),
    ...(subtree_spend === cost.spend ? [] : [`${formatUsd(subtree_spend)} with all below`]),
  ];
  const parts = [
    thread.thread_id,
    ...(thread.label === undefined ? [] : [oneLine(thread.label)]),
    `(${facts.join(', ')})`,
    ...(previous === null ? [] : [`↪ continues ${previous}`]),
    ...(last === undefined ? [] : [`↪ handed off to ${last}`]),
    ...(error === null ? [] : [`${error.message} [${error.code}]`]),
  ];
  return { state: stateOf(thread), text: oneLine(parts.join(' ')) };
}

function elapsedSeconds(thread: ThreadRecord, now: number | undefined): number | undefined {
  const { status, cost, created_at: created } = thread;
  if (isFinal(status) || status === 'suspended') return cost.elapsed_seconds;
  // whole seconds, to avoid a redraw ten times a second
  if (now === undefined) return undefined;
  return Math.max(0, Math.floor((now - Date.parse(created)) / 1000));
}

function paint({ indent, state, text }: TreeLine, colors: Colors, columns?: number): string {
  const plain = `${indent}${state} ${text}`;
  const line = columns === undefined ? plain : truncate(plain, columns);
  // a status that was cut is not colored
  if (!line.startsWith(`${indent}${state} `)) return line;
  return `${indent}${colorOf(state, colors)(state)}${line.slice(indent.length + state.length)}`;
}

function colorOf(state: string, colors: Colors): (text: string) => string {
  switch (state) {
    case 'completed':
      return colors.green;
    case 'error':
      return colors.red;
    case 'cancelled':
    case 'suspended':
      return colors.yellow;
    case 'running':
      return colors.cyan;
    default:
      return colors.dim;
  }
}

/** Returns the status for people: a thread that waits for a slot is queued. */
function stateOf({ status, pid }: ThreadRecord): string {
  return status === 'created' && pid === null ? 'queued' : status;
}

/** Minimum milliseconds between two drawings. */
const REDRAW_MS = 100;

/** One line on stderr with the progress of the awaited threads and their descendants. */
export interface WaitLine {
  readonly draw: () => Promise<void>;
  readonly ended: (thread: ThreadRecord) => void;
  readonly hide: () => void;
}

export function createWaitLine(rye: Rye, ids: readonly string[], io: Io): WaitLine {
  const startedAt = io.monotonic();
  let drawnAt = Number.NEGATIVE_INFINITY;
  return {
    draw: async () => {
      const now = io.monotonic();
      if (now - drawnAt < REDRAW_MS) return;
      drawnAt = now;
      const trees = await Promise.all(ids.map(async (id) => await rye.children.tree(id)));
      const text = `${waitText(trees.flat())} · ${formatSeconds((now - startedAt) / 1000)}`;
      io.stderr.write(`${ERASE_LINE}${truncate(text, io.stderr.columns - 1)}`);
    },
    ended: ({ status, thread_id }) => {
      io.stderr.write(`${ERASE_LINE}${oneLine(`${status} ${thread_id}`)}\n`);
    },
    hide: () => {
      io.stderr.write(ERASE_LINE);
    },
  };
}

/** Formats `3/8 ended · 2 running · 3 queued · $0.0310` for all threads of the trees. */
function waitText(nodes: readonly ThreadTreeNode[]): string {
  const threads = new Map(flatten(nodes).map((thread) => [thread.thread_id, thread]));
  const states = [...threads.values()].map(stateOf);
  const count = (state: string): number => states.filter((one) => one === state).length;
  const ended = [...threads.values()].filter(({ status }) => isFinal(status)).length;
  const spend = [...threads.values()].reduce((sum, { cost }) => sum + cost.spend, 0);
  const open = ['running', 'created', 'queued', 'suspended'].flatMap((state) =>
    count(state) === 0 ? [] : [`${count(state)} ${state}`],
  );
  return [`${ended}/${threads.size} ended`, ...open, formatUsd(spend)].join(' · ');
}

function flatten(nodes: readonly ThreadTreeNode[]): readonly ThreadRecord[] {
  return nodes.flatMap(({ thread, children }) => [thread, ...flatten(children)]);
}
