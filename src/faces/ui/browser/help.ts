import { wrapText } from '../terminal-text.ts';
import type { Span } from './layout.ts';

const KEYS: readonly (readonly [string, string])[] = [
  ['↑ ↓  k j', 'one entry up or down'],
  ['PgUp PgDn  Space', 'a page; Ctrl+U and Ctrl+D half of one'],
  ['g G  Home End', 'the first or the last entry'],
  ['a', 'the head of the thread'],
  ['f', 'follow a running thread: stay at its newest entry; again: stop'],
  ['← h', 'fold the branch, or move to its first entry'],
  ['→ l', 'unfold it, or move to the first entry of the next one'],
  ['Enter  Tab', 'read the entry: the keys above scroll it; Esc goes back'],
  ['Enter', 'on a call that started a thread, or on a handoff: open that thread'],
  ['Esc  Backspace', 'return to the thread before'],
  ['1 2 3 4 5', 'filter: default, no-tools, user-only, labeled-only, all'],
  ['v p  Ctrl+O', 'the next or the previous filter'],
  ['/  n N', 'search; the next or the previous match'],
  ['L', 'label the entry'],
  ['b', 'branch: move the head here, with a summary of the other branch or without'],
  ['r', 'resume the thread from this entry'],
  ['q  Ctrl+C', 'quit'],
  ['Ctrl+Z', 'stop the job; fg resumes it'],
];
const MARKS =
  '◆ the head: the conversation continues here   ◇ the filter hides the head, which is below   ● on the path to the head   ○ on another branch';
const KEY_COLUMNS = 18;
const NARROW = 60;

/** The keys of the browser, for a screen of this width. */
export function helpLines(columns: number): readonly (readonly Span[])[] {
  const lines = KEYS.flatMap(([keys, what]) =>
    columns < NARROW ? narrow(keys, what, columns) : wide(keys, what),
  );
  return [
    ...lines,
    [],
    ...wrapText(MARKS, columns).map((text) => [{ text, style: 'dim' } as const]),
  ];
}

function wide(keys: string, what: string): readonly (readonly Span[])[] {
  return [
    [
      { text: keys.padEnd(KEY_COLUMNS), style: 'key' },
      { text: what, style: 'plain' },
    ],
  ];
}

function narrow(keys: string, what: string, columns: number): readonly (readonly Span[])[] {
  const [first = '', ...rest] = wrapText(`${keys}  ${what}`, columns);
  return [
    [
      { text: first.slice(0, keys.length), style: 'key' },
      { text: first.slice(keys.length), style: 'plain' },
    ],
    ...rest.map((text) => [{ text: `  ${text}`, style: 'plain' } as const]),
  ];
}
