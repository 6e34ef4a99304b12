import { RyeError, systemCodeOf } from '../core/errors.ts';
import type { LogEvent, LogHeader, UnknownEvent } from '../core/events.ts';
import { decodeLine, MAX_LINE_BYTES } from '../log/codec.ts';
import type { LogProblem } from '../log/problem.ts';
import { createLogVerifier, type LogVerification } from '../log/verifier.ts';
import { type LogStep, upgradeFrom } from '../log/versions.ts';
import {
  type LogSource,
  malformedLog,
  parseHeader,
  type ScanOptions,
  scanLog,
} from './log-scan.ts';
import type { OpenedLog, VerifyOptions } from './store.ts';

/** One line of a file without its line feed. `bytes` is undefined when the line is longer than a log allows. */
export interface FileLine {
  readonly offset: number;
  readonly bytes: Buffer | undefined;
  /** Bytes that the line takes in the file, its line feed included. */
  readonly length: number;
  /** False for the bytes behind the last line feed. */
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

  /** What stands behind the last line feed, if anything. */
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

/** The header in a file's first line; `undefined` stands for an empty file. */
function headerOf(line: FileLine | undefined, path: string, threadId: string): LogHeader {
  if (!line) throw malformedLog(path, 'it is empty');
  if (!line.bytes || !line.ended) throw malformedLog(path, 'its first line is no thread header');
  return parseHeader(line.bytes.toString('utf8'), path, threadId);
}

/** Reads events and problems out of lines behind the header. */
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
      this.#report('fused', offset, `${pieces.length} records stand on one line`);
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
