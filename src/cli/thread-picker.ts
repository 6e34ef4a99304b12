import type { ListedThread } from '../app/api/threads.ts';
import { formatAge } from '../core/clock.ts';
import type { Choice, PickerFace } from './picker.ts';
import { stateMark, stateWord, type ThreadState, workOf } from './render/status-mark.ts';
import { type Colors, displayWidth, truncate } from './terminal-text.ts';
import { oneLine } from './visible.ts';

/** A thread or a request that can be picked. */
export interface ThreadChoice extends Choice {
  readonly id: string;
  readonly state: ThreadState;
  /** Such as `5 min ago`. */
  readonly age: string;
  /** Its label, or the beginning of its result or error. */
  readonly text: string;
}

const MAX_TEXT = 200;

/** Makes the choices of these threads, in their order. `now` in milliseconds since 1970. */
export function threadChoices(threads: readonly ListedThread[], now: number): ThreadChoice[] {
  return threads.map((thread) => {
    const id = thread.chain?.[0] ?? thread.thread_id;
    const end = oneLine((thread.error?.message ?? thread.result ?? '').slice(0, MAX_TEXT));
    const text = workOf(thread) || end;
    const age = formatAge(now - Date.parse(thread.updated_at));
    return { id, state: thread, age, text, searched: `${id} ${stateWord(thread)} ${text}` };
  });
}

/** Formats rows of a state, an ID, an age and a text. */
export function rowFace(noun: string, colors: Colors): PickerFace<ThreadChoice> {
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
