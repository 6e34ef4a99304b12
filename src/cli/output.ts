import path from 'node:path';
import picocolors from 'picocolors';
import type { GlobalOptions } from './invocation.ts';
import type { Io, Sink } from './io.ts';
import { displayWidth, oneLine, truncate } from './terminal-text.ts';

export type Colors = ReturnType<typeof picocolors.createColors>;

/** Prints the one JSON document of a call. */
export function printDocument(io: Io, document: object): void {
  io.stdout.write(`${JSON.stringify(document, null, io.stdout.isTty ? 2 : 0)}\n`);
}

/** Prints a line of the result for people. */
export function printLine(io: Io, line: string): void {
  io.stdout.write(`${line}\n`);
}

/** Colours of one stream: off without a terminal, with NO_COLOR or --no-color; FORCE_COLOR turns them on. */
export function colorsOf(sink: Sink, io: Io, global: GlobalOptions): Colors {
  return picocolors.createColors(wantsColor(sink, io.env, global));
}

function wantsColor(sink: Sink, env: Io['env'], global: GlobalOptions): boolean {
  if (!global.color || isSet(env['NO_COLOR'])) return false;
  if (isSet(env['FORCE_COLOR']))
    return env['FORCE_COLOR'] !== '0' && env['FORCE_COLOR'] !== 'false';
  return sink.isTty && env['TERM'] !== 'dumb';
}

function isSet(value: string | undefined): boolean {
  return value !== undefined && value !== '';
}

/** True where lines may be redrawn: a capable terminal that no CI system records. */
export function canRedraw(sink: Sink, env: Io['env']): boolean {
  return sink.isTty && env['TERM'] !== 'dumb' && !isSet(env['CI']);
}

const GAP = '  ';

/**
 * Aligned columns under headings. On a terminal the last column is cut to the width; elsewhere nothing is cut, so
 * that `grep` and `awk` see everything. Cells are made harmless and put on one line.
 */
export function formatTable(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  sink: Sink,
): string {
  const cells = [headings, ...rows.map((row) => row.map(oneLine))];
  const widths = headings.map((_, column) =>
    Math.max(...cells.map((row) => displayWidth(row[column] ?? ''))),
  );
  return cells
    .map((row) => {
      const line = row
        .map((cell, column) => pad(cell, widths[column] ?? 0))
        .join(GAP)
        .trimEnd();
      return `${sink.isTty ? truncate(line, sink.columns) : line}\n`;
    })
    .join('');
}

function pad(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - displayWidth(text)));
}

/** A path as a person reads it: relative to the working directory when it lies below. */
export function displayPath(file: string, io: Io): string {
  const relative = path.relative(io.cwd, file);
  return relative === '' || relative.startsWith('..') || path.isAbsolute(relative)
    ? file
    : relative;
}

/** `1 item`, `2 items`. */
export function count(total: number, noun: string): string {
  return `${total} ${noun}${total === 1 ? '' : 's'}`;
}
