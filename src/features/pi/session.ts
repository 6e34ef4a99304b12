import type { PiProblem } from '../../kernel/app/api/trees.ts';
import { RyeError, type SourceLocation } from '../../kernel/core/errors.ts';
import { isJsonObject, type JsonObject, parseGivenJson, toText } from '../../kernel/core/json.ts';

/** The newest version of pi's session format that is read and written. */
export const PI_VERSION = 3;

/** One entry of a pi session with its place in the tree. */
export interface PiEntry {
  readonly record: PiRecord;
  readonly id: string;
  readonly parentId: string | null;
  /** The first entry that a compaction kept; null if it kept none. */
  readonly firstKeptId: string | null;
}

/** A pi session as a tree: parents precede their children. */
export interface PiSession {
  readonly header: PiRecord;
  readonly version: number;
  readonly sessionId: string;
  readonly entries: readonly PiEntry[];
  /** The last entry of the file, from which pi continues. */
  readonly leafId: string | null;
  readonly problems: readonly PiProblem[];
}

export interface PiReadOptions {
  /** Name of the file, for messages. */
  readonly path: string;
  /** Ids for entries of version 1, which have none. */
  readonly newId: () => string;
}

/** Takes the lines of a session file in order, without their line feeds. */
export interface PiReader {
  /** `isTorn`: no line feed follows, as on the last line of a file. `isLossy`: it had bytes that are not UTF-8. */
  push(text: string, isTorn?: boolean, isLossy?: boolean): void;
  end(): PiSession;
}

/**
 * Reads a pi session of version 1, 2 or 3 without changing it. What is no session, names ids that could leave a folder or
 * forge output, uses an id twice or links entries in a loop is refused with `session_malformed`.
 */
export function createPiReader(options: PiReadOptions): PiReader {
  return new SessionReader(options);
}

// letters and digits first, so that no id is a path or an option
const SAFE_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

interface Draft {
  readonly record: PiRecord;
  readonly id: string;
  /** As in the file; undefined in version 1. */
  readonly parent: unknown;
}

class SessionReader implements PiReader {
  readonly #options: PiReadOptions;
  readonly #problems: PiProblem[] = [];
  readonly #drafts: Draft[] = [];
  /** Text of each entry by id. */
  readonly #texts = new Map<string, string>();
  /** Id of the entry at each place that pi's version 1 counts, the header's being 0; null where none is. */
  readonly #physical: (string | null)[] = [];
  #header: PiRecord | undefined;
  #line = 0;

  constructor(options: PiReadOptions) {
    this.#options = options;
  }

  push(text: string, isTorn = false, isLossy = false): void {
    this.#line += 1;
    if (isLossy) {
      this.#note('encoding', 'the line is not UTF-8; what cannot be read was replaced');
    }
    // a byte order mark is no part of the first record
    const clean = this.#line === 1 ? text.replace(/^\uFEFF/, '') : text;
    if (clean.trim() === '') return;
    const pieces = readPiLine(clean, this.#line);
    if (pieces.length > 1) this.#note('fused', `${pieces.length} records on one line`);
    for (const piece of pieces) this.#take(piece, isTorn && piece === pieces.at(-1));
  }

  end(): PiSession {
    const header = this.#header;
    if (!header) throw this.#refusal('it is empty', 1);
    const entries = this.#placed();
    const leafId = this.#drafts.at(-1)?.id ?? null;
    return {
      header,
      version: versionOf(header.value) ?? 1,
      sessionId: toText(header.value['id'] ?? ''),
      entries,
      leafId,
      problems: this.#problems,
    };
  }

  #take(piece: PiPiece, isTorn: boolean): void {
    if (!this.#header) {
      this.#begin(piece);
      return;
    }
    if (!isPiRecord(piece)) {
      this.#physical.push(null);
      if (isTorn) this.#note('torn_tail', 'the file ends within a record');
      else this.#note('malformed', 'the line is not a session record');
      return;
    }
    this.#entry(piece, this.#header);
  }

  /** omp writes a title before the header. */
  #begin(piece: PiPiece): void {
    if (isPiRecord(piece) && piece.value['type'] === 'title' && this.#problems.length === 0) {
      this.#note('before_header', 'a title precedes the header');
      return;
    }
    if (!isPiRecord(piece) || piece.value['type'] !== 'session') {
      throw this.#refusal('its first record is not a session header');
    }
    const { id } = piece.value;
    if (typeof id !== 'string' || !SAFE_ID.test(id)) throw this.#refusal('its session id is none');
    const version = versionOf(piece.value);
    if (version === undefined || version > PI_VERSION) {
      throw this.#refusal(
        `its version ${JSON.stringify(piece.value['version'])} is not known`,
        this.#line,
        'This version of rye reads pi sessions of version 1, 2 and 3.',
      );
    }
    this.#header = piece;
    this.#physical.push(null);
  }

  #entry(record: PiRecord, header: PiRecord): void {
    const { id: given } = record.value;
    if (given === undefined || record.value['type'] === 'session') {
      this.#withoutId(record, header);
      return;
    }
    if (typeof given !== 'string' || !SAFE_ID.test(given)) {
      throw this.#refusal(
        'the ID of an entry has characters other than letters, digits and . _ : -',
      );
    }
    const before = this.#texts.get(given);
    if (before === record.text) {
      // pi wrote a whole file a second time when it resumed one without an answer
      this.#note('duplicate', `entry ${given} is repeated; the first one is used`);
      return;
    }
    if (before !== undefined) {
      throw this.#refusal(`two different entries have the id ${given}`);
    }
    this.#add(record, given);
  }

  #withoutId(record: PiRecord, header: PiRecord): void {
    if (record.value['type'] !== 'session') {
      this.#add(record, this.#freeId());
    } else if (record.text === header.text) {
      this.#note('duplicate', 'the header is repeated; the first one is used');
    } else {
      throw this.#refusal('a second session begins here');
    }
  }

  #freeId(): string {
    let id = this.#options.newId();
    while (this.#texts.has(id)) id = this.#options.newId();
    return id;
  }

  #add(record: PiRecord, id: string): void {
    this.#texts.set(id, record.text);
    this.#physical.push(id);
    const hasId = record.value['id'] !== undefined;
    const parent = hasId ? (record.value['parentId'] ?? null) : undefined;
    this.#drafts.push({ record, id, parent });
  }

  /** Sorts entries after their parents. Entries that are their own ancestors have no place. */
  #placed(): readonly PiEntry[] {
    const placed: PiEntry[] = [];
    const done = new Set<string>();
    const waiting = new Map<string, Draft[]>();
    let previous: string | null = null;
    for (const draft of this.#drafts) {
      const parentId = this.#parentOf(draft, previous);
      if (parentId !== null && !done.has(parentId)) {
        const siblings = waiting.get(parentId);
        if (siblings) siblings.push(draft);
        else waiting.set(parentId, [draft]);
        continue;
      }
      const ready: [Draft, string | null][] = [[draft, parentId]];
      for (let next = ready.pop(); next; next = ready.pop()) {
        const [{ record, id }, parent] = next;
        placed.push({ record, id, parentId: parent, firstKeptId: this.#firstKept(record, id) });
        done.add(id);
        const children = waiting.get(id) ?? [];
        waiting.delete(id);
        for (const child of children.toReversed()) ready.push([child, id]);
      }
      previous = draft.id;
    }
    const [stuck] = [...waiting.values()].flat();
    if (stuck) {
      throw this.#refusal('the entry is its own ancestor', stuck.record.line);
    }
    return placed;
  }

  #parentOf({ parent, record, id }: Draft, previous: string | null): string | null {
    if (parent === undefined) return previous;
    if (parent === null) return null;
    if (typeof parent === 'string' && this.#texts.has(parent)) return parent;
    this.#problems.push({
      kind: 'orphan',
      line: record.line,
      message: `the parent of entry ${id} is not in the file; it hangs on the entry before it`,
    });
    return previous;
  }

  /** Version 1 counts records of the file; lines that are broken now were counted when it was written. */
  #firstKept({ value }: PiRecord, id: string): string | null {
    const { firstKeptEntryId: named, firstKeptEntryIndex: index } = value;
    if (typeof named === 'string') return named === id || !this.#texts.has(named) ? null : named;
    if (!Number.isSafeInteger(index) || (index as number) < 1) return null;
    let at = index as number;
    while (this.#physical[at] === null) at += 1;
    return this.#physical[at] ?? null;
  }

  #note(kind: PiProblem['kind'], message: string): void {
    this.#problems.push({ kind, line: this.#line, message });
  }

  #refusal(problem: string, line = this.#line, hint?: string): RyeError {
    const location: SourceLocation = { path: this.#options.path, line };
    return new RyeError('session_malformed', `not a readable pi session: ${problem}`, {
      location,
      hint: hint ?? 'The file is unchanged.',
      details: { line },
    });
  }
}

/** Returns undefined for an invalid version. Files of version 1 have none. */
function versionOf(header: JsonObject): number | undefined {
  const { version = 1 } = header;
  return typeof version === 'number' && Number.isSafeInteger(version) && version >= 1
    ? version
    : undefined;
}

/** The entry's message, where it has one. */
export function piMessageOf({ value }: PiRecord): JsonObject | undefined {
  const { message } = value;
  return isJsonObject(message) ? message : undefined;
}

/** One record of a session file: its text and its value. */
export interface PiRecord {
  readonly line: number;
  readonly text: string;
  readonly value: JsonObject;
}

/** A piece of a line: a record, or text that is none. */
export type PiPiece = PiRecord | { readonly line: number; readonly text: string };

function isPiRecord(piece: PiPiece): piece is PiRecord {
  return 'value' in piece;
}

/**
 * Reads one line of a pi session file. Usually one record. A line on which records ran together, as pi leaves it when it
 * appends after a torn write, yields each of them and the rest as text.
 */
function readPiLine(text: string, line: number): readonly PiPiece[] {
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
  const value = parseGivenJson(text);
  return isJsonObject(value) && typeof value['type'] === 'string'
    ? { line, text, value }
    : undefined;
}

/** Returns the end of the object that begins at `start`; 0 if it is not closed. */
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
// more than that on one line is damage, not appends after torn writes
const MAX_TRIES = 4;
const MAX_TORN = 4;

/** Returns the start of a whole record after one that a crash cut off; 0 if there is none. */
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
