import type { Key } from './keyboard.ts';
import { type Colors, displayWidth } from './terminal-text.ts';
import { oneLine } from './visible.ts';

/** Something that can be picked. */
export interface Choice {
  /** The text that typed words are looked for in. */
  readonly searched: string;
}

/** The state of a picker: what is typed, and which of the matching choices is chosen. */
export interface Picker<C extends Choice> {
  readonly choices: readonly C[];
  readonly query: string;
  /** Position among the matching choices. */
  readonly at: number;
}

export interface PickerStep<C extends Choice> {
  readonly picker: Picker<C>;
  /** `picked`: the chosen one; null: the person left. */
  readonly picked?: C | null;
}

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
const LEAVING: ReadonlySet<string> = new Set(['escape', 'ctrl+c', 'ctrl+d']);

export function openPicker<C extends Choice>(choices: readonly C[], at = 0): Picker<C> {
  return { choices, query: '', at: Math.max(0, at) };
}

/** Applies a key. */
export function pressPicker<C extends Choice>(picker: Picker<C>, key: Key): PickerStep<C> {
  const shown = matching(picker);
  const by = Object.hasOwn(MOVES, key.name) ? MOVES[key.name] : undefined;
  if (by !== undefined) {
    const last = Math.max(0, shown.length - 1);
    return { picker: { ...picker, at: Math.min(last, Math.max(0, picker.at + by)) } };
  }
  // a key right after Escape comes with it
  if (LEAVING.has(key.name) || key.name.startsWith('alt+')) return { picker, picked: null };
  switch (key.name) {
    case 'enter': {
      const chosen = shown[picker.at];
      return chosen === undefined ? { picker } : { picker, picked: chosen };
    }
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

/** Returns the choices that have all typed words. */
function matching<C extends Choice>({ choices, query }: Picker<C>): readonly C[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return choices.filter(({ searched }) => {
    const whole = searched.toLowerCase();
    return words.every((word) => whole.includes(word));
  });
}

export interface PickerStyle {
  readonly colors: Colors;
  readonly columns: number;
  readonly rows: number;
}

/** The words of a picker, and the text of its lines. */
export interface PickerFace<C extends Choice> {
  /** The kind of choices, in one word: `thread`. */
  readonly noun: string;
  /** Formats the choices of a page for lines of so many columns. */
  readonly rows: (
    page: readonly C[],
    style: { readonly columns: number; readonly isChosen: (choice: C) => boolean },
  ) => readonly string[];
}

/** Draws a picker: what is typed, the matching choices around the chosen one, and the keys. */
export function drawPicker<C extends Choice>(
  picker: Picker<C>,
  { noun, rows: format }: PickerFace<C>,
  { colors, columns, rows }: PickerStyle,
): {
  readonly lines: readonly string[];
  readonly cursor: { readonly row: number; readonly column: number };
} {
  const title = `${noun[0]?.toUpperCase() ?? ''}${noun.slice(1)}: `;
  const shown = matching(picker);
  const height = Math.max(1, Math.min(PAGE, rows - 4));
  const first = Math.max(0, Math.min(picker.at - height + 1, shown.length - height));
  const page = shown.slice(first, first + height);
  const isChosen = (choice: C): boolean => choice === shown[picker.at];
  const lines = format(page, { columns: columns - 2, isChosen }).map(
    (line, index) => `${first + index === picker.at ? colors.cyan('▸') : ' '} ${line}`,
  );
  const more = shown.length > page.length ? `${shown.length} ${noun}s · ` : '';
  return {
    lines: [
      `${colors.bold(title)}${picker.query}`,
      ...(lines.length === 0 ? [colors.dim(`  no ${noun} matches`)] : lines),
      colors.dim(`${more}type to filter · ↑↓ Enter · Esc leaves`),
    ],
    cursor: { row: 0, column: displayWidth(title) + displayWidth(picker.query) },
  };
}
