import { once } from 'node:events';
import type { ListedApproval } from '../app/api/approvals.ts';
import { formatAge } from '../core/clock.ts';
import { RyeError } from '../core/errors.ts';
import type { Context } from './command.ts';
import { colorsOf } from './output.ts';
import { drawPicker, openPicker, pressPicker } from './picker.ts';
import { createLiveArea } from './render/live-area.ts';
import { withThreadList } from './session.ts';
import { rowFace, type ThreadChoice, threadChoices } from './thread-picker.ts';
import { oneLine } from './visible.ts';

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
  if (choices.length === 0) return undefined;
  return await pick(context, 'thread', threadChoices(choices, io.now()));
}

/** Lets a person pick one of several requests. Throws `cancelled` if the person leaves. */
export async function pickRequest(
  context: Context,
  requests: readonly ListedApproval[],
): Promise<string> {
  const now = context.io.now();
  const choices = requests.map(({ id, created_at: at, preview, thread_id: thread }) => {
    const text = oneLine(`${preview.title} ${preview.text} (${thread})`);
    const state = { status: 'suspended' as const };
    return { id, state, age: formatAge(now - Date.parse(at)), text, searched: `${id} ${text}` };
  });
  return await pick(context, 'request', choices);
}

function listed(candidates: readonly string[] | undefined): { readonly sessions?: boolean } {
  return candidates === undefined ? { sessions: true } : {};
}

async function pick(
  context: Context,
  noun: string,
  choices: readonly ThreadChoice[],
): Promise<string> {
  const { io } = context;
  const { stderr } = io;
  const area = createLiveArea(stderr);
  const colors = colorsOf(stderr, context);
  const face = rowFace(noun, colors);
  let picker = openPicker(choices);
  const draw = (): void => {
    const { lines, cursor } = drawPicker(picker, face, {
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
      else settle(step.picked?.id ?? null);
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
  throw new RyeError('cancelled', `no ${noun} was picked`);
}
