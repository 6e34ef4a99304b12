import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts';

/** What was found wrong with a pi session that could be read all the same; `line` counts from 1. */
export interface PiProblem {
  readonly kind:
    | 'torn_tail'
    | 'fused'
    | 'malformed'
    | 'encoding'
    | 'before_header'
    | 'orphan'
    | 'duplicate'
    | 'not_understood';
  readonly line: number;
  readonly message: string;
}

/** One record of a session file: the text that stands there and what it says. */
export interface PiRecord {
  readonly line: number;
  readonly text: string;
  readonly value: JsonObject;
}

/** A piece of a line: a record, or text that is none. */
export type PiPiece = PiRecord | { readonly line: number; readonly text: string };

export function isPiRecord(piece: PiPiece): piece is PiRecord {
  return 'value' in piece;
}

/**
 * Reads one line of a pi session file. Usually one record. A line on which records ran together, as pi leaves it when it
 * appends behind a torn write, yields each of them and the rest as text.
 */
export function readPiLine(text: string, line: number): readonly PiPiece[] {
  const pieces: PiPiece[] = [];
  let rest = text;
  for (let torn = 0; torn <= MAX_TORN; torn += 1) {
    const { records, tail } = leadingRecords(rest, line);
    pieces.push(...records);
    if (tail.trim() === '') return pieces;
    const joint = jointOf(tail, line);
    if (joint === 0) return [...pieces, { line, text: tail }];
    pieces.push({ line, text: tail.slice(0, joint) });
    rest = tail.slice(joint);
  }
  return [...pieces, { line, text: rest }];
}

/** The records that text begins with, and what follows them. */
function leadingRecords(
  text: string,
  line: number,
): { readonly records: readonly PiRecord[]; readonly tail: string } {
  const whole = recordOf(text, line);
  if (whole) return { records: [whole], tail: '' };
  const records: PiRecord[] = [];
  let start = 0;
  for (;;) {
    const end = objectEnd(text, start);
    const record = end === 0 ? undefined : recordOf(text.slice(start, end), line);
    if (!record) return { records, tail: text.slice(start) };
    records.push(record);
    start = end;
  }
}

function recordOf(text: string, line: number): PiRecord | undefined {
  const value = parseJson(text);
  return isJsonObject(value) && typeof value['type'] === 'string'
    ? { line, text, value }
    : undefined;
}

/** Where the object that begins at `start` is closed; 0 where it is not. */
function objectEnd(text: string, start: number): number {
  let depth = 0;
  let isInString = false;
  for (let at = start; at < text.length; at += 1) {
    const char = text.charCodeAt(at);
    if (isInString) {
      if (char === BACKSLASH) at += 1;
      else if (char === QUOTE) isInString = false;
    } else if (char === QUOTE) isInString = true;
    else if (char === OPEN) depth += 1;
    else if (char === CLOSE) {
      depth -= 1;
      if (depth <= 0) return at + 1;
    }
  }
  return 0;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN = 0x7b;
const CLOSE = 0x7d;

// how pi begins its records; blocks inside a message may look alike, so each place is only tried
const RECORD_START = /\{"type":"[a-z_]{1,40}","(?:id|timestamp|version)":/g;
// more than that on one line is damage, not appends behind torn writes
const MAX_TRIES = 4;
const MAX_TORN = 4;

/** Where a whole record begins behind one that a crash cut off; 0 where none does. */
function jointOf(text: string, line: number): number {
  let tries = 0;
  for (const { index } of text.matchAll(RECORD_START)) {
    if (index === 0) continue;
    tries += 1;
    if (tries > MAX_TRIES) break;
    const end = objectEnd(text, index);
    const record = end === 0 ? undefined : recordOf(text.slice(index, end), line);
    if (record?.value['timestamp'] !== undefined) return index;
  }
  return 0;
}
