import type { Rye } from '../../app/api/rye.ts';
import type { ThreadTreeNode } from '../../app/api/threads.ts';
import { isFinal, type ThreadRecord } from '../../core/thread.ts';
import { formatSeconds, formatUsd } from '../../core/usage.ts';
import type { Io } from '../io.ts';
import { ERASE_LINE, oneLine, truncate } from '../terminal-text.ts';
import { stateOf } from './thread-tree.ts';

/** How often the line is drawn at most: a burst of ends changes nothing that a person could read. */
const REDRAW_MS = 100;

/** One line on stderr that says how far the threads that are waited for, and those below them, have come. */
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

/** `3/8 ended · 2 running · 3 queued · $0.0310`, over the trees of threads. */
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
