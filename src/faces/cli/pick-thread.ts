import { once } from 'node:events';
import type { ListedApproval } from '../../kernel/app/api/approvals.ts';
import type { ListedThread } from '../../kernel/app/api/threads.ts';
import { formatAge } from '../../kernel/core/clock.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { type Choice, drawPicker, openPicker, type PickerFace, pressPicker } from '../ui/picker.ts';
import { createLiveArea } from '../ui/render/live-area.ts';
import { stateMark, stateWord, type ThreadState, workOf } from '../ui/render/status-mark.ts';
import { type Colors, displayWidth, truncate } from '../ui/terminal-text.ts';
import { oneLine } from '../ui/visible.ts';
import type { Context } from './command.ts';
import { colorsOf } from './output.ts';
import { withThreadList } from './session.ts';

/** A thread or a request that can be picked. */
interface ThreadChoice extends Choice {
  readonly id: string;
  readonly state: ThreadState;
  /** Such as `5 min ago`. */
  readonly age: string;
  /** Its label, or the beginning of its result or error. */
  readonly text: string;
}

const MAX_TEXT = 200;

/** Makes the choices of these threads, in their order. `now` in milliseconds since 1970. */
function threadChoices(threads: readonly ListedThread[], now: number): ThreadChoice[] {
  return threads.map((thread) => {
    const id = thread.chain?.[0] ?? thread.thread_id;
    const end = oneLine((thread.error?.message ?? thread.result ?? '').slice(0, MAX_TEXT));
    const text = workOf(thread) || end;
    const age = formatAge(now - Date.parse(thread.updated_at));
    return { id, state: thread, age, text, searched: `${id} ${stateWord(thread)} ${text}` };
  });
}

/** Formats rows of a state, an ID, an age and a text. */
function rowFace(noun: string, colors: Colors): PickerFace<ThreadChoice> {
  return {
    noun,
    rows: (page, { columns, isChosen }) => {
      const width = Math.max(0, ...page.map(({ id }) => displayWidth(oneLine(id))));
      const idColumns = Math.min(width, Math.max(12, Math.floor(columns / 2)));
      return page.map((choice) => {
        const id = truncate(oneLine(choice.id), idColumns);
        const cell = id + ' '.repeat(Math.max(0, idColumns - displayWidth(id)));
        const { mark, paint } = stateMark(choice.state, colors);
        const rest = truncate(
          `${choice.age.padEnd(11)}  ${choice.text}`,
          Math.max(1, columns - idColumns - 6),
        );
        return `${paint(mark)} ${isChosen(choice) ? colors.bold(cell) : cell}  ${colors.dim(rest)}`;
      });
    },
  };
}

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
