import type { ListedThread } from '../app/api/threads.ts';
import { formatAge } from '../core/clock.ts';
import type { Key } from './keyboard.ts';
import { stateMark, stateWord, type ThreadState } from './render/status-mark.ts';
import { type Colors, displayWidth, oneLine, truncate } from './terminal-text.ts';

/** A thread that can be picked. */
interface Choice {
  readonly id: string;
  readonly state: ThreadState;
  /** Such as `5 min ago`. */
  readonly age: string;
  /** The beginning of its result or error. */
  readonly text: string;
}

/** The state of the picker: what is typed, and which of the matching threads is chosen. */
export interface Picker {
  readonly choices: readonly Choice[];
  readonly query: string;
  /** Position among the matching choices. */
  readonly at: number;
}

export interface PickerStep {
  readonly picker: Picker;
  /** `picked`: the chosen thread; null: the person left. */
  readonly picked?: string | null;
}

const MAX_TEXT = 200;
const PAGE = 10;
const MOVES: Readonly<Record<string, number>> = {
  up: -1,
  'ctrl+p': -1,
  down: 1,
  'ctrl+n': 1,
  tab: 1,
  pageup: -PAGE,
  pagedown: PAGE,
};

/** Makes a picker of these threads, in their order. `now` in milliseconds since 1970. */
export function openPicker(threads: readonly ListedThread[], now: number): Picker {
  const choices = threads.map((thread) => ({
    id: thread.chain?.[0] ?? thread.thread_id,
    state: thread,
    age: formatAge(now - Date.parse(thread.updated_at)),
    text: oneLine((thread.error?.message ?? thread.result ?? '').slice(0, MAX_TEXT)),
  }));
  return { choices, query: '', at: 0 };
}

/** Applies a key. */
export function pressPicker(picker: Picker, key: Key): PickerStep {
  const shown = matching(picker);
  const move = (by: number): PickerStep => {
    const last = Math.max(0, shown.length - 1);
    return { picker: { ...picker, at: Math.min(last, Math.max(0, picker.at + by)) } };
  };
  const by = Object.hasOwn(MOVES, key.name) ? MOVES[key.name] : undefined;
  if (by !== undefined) return move(by);
  switch (key.name) {
    case 'enter': {
      const chosen = shown[picker.at];
      return chosen === undefined ? { picker } : { picker, picked: chosen.id };
    }
    case 'escape':
    case 'ctrl+c':
    case 'ctrl+d':
      return { picker, picked: null };
    case 'backspace':
      return { picker: { ...picker, query: picker.query.slice(0, -1), at: 0 } };
    case 'ctrl+u':
      return { picker: { ...picker, query: '', at: 0 } };
    default:
      return key.text === undefined
        ? { picker }
        : { picker: { ...picker, query: picker.query + oneLineOf(key.text), at: 0 } };
  }
}

function oneLineOf(text: string): string {
  return text === ' ' ? text : oneLine(text);
}

/** Returns the choices that have all typed words in their ID, status or text. */
function matching({ choices, query }: Picker): readonly Choice[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return choices.filter(({ id, state, text }) => {
    const whole = `${id} ${stateWord(state)} ${text}`.toLowerCase();
    return words.every((word) => whole.includes(word));
  });
}

export interface PickerStyle {
  readonly colors: Colors;
  readonly columns: number;
  readonly rows: number;
}

/** Draws the picker: what is typed, the matching threads around the chosen one, and the keys. */
export function drawPicker(
  picker: Picker,
  { colors, columns, rows }: PickerStyle,
): {
  readonly lines: readonly string[];
  readonly cursor: { readonly row: number; readonly column: number };
} {
  const shown = matching(picker);
  const height = Math.max(1, Math.min(PAGE, rows - 4));
  const first = Math.max(0, Math.min(picker.at - height + 1, shown.length - height));
  const page = shown.slice(first, first + height);
  const width = Math.max(0, ...page.map(({ id }) => displayWidth(oneLine(id))));
  const idColumns = Math.min(width, Math.max(12, Math.floor(columns / 2)));
  const title = 'Thread: ';
  const lines = page.map((choice, index) => {
    const isChosen = first + index === picker.at;
    const id = truncate(oneLine(choice.id), idColumns);
    const cell = id + ' '.repeat(Math.max(0, idColumns - displayWidth(id)));
    const { mark, paint } = stateMark(choice.state, colors);
    const rest = truncate(
      `${choice.age.padEnd(11)}  ${choice.text}`,
      Math.max(1, columns - idColumns - 8),
    );
    return `${isChosen ? colors.cyan('▸') : ' '} ${paint(mark)} ${isChosen ? colors.bold(cell) : cell}  ${colors.dim(rest)}`;
  });
  const more = shown.length > page.length ? `${shown.length} threads · ` : '';
  return {
    lines: [
      `${colors.bold(title)}${picker.query}`,
      ...(lines.length === 0 ? [colors.dim('  no thread matches')] : lines),
      colors.dim(`${more}type to filter · ↑↓ Enter · Esc leaves`),
    ],
    cursor: { row: 0, column: title.length + displayWidth(picker.query) },
  };
}
