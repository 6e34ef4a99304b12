import { isAscii, isUtf8 } from 'node:buffer';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import {
  LOG_ONLY_TYPES,
  type LogEvent,
  type LogHeader,
  type UnknownEvent,
} from '../core/events.ts';
import { parseJson } from '../core/json.ts';
import {
  asEvent,
  decodeHeader,
  decodeLine,
  type LogProblem,
  type LogStep,
  MAX_LINE_BYTES,
  upgradeFrom,
} from '../log/codec.ts';
import { LineRegions } from '../log/regions.ts';
import { createLogVerifier, type LogVerification } from '../log/verifier.ts';
import type { OpenedLog, VerifyOptions } from './store.ts';

/** One line of a file without its line feed. `bytes` is undefined when the line is longer than a log allows. */
export interface FileLine {
  readonly offset: number;
  readonly bytes: Buffer | undefined;
  /** Length in the file in bytes, the line feed included. */
  readonly length: number;
  /** False for the bytes after the last line feed. */
  readonly ended: boolean;
}

const LF = 0x0a;

/** Cuts a byte stream into lines; holds at most one line, and skips the rest of one that is too long. */
export class LineSplitter {
  #pieces: Buffer[] = [];
  #pieceBytes = 0;
  #start: number;

  /** `offset` is the file position of the first byte that will be pushed. */
  constructor(offset = 0) {
    this.#start = offset;
  }

  /** The lines that end in `chunk`. They share its memory where they lie in it as a whole. */
  *push(chunk: Buffer): Generator<FileLine, void, undefined> {
    let from = 0;
    for (let at = chunk.indexOf(LF); at !== -1; at = chunk.indexOf(LF, from)) {
      yield this.#line(chunk.subarray(from, at), true);
      from = at + 1;
    }
    if (from === chunk.length) return;
    const rest = chunk.subarray(from);
    this.#pieceBytes += rest.length;
    // the bytes of a line that is already too long are only counted
    if (this.#pieceBytes <= MAX_LINE_BYTES) this.#pieces.push(Buffer.from(rest));
    else this.#pieces = [];
  }

  /** Returns the bytes after the last line feed, if any. */
  end(): FileLine | undefined {
    return this.#pieceBytes === 0 ? undefined : this.#line(Buffer.alloc(0), false);
  }

  #line(last: Buffer, ended: boolean): FileLine {
    const length = this.#pieceBytes + last.length;
    const offset = this.#start;
    const bytes = length >= MAX_LINE_BYTES ? undefined : this.#join(last);
    const inFile = length + (ended ? 1 : 0);
    this.#start += inFile;
    this.#pieces = [];
    this.#pieceBytes = 0;
    return { offset, bytes, length: inFile, ended };
  }

  #join(last: Buffer): Buffer {
    return this.#pieces.length === 0 ? last : Buffer.concat([...this.#pieces, last]);
  }
}

/** An event and the offset of its line. */
export interface PlacedEvent {
  readonly offset: number;
  readonly event: LogEvent | UnknownEvent;
}

/** Parses the header in a log's first line; `undefined`: the log is empty. */
function headerOf(line: FileLine | undefined, path: string, threadId: string): LogHeader {
  if (!line) throw malformedLog(path, 'it is empty');
  if (!line.bytes || !line.ended) throw malformedLog(path, 'its first line is not a thread header');
  return parseHeader(line.bytes.toString('utf8'), path, threadId);
}

/** Parses events, and reports problems, in the lines after the header. */
export class EventReader {
  readonly problems: LogProblem[] = [];
  #seq: number;

  /** `seq` is that of the event before the first line; undefined when it is not known. */
  constructor(seq?: number) {
    this.#seq = seq ?? -1;
  }

  events(line: FileLine): readonly PlacedEvent[] {
    const { offset, bytes } = line;
    if (!line.ended) {
      this.#report('torn_tail', offset, 'the last line is not complete');
      return [];
    }
    if (!bytes) {
      this.#report('too_long', offset, 'the line is over 16 MiB and was skipped');
      return [];
    }
    const text = bytes.toString('utf8');
    const pieces = decodeLine(text);
    if (pieces.length > 1) {
      this.#report('fused', offset, `${pieces.length} records are on one line`);
    }
    const placed: PlacedEvent[] = [];
    for (const piece of pieces) {
      const at =
        piece.start === 0 ? offset : offset + Buffer.byteLength(text.slice(0, piece.start));
      if ('problem' in piece) {
        this.#report('malformed', at, `the line was skipped: ${piece.problem}`);
      } else {
        this.#checkSequence(piece.event.seq, at);
        placed.push({ offset: at, event: piece.event });
      }
    }
    return placed;
  }

  #checkSequence(seq: number, offset: number): void {
    if (this.#seq !== -1 && seq !== this.#seq + 1) {
      this.#report('gap', offset, `seq ${seq} follows seq ${this.#seq}`);
    }
    this.#seq = seq;
  }

  #report(kind: LogProblem['kind'], offset: number, message: string): void {
    this.problems.push({ kind, offset, message });
  }
}

/** Turns the system's "no such file" into `thread_not_found`. */
export function missingLog(error: unknown, threadId: string): unknown {
  return systemCodeOf(error) === 'ENOENT' ? noLog(threadId) : error;
}

/** The error for a thread without a log. */
export function noLog(threadId: string): RyeError {
  return new RyeError('thread_not_found', `thread ${threadId} has no log`, {
    hint: 'List the threads of this project with `rye threads list`.',
    details: { thread_id: threadId },
  });
}

/** Reads a whole log with care; memory beyond the events is one line. */
async function readCarefully(source: LogSource, end?: number): Promise<OpenedLog> {
  const splitter = new LineSplitter();
  const reader = new EventReader(0);
  const events: (LogEvent | UnknownEvent)[] = [];
  const offsets: number[] = [];
  let header: LogHeader | undefined;
  let upgrade: LogStep | undefined;
  const take = (line: FileLine): void => {
    if (!header) {
      header = headerOf(line, source.location, source.threadId);
      upgrade = upgradeFrom(header.version);
      return;
    }
    for (const { event, offset } of reader.events(line)) {
      events.push(upgrade ? upgrade(event) : event);
      offsets.push(offset);
    }
  };
  for await (const chunk of source.chunks(end)) {
    for (const line of splitter.push(chunk)) take(line);
  }
  const rest = splitter.end();
  if (rest) take(rest);
  return {
    header: header ?? headerOf(undefined, source.location, source.threadId),
    events,
    offsets,
    problems: reader.problems,
  };
}

/** Reads a log. A sound log is read fast; a log with a defect is read again with care. */
export async function readLog(source: LogSource, options: ScanOptions): Promise<OpenedLog> {
  return (await scanLog(source, options)) ?? (await readCarefully(source, options.end));
}

/** Events with a seq above `since`, read from the start of the log. */
export async function* eventsOf(
  source: LogSource,
  since: number,
): AsyncGenerator<LogEvent | UnknownEvent, void, undefined> {
  const splitter = new LineSplitter();
  for await (const chunk of source.chunks()) {
    for (const line of splitter.push(chunk)) yield* newEvents(line, since);
  }
}

/** The events of a line with a seq above `since`; the header's line has none. */
export function* newEvents(
  line: FileLine,
  since: number,
): Generator<LogEvent | UnknownEvent, void, undefined> {
  if (line.offset === 0) return;
  for (const { event } of new EventReader().events(line)) if (event.seq > since) yield event;
}

/** The last `count` items of a stream; holds twice as many. */
export async function lastOf<T>(items: AsyncIterable<T>, count: number): Promise<readonly T[]> {
  let last: T[] = [];
  if (count === 0) return last;
  for await (const item of items) {
    last.push(item);
    if (last.length === 2 * count) last = last.slice(count);
  }
  return last.slice(-count);
}

/** Verifies a log in one sequential pass. */
export async function verifyLog(
  source: LogSource,
  { verifier, expected }: VerifyOptions,
): Promise<LogVerification> {
  const checker = createLogVerifier({ threadId: source.threadId, verifier, expected });
  for await (const chunk of source.chunks()) if (!checker.push(chunk)) break;
  return checker.end();
}

/** The bytes of a log, for any adapter. */
export interface LogSource {
  readonly threadId: string;
  /** Names the log in errors. */
  readonly location: string;
  /** Chunks in order; each is only valid until the next one is asked for. Throws `thread_not_found` without a log. */
  chunks(end?: number): AsyncIterable<Buffer>;
}

/** The error for a file that is not a log, which is left as it is. */
export function malformedLog(path: string, problem: string): RyeError {
  return new RyeError('log_malformed', `${path} is not a thread log: ${problem}`, {
    hint: 'The file was left as it is. Move it away, or restore it from a backup.',
    details: { path },
  });
}

/** The header in the text of a first line; refused with `log_malformed` when it is not the thread's. */
function parseHeader(text: string, path: string, threadId: string): LogHeader {
  const decoded = decodeHeader(text);
  if ('problem' in decoded) throw malformedLog(path, decoded.problem);
  if (decoded.header.thread_id === threadId) return decoded.header;
  throw malformedLog(path, `it belongs to thread ${decoded.header.thread_id}, not to ${threadId}`);
}

export interface ScanOptions {
  /** Skip events that have no place in the tree and start no tool: their lines are counted, not parsed. */
  readonly entriesOnly: boolean;
  /** Bytes to read. Default: all. */
  readonly end?: number;
}

/**
 * Reads a sound log fast: decodes text a region at a time and does not parse lines that the caller skips. Returns undefined
 * for a log with a defect, which the careful reader reports.
 */
async function scanLog(source: LogSource, options: ScanOptions): Promise<OpenedLog | undefined> {
  const scan = new Scan(source, options);
  const regions = new LineRegions();
  for await (const chunk of source.chunks(options.end)) {
    for (const region of regions.push(chunk)) {
      for (const piece of piecesOf(region)) if (!scan.take(piece)) return undefined;
    }
    if (regions.heldBytes > MAX_LINE_BYTES) return undefined;
  }
  return regions.heldBytes > 0 ? undefined : scan.result();
}

// texts much longer than this live among the large objects, which only a full collection frees
const PIECE_BYTES = 64 * 1024;

/** Cuts whole lines into runs of whole lines, each short unless a line is not. */
function* piecesOf(region: Buffer): Generator<Buffer, void, undefined> {
  for (let from = 0; from < region.length; ) {
    const wanted = from + PIECE_BYTES;
    const last = wanted < region.length ? region.lastIndexOf(LF, wanted - 1) : region.length - 1;
    const end = (last < from ? region.indexOf(LF, wanted) : last) + 1;
    yield region.subarray(from, end);
    from = end;
  }
}

const TIMESTAMP_LENGTH = 24;
/** The type of most entries, with the quote that ends it in a line. */
const MESSAGE = 'message"';

class Scan {
  readonly #location: string;
  readonly #threadId: string;
  readonly #entriesOnly: boolean;
  /** The text between the timestamp and the event type. */
  readonly #middle: string;
  readonly #events: (LogEvent | UnknownEvent)[] = [];
  readonly #offsets: number[] = [];
  #header: LogHeader | undefined;
  /** Events of an older form are for the careful reader. */
  #isOld = false;
  #offset = 0;
  #seq = 0;
  #lastId: string | null = null;

  constructor({ threadId, location }: LogSource, { entriesOnly }: ScanOptions) {
    this.#location = location;
    this.#threadId = threadId;
    this.#entriesOnly = entriesOnly;
    this.#middle = `","thread_id":${JSON.stringify(threadId)},"event_type":"`;
  }

  /** Takes whole lines; false for lines that need care. */
  take(region: Buffer): boolean {
    const ascii = isAscii(region);
    if (!ascii && !isUtf8(region)) return false;
    const text = region.toString(ascii ? 'latin1' : 'utf8');
    const start = this.#takeHeader(text);
    if (this.#isOld) return false;
    for (let at = start; at < text.length; ) {
      const end = text.indexOf('\n', at);
      this.#seq += 1;
      const isUnwanted = this.#entriesOnly && this.#isLogOnly(text, at);
      if (!isUnwanted && !this.#keep(text.slice(at, end))) return false;
      this.#offset += ascii ? end + 1 - at : Buffer.byteLength(text.slice(at, end + 1));
      at = end + 1;
    }
    return true;
  }

  result(): OpenedLog | undefined {
    if (!this.#header) return undefined;
    return { header: this.#header, events: this.#events, offsets: this.#offsets, problems: [] };
  }

  /** Returns the position after the header, which is read from the first region. */
  #takeHeader(text: string): number {
    if (this.#header) return 0;
    const end = text.indexOf('\n');
    const line = text.slice(0, end);
    this.#header = parseHeader(line, this.#location, this.#threadId);
    this.#isOld = upgradeFrom(this.#header.version) !== undefined;
    this.#offset = Buffer.byteLength(line) + 1;
    return end + 1;
  }

  /** True for a line of the encoder's own form, with the seq that is due, whose type is never an entry's. */
  #isLogOnly(text: string, at: number): boolean {
    const prefix = `{"seq":${this.#seq},"timestamp":"`;
    const typeAt = at + prefix.length + TIMESTAMP_LENGTH + this.#middle.length;
    if (text.startsWith(MESSAGE, typeAt)) return false;
    if (!text.startsWith(prefix, at)) return false;
    if (!text.startsWith(this.#middle, typeAt - this.#middle.length)) return false;
    return LOG_ONLY.has(text.slice(typeAt, text.indexOf('"', typeAt)));
  }

  #keep(line: string): boolean {
    const event = asEvent(parseJson(line) ?? null);
    if (event?.seq !== this.#seq || event.thread_id !== this.#threadId) return false;
    this.#events.push(this.#shared(event as Shareable));
    this.#offsets.push(this.#offset);
    return true;
  }

  /** Texts that repeat from line to line are kept once: what a large log keeps alive decides how long it takes to open. */
  #shared(event: Shareable): LogEvent | UnknownEvent {
    event.thread_id = this.#threadId;
    if (event.parent_id === this.#lastId) event.parent_id = this.#lastId;
    if (event.id !== undefined) this.#lastId = event.id;
    return event;
  }
}

/** An event that is not shared yet, so it may still be changed. */
type Shareable = {
  -readonly [K in keyof UnknownEvent]: UnknownEvent[K];
};

/**
 * Lines that a context and an export do not need. Unknown types may be entries; `tool_call_start` is kept because a missing
 * result must tell whether its call was started, `thread_continued` because a continuation's own events begin after it.
 */
const LOG_ONLY: ReadonlySet<string> = new Set<string>(
  LOG_ONLY_TYPES.filter((type) => type !== 'tool_call_start' && type !== 'thread_continued'),
);
