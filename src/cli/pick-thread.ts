import { once } from 'node:events';
import type { ListedThread } from '../app/api/threads.ts';
import { RyeError } from '../core/errors.ts';
import type { Context } from './command.ts';
import { colorsOf } from './output.ts';
import { createLiveArea } from './render/live-area.ts';
import { withThreadList } from './session.ts';
import { drawPicker, openPicker, pressPicker } from './thread-picker.ts';

/**
 * Lets a person pick a thread on the terminal: of all roots, the last active one first, or of `candidates`. Returns
 * undefined if there is none. Throws `cancelled` if the person leaves.
 */
export async function pickThread(
  context: Context,
  candidates?: readonly string[],
): Promise<string | undefined> {
  const { io } = context;
  const threads = await withThreadList(
    context,
    async (list) => await list.threads.list(listed(candidates)),
  );
  const wanted = candidates && new Set(candidates);
  const choices = threads
    .filter((thread) => (wanted ? wanted.has(thread.thread_id) : thread.parent_id === null))
    .toSorted((left, right) => right.updated_at.localeCompare(left.updated_at));
  return choices.length === 0 ? undefined : await pick(context, choices, io.now());
}

function listed(candidates: readonly string[] | undefined): { readonly sessions?: boolean } {
  return candidates === undefined ? { sessions: true } : {};
}

async function pick(
  context: Context,
  choices: readonly ListedThread[],
  now: number,
): Promise<string> {
  const { io } = context;
  const { stderr } = io;
  const area = createLiveArea(stderr);
  const colors = colorsOf(stderr, context);
  let picker = openPicker(choices, now);
  const draw = (): void => {
    const { lines, cursor } = drawPicker(picker, {
      colors,
      columns: stderr.columns,
      rows: stderr.rows,
    });
    area.update([], lines, cursor);
  };
  const answer = new AbortController();
  let chosen: string | null = null;
  const settle = (picked: string | null): void => {
    chosen = picked;
    answer.abort();
  };
  const settled = once(answer.signal, 'abort');
  const keyboard = await io.openKeyboard({
    onKey: (key) => {
      if (key.name === 'ctrl+z') {
        area.update([], []);
        keyboard.suspend();
        return;
      }
      const step = pressPicker(picker, key);
      picker = step.picker;
      if (step.picked === undefined) draw();
      else settle(step.picked);
    },
    onRedraw: draw,
    onEnd: () => settle(null),
  });
  try {
    draw();
    await settled;
    if (chosen !== null) return chosen;
  } finally {
    area.close();
    keyboard.close();
  }
  throw new RyeError('cancelled', 'no thread was picked');
}
