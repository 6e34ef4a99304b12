import { type Colors, displayWidth, truncate } from '../terminal-text.ts';

/** A line with columns: mark and label, the outcome in words, then facts such as a duration. */
export interface Row {
  readonly mark: string;
  readonly label: string;
  readonly words: string;
  readonly facts: readonly string[];
  readonly paintMark: (text: string) => string;
  readonly paintWords: (text: string) => string;
}

const INDENT = '  ';
const MAX_LABEL = 60;
const MIN_LABEL = 4;
const WORDS_COLUMNS = 14;
const FACT_COLUMNS = 8;
/** Narrower terminals show no facts. */
const NARROW = 44;

/** Lays a row out for a width. The label is cut first, so that the outcome stays visible. */
export function layRow(row: Row, columns: number, colors: Colors): string {
  const facts = columns < NARROW ? '' : row.facts.map(factCell).join('').trimEnd();
  const words = facts === '' ? row.words : cell(row.words, WORDS_COLUMNS);
  const gap = row.words === '' && facts === '' ? '' : '  ';
  const right = displayWidth(words) + displayWidth(facts);
  const room = columns - 1 - INDENT.length - 2 - right - gap.length;
  const wanted = Math.min(MAX_LABEL, Math.max(MIN_LABEL, Math.floor(columns * 0.45) - 4));
  const label = truncate(row.label, Math.max(MIN_LABEL, room));
  const aligned = columns < NARROW ? label : pad(label, Math.min(wanted, Math.max(0, room)));
  const end = gap === '' ? '' : `${gap}${row.paintWords(words)}${colors.dim(facts)}`;
  return `${INDENT}${row.paintMark(row.mark)} ${gap === '' ? label : aligned}${end}`;
}

function factCell(fact: string): string {
  return cell(fact, FACT_COLUMNS);
}

/** Pads a text to its columns, and keeps it apart from the next cell if it is wider. */
function cell(text: string, columns: number): string {
  return pad(text, Math.max(columns, text === '' ? 0 : displayWidth(text) + 1));
}

function pad(text: string, columns: number): string {
  return text + ' '.repeat(Math.max(0, columns - displayWidth(text)));
}
