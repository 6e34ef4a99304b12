import path from 'node:path';
import { EXIT, type ExitCode } from '../../kernel/core/errors.ts';
import { type JsonObject, toText } from '../../kernel/core/json.ts';
import { createColors } from '../ui/colors.ts';
import { type Io, isSet, type Sink } from '../ui/io.ts';
import {
  type Colors,
  displayWidth,
  graphemesOf,
  squeeze,
  truncate,
  wrapText,
} from '../ui/terminal-text.ts';
import {
  joined,
  jsonText,
  oneLine,
  partOf,
  replaced,
  type Shown,
  shown,
  trimmed,
  visible,
} from '../ui/visible.ts';
import type { Context } from './command.ts';
import { withWarnings } from './warnings.ts';

/** Prints the one JSON document of a call, with the warnings of the call. */
export function printDocument(io: Io, document: object): void {
  printJson(io, withWarnings(io, document));
}

/** Prints a JSON value as it is. */
export function printJson(io: Io, value: object): void {
  io.stdout.writeRaw(`${jsonText(value, io.stdout.isTty ? 2 : 0)}\n`);
}

/** Prints a JSON value as one of several lines. */
export function printJsonLine(io: Io, value: unknown): void {
  io.stdout.writeRaw(`${jsonText(value)}\n`);
}

/** Prints a line of the result for people. */
export function printLine(io: Io, line: Shown): void {
  io.stdout.write(shown`${line}\n`);
}

export function printLines(io: Io, lines: readonly Shown[]): void {
  for (const line of lines) printLine(io, line);
}

/** Prints text from elsewhere: drawn on a terminal, as it is in a pipe. */
export function printText(io: Io, text: string): void {
  if (io.stdout.isTty) io.stdout.write(visible(text));
  else io.stdout.writeRaw(text);
}

/** Prints the result of a successful command: a document with `--json`, else lines for people. */
export function printResult(
  { io, global }: Context,
  document: object,
  lines: () => readonly Shown[],
): ExitCode {
  if (global.json) printDocument(io, { success: true, ...document });
  else printLines(io, lines());
  return EXIT.ok;
}

/** Returns the colors for a stream: off without a terminal, with NO_COLOR or --no-color. FORCE_COLOR turns them on. */
export function colorsOf(sink: Sink, { io, global }: Pick<Context, 'io' | 'global'>): Colors {
  return createColors(wantsColor(sink, io.env, global.color));
}

function wantsColor(sink: Sink, env: Io['env'], isAllowed: boolean): boolean {
  if (!isAllowed || isSet(env['NO_COLOR'])) return false;
  const force = env['FORCE_COLOR'];
  if (isSet(force)) return force !== '0' && force !== 'false';
  return sink.isTty && env['TERM'] !== 'dumb';
}

const GAP = '  ';
const NOTHING = shown``;

/** A last column that shows less than this is not worth its place. */
const LEAST_LAST = 16;

/** Text of a cell, or drawn text. */
export type Cell = string | { readonly drawn: Shown };

function cellText(cell: Cell): Shown {
  return typeof cell === 'string' ? oneLine(cell) : cell.drawn;
}

/**
 * Formats aligned columns under headings. On a terminal, rows are cut to its width, and columns of `optional` are dropped
 * in that order while the last column has little room. Elsewhere nothing is cut, so that `grep` and `awk` see everything.
 * Each cell is drawn on one line, unless it is drawn already.
 */
export function formatTable(
  headings: readonly string[],
  rows: readonly (readonly Cell[])[],
  sink: Sink,
  optional: readonly string[] = [],
): readonly Shown[] {
  const cells = [headings, ...rows].map((row) => row.map(cellText));
  const columns = headings.map((heading, column) => ({
    heading,
    column,
    width: Math.max(...cells.map((row) => displayWidth(row[column] ?? ''))),
  }));
  const [next, ...others] = optional;
  if (sink.isTty && next !== undefined) {
    const total = columns.reduce((sum, { width }) => sum + width + GAP.length, -GAP.length);
    const last = columns.at(-1)?.width ?? 0;
    if (total - Math.max(0, last - LEAST_LAST) > sink.columns) {
      const kept = columns.filter(({ heading }) => heading !== next);
      const keep = <T>(row: readonly T[]) =>
        kept.flatMap(({ column }) => row.slice(column, column + 1));
      return formatTable(keep(headings), rows.map(keep), sink, others);
    }
  }
  return cells.map((row) => {
    const padded = columns.map(({ column, width }) => pad(row[column] ?? NOTHING, width));
    const line = trimmed(joined(padded, GAP));
    if (!sink.isTty || displayWidth(line) <= sink.columns) return line;
    const before = joined([...padded.slice(0, -1), NOTHING], GAP);
    const room = sink.columns - displayWidth(before);
    if (room < LEAST_LAST) return truncate(line, sink.columns);
    return shown`${before}${squeeze(row.at(-1) ?? NOTHING, room)}`;
  });
}

/** Wraps a line to the width of a terminal and indents what follows. Elsewhere the line stays whole. */
export function wrapped(
  line: Shown,
  sink: Sink,
  indent: typeof GAP | Shown = GAP,
): readonly Shown[] {
  if (!sink.isTty || displayWidth(line) <= sink.columns) return [line];
  const [first = NOTHING, ...rest] = wrapText(line, sink.columns);
  const room = Math.max(1, sink.columns - indent.length);
  if (rest.length === 0) return [first];
  const pieces = wrapText(joined(rest, ' '), room);
  return [
    first,
    ...pieces.map((piece) => shown`${indent}${replaced(piece, /^\s+/g, () => NOTHING)}`),
  ];
}

/** Shows the end of a path that is wider than a terminal, from a folder on if one begins there. */
export function fitPath(file: Shown, sink: Sink, used = 0): Shown {
  const room = Math.max(1, sink.columns - used);
  if (!sink.isTty || displayWidth(file) <= room) return file;
  const characters = [...graphemesOf(file)];
  while (displayWidth(characters.join('')) > room - 1) characters.shift();
  const end = characters.join('');
  const folder = end.indexOf('/');
  const from = folder === -1 || folder === end.length - 1 ? 0 : folder;
  return shown`…${partOf(file, file.length - end.length + from)}`;
}

/** Fills a text up to a width with spaces. */
export function pad(text: Shown, width: number): Shown {
  return shown`${text}${oneLine(' '.repeat(Math.max(0, width - displayWidth(text))))}`;
}

/** Draws a path as people read it: relative if it is below the working directory. */
export function displayPath(file: string, io: Io): Shown {
  return oneLine(relativePath(file, io));
}

/** Returns a path relative to the working directory if it is below it. For tables, which draw their cells. */
export function relativePath(file: string, io: Io): string {
  const relative = path.relative(io.cwd, file);
  const isOutside = relative === '' || relative.startsWith('..') || path.isAbsolute(relative);
  return isOutside ? file : relative;
}

/** Returns a sentence with the paths in it as {@link displayPath} shows them. */
export function displayText(text: string, io: Io): string {
  try {
    return text.replaceAll(`${io.cwd}${path.sep}`, '');
  } catch {
    // the working directory was deleted
    return text;
  }
}

/** Returns the next commands for a thread that runs elsewhere. */
export function watchLine(id: string): Shown {
  return oneLine(`watch: rye attach ${id}    cancel: rye threads cancel ${id}`);
}

/** Returns `1 item` or `2 items`. */
export function count(total: number, noun: string): Shown {
  return oneLine(`${total} ${noun}${total === 1 ? '' : 's'}`);
}

/** Returns the declared outputs, one line each, or the last text if the directive returned none. */
export function resultText({
  result,
  outputs,
}: {
  readonly result: string | null;
  readonly outputs?: JsonObject | null | undefined;
}): string {
  if (outputs === undefined || outputs === null) return result ?? '';
  return Object.entries(outputs)
    .map(
      ([name, value]) =>
        `${`${name}: ${value === undefined ? '' : toText(value)}`.replaceAll(/\s+/g, ' ').trim()}\n`,
    )
    .join('');
}
