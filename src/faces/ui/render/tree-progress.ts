import type { Rye } from '../../../kernel/app/api/rye.ts';
import type { ThreadTreeNode } from '../../../kernel/app/api/threads.ts';
import { type CostedThread, isFinal, type ThreadRecord } from '../../../kernel/core/thread.ts';
import { addSpend, formatSeconds, formatSpend, type Spent } from '../../../kernel/core/usage.ts';
import type { Io } from '../io.ts';
import { ERASE_LINE, truncate } from '../terminal-text.ts';
import { oneLine, type Shown, shown } from '../visible.ts';
import { shortUsd } from './meters.ts';
import { stateWord } from './status-mark.ts';

/** States of threads that have not ended, in the order in which they are counted. */
const OPEN_STATES = ['running', 'created', 'queued', 'suspended', 'crashed'] as const;

/** Formats `12/20 done (2 failed) · 3 running · $0.04`. The threads below the roots count; of roots alone, the roots. */
export function treeProgress(nodes: readonly ThreadTreeNode[]): Shown {
  const all = flatten(nodes);
  const below = flatten(nodes.flatMap(({ children }) => children));
  const counted = below.length > 0 ? below : all;
  const done = counted.filter(({ status }) => isFinal(status));
  const failed = done.filter(({ status }) => status === 'error').length;
  const ended = `${done.length}/${counted.length} done${failed === 0 ? '' : ` (${failed} failed)`}`;
  const spend = formatSpend(spendOf(all), shortUsd);
  return oneLine([ended, ...openStates(counted), spend].join(' · '));
}

/** Formats `3 running` and so on, without the states that no thread is in. */
function openStates(threads: readonly CostedThread[]): readonly string[] {
  const words = threads.map(stateWord);
  return OPEN_STATES.flatMap((state) => {
    const count = words.filter((word) => word === state).length;
    return count === 0 ? [] : [`${count} ${state}`];
  });
}

function spendOf(threads: readonly CostedThread[]): Spent {
  return threads.map(({ cost }) => cost).reduce(addSpend, { spend: 0 });
}

function flatten(nodes: readonly ThreadTreeNode[]): readonly CostedThread[] {
  return nodes.flatMap(({ thread, children }) => [thread, ...flatten(children)]);
}

/** Minimum milliseconds between two drawings. */
const REDRAW_MS = 100;

/** One line on stderr with the progress of the awaited threads and their descendants. */
export interface WaitLine {
  readonly draw: () => Promise<void>;
  readonly ended: (thread: ThreadRecord & { readonly label?: string }) => void;
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
      io.stderr.writeRaw(ERASE_LINE);
      io.stderr.write(truncate(oneLine(text), io.stderr.columns - 1));
    },
    ended: ({ status, thread_id, label = '' }) => {
      io.stderr.writeRaw(ERASE_LINE);
      io.stderr.write(shown`${oneLine(`${status} ${thread_id} ${label}`.trimEnd())}\n`);
    },
    hide: () => {
      io.stderr.writeRaw(ERASE_LINE);
    },
  };
}

/** Formats `3/8 ended · 2 running · 3 queued · $0.0310` for all threads of the trees. */
function waitText(nodes: readonly ThreadTreeNode[]): string {
  const threads = [...new Map(flatten(nodes).map((one) => [one.thread_id, one])).values()];
  const ended = threads.filter(({ status }) => isFinal(status)).length;
  const spend = formatSpend(spendOf(threads));
  return [`${ended}/${threads.length} ended`, ...openStates(threads), spend].join(' · ');
}
