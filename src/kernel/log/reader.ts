import { isAscii } from 'node:buffer';
import { createHash } from 'node:crypto';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import {
  type EventPayloads,
  LOG_ONLY_TYPES,
  type LogEvent,
  type LogHeader,
  type UnknownEvent,
} from '../core/events.ts';
import type { PayloadVerifier } from '../core/signing.ts';
import {
  decodeHeader,
  decodeLine,
  type LogProblem,
  type LogStep,
  matchesAt,
  seqAt,
  typeDistance,
  upgradeFrom,
} from './codec.ts';
import { eachLine, LineScanner, type LineVisitor, scan, scanNow } from './scanner.ts';
import {
  type LogExtent,
  type LogVerification,
  LogVerifier,
  type LogVerifierOptions,
} from './verifier.ts';

type Event = LogEvent | UnknownEvent;

/** The bytes of a log, wherever they are kept. */
export interface LogSource {
  readonly threadId: string;
  /** Names the log in errors. */
  readonly location: string;
  /** Chunks in order; each is only valid until the next one is asked for. Throws `thread_not_found` without a log. */
  chunks(end?: number): AsyncIterable<Buffer>;
}

/** A log as it was read: the header, its events with byte offsets, and what is wrong with it. */
export interface OpenedLog {
  readonly header: LogHeader;
  readonly events: readonly Event[];
  /** Byte offset of each event, at the same index. */
  readonly offsets: readonly number[];
  readonly problems: readonly LogProblem[];
}

export interface ReadOptions {
  /** Skip events that have no place in the tree and start no tool: their lines are counted, not parsed. */
  readonly entriesOnly: boolean;
  /** Bytes to read. Default: all. */
  readonly end?: number;
}

/** Reads a log. Lines are skipped only in a sound log of today's form: another one is read again, whole. */
export async function readLog(source: LogSource, options: ReadOptions): Promise<OpenedLog> {
  const opened = await readOnce(source, options);
  const isSound = opened.problems.length === 0 && !upgradeFrom(opened.header.version);
  return options.entriesOnly && !isSound
    ? await readOnce(source, { ...options, entriesOnly: false })
    : opened;
}

/** Reads a log; `first` looks at it in the same pass, and may end it. */
async function readOnce(
  source: LogSource,
  { entriesOnly, end }: ReadOptions,
  ...first: readonly LineVisitor[]
): Promise<OpenedLog> {
  const { location, threadId } = source;
  const events: Event[] = [];
  const offsets: number[] = [];
  const problems: LogProblem[] = [];
  let header: LogHeader | undefined;
  let upgrade: LogStep | undefined;
  const reader = new EventReader(
    {
      header(line) {
        header = parseHeader(line, source);
        upgrade = upgradeFrom(header.version);
      },
      event(event, offset) {
        events.push(upgrade ? upgrade(event) : event);
        offsets.push(offset);
      },
      problem(problem) {
        // a line that was too long turned out to be torn
        if (problem.kind === 'torn_tail' && problems.at(-1)?.offset === problem.offset) {
          problems.pop();
        }
        problems.push(problem);
      },
    },
    { threadId, entriesOnly, seq: 0 },
  );
  await scan(source.chunks(end), ...first, reader);
  if (!header) throw malformedLog(location, 'it is empty');
  return { header, events, offsets, problems };
}

/** A verified log, with the events of the part that signatures cover; none if that part was changed. */
export interface VerifiedLog {
  readonly verdict: LogVerification;
  readonly events: readonly Event[];
}

/** Verifies a log and reads what signatures cover, in one pass if the log is sound. */
export async function readVerified(
  source: LogSource,
  {
    entriesOnly,
    ...options
  }: Omit<LogVerifierOptions, 'threadId'> & Pick<ReadOptions, 'entriesOnly'>,
): Promise<VerifiedLog> {
  const verifier = new LogVerifier({ threadId: source.threadId, ...options });
  let opened: OpenedLog;
  try {
    opened = await readOnce(source, { entriesOnly }, verifier);
  } catch (error) {
    if (!(error instanceof RyeError && error.code === 'log_malformed')) throw error;
    return { verdict: await verifyLog(source, options), events: [] };
  }
  const verdict = verifier.verdict();
  if (!verdict.ok) return { verdict, events: [] };
  const { verified_bytes: end } = verdict;
  const isSound =
    !opened.problems.some(({ offset }) => offset < end) && !upgradeFrom(opened.header.version);
  if (entriesOnly && !isSound) {
    return { verdict, events: (await readOnce(source, { entriesOnly: false, end })).events };
  }
  const count = opened.offsets.findIndex((offset) => offset >= end);
  return { verdict, events: count === -1 ? opened.events : opened.events.slice(0, count) };
}

/** Verifies a log in one sequential pass. `listener` takes all of its lines in the same pass, also after a flaw. */
export async function verifyLog(
  source: LogSource,
  { listener, ...options }: VerifyOptions,
): Promise<LogVerification> {
  const verifier = new LogVerifier({ threadId: source.threadId, ...options });
  if (listener === undefined) await scan(source.chunks(), verifier);
  else await scan(source.chunks(), untilEnough(verifier), listener);
  return verifier.verdict();
}

export interface VerifyOptions {
  readonly verifier: PayloadVerifier;
  /** From a finished thread's thread.json: then nothing may be missing or unsigned. */
  readonly expected?: LogExtent | undefined;
  /** Takes all lines in the same pass. What it finds is of a log that may be changed: ask the verdict first. */
  readonly listener?: LineVisitor;
}

/** A visitor that does not end the scan for others when it has enough. */
function untilEnough(visitor: LogVerifier): LineVisitor {
  let isOpen = true;
  return {
    chunk: (bytes) => {
      if (isOpen) visitor.chunk(bytes);
    },
    lines: (run, offset) => {
      isOpen &&= visitor.lines(run, offset);
      return true;
    },
    oversized: (offset) => {
      isOpen &&= visitor.oversized(offset);
      return true;
    },
  };
}

/** Events with a seq above `since` in chunks that begin with the line at `offset`. What is no event is skipped. */
export async function* eventsOf(
  chunks: AsyncIterable<Uint8Array>,
  since: number,
  offset = 0,
): AsyncGenerator<Event, void, undefined> {
  let events: Event[] = [];
  const reader = new EventReader({
    event(event) {
      if (event.seq > since) events.push(event);
    },
  });
  const scanner = new LineScanner([reader], offset);
  for await (const chunk of chunks) {
    scanner.push(chunk);
    yield* events;
    events = [];
  }
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

/** Length, hash and number of lines of bytes that were taken off a log; a last line that is torn counts. */
export function measure(
  chunks: Iterable<Uint8Array>,
): Pick<EventPayloads['log_quarantined'], 'bytes' | 'sha256' | 'lines'> {
  const hash = createHash('sha256');
  let bytes = 0;
  let lines = 0;
  const count = (): boolean => {
    lines += 1;
    return true;
  };
  scanNow(chunks, {
    chunk(chunk) {
      hash.update(chunk);
      bytes += chunk.length;
    },
    lines: (run) => eachLine(run, count),
    oversized: count,
    torn: (rest) => rest && count(),
  });
  return { bytes, sha256: hash.digest('hex'), lines };
}

/** Takes what an {@link EventReader} finds, in order. */
export interface EventSink {
  /** Takes the first line of the log without its line feed; undefined if it is torn or too long. */
  header?(line: string | undefined): void;
  event(event: Event, offset: number): void;
  problem?(problem: LogProblem): void;
}

export interface EventReaderOptions {
  /** The thread of the log. */
  readonly threadId?: string;
  /** Skip events that have no place in the tree and start no tool: their lines are counted, not parsed. */
  readonly entriesOnly?: boolean;
  /** The seq of the event before the first line, if it is known. */
  readonly seq?: number;
}

/** Parses the events in the lines of a log, also of a damaged one, and reports the defects. */
export class EventReader implements LineVisitor {
  readonly #sink: EventSink;
  readonly #threadId: string | undefined;
  /** Bytes between the seq and the type of an event that may be skipped; 0: none may. */
  readonly #typeAt: number;
  #seq: number | undefined;
  #lastId: string | null = null;

  constructor(sink: EventSink, { threadId, entriesOnly, seq }: EventReaderOptions = {}) {
    this.#sink = sink;
    this.#threadId = threadId;
    this.#typeAt = entriesOnly && threadId !== undefined ? typeDistance(threadId) : 0;
    this.#seq = seq;
  }

  lines(run: Buffer, offset: number): boolean {
    // one text for all lines is much faster to make
    const text = isAscii(run) ? run.toString('latin1') : undefined;
    return eachLine(run, (start, end) => {
      if (this.#typeAt > 0 && this.#skip(run, start)) return true;
      const line = text?.slice(start, end - 1) ?? run.toString('utf8', start, end - 1);
      if (offset + start === 0) this.#sink.header?.(line);
      else this.#line(line, offset + start);
      return true;
    });
  }

  oversized(offset: number): boolean {
    if (offset === 0) this.#sink.header?.(undefined);
    this.#report('too_long', offset, 'the line is over 16 MiB and was skipped');
    return true;
  }

  torn(_: Buffer | undefined, offset: number): void {
    if (offset === 0) this.#sink.header?.(undefined);
    this.#report('torn_tail', offset, 'the last line is not complete');
  }

  #line(text: string, offset: number): void {
    const pieces = decodeLine(text);
    if (pieces.length > 1) {
      this.#report('fused', offset, `${pieces.length} records are on one line`);
    }
    for (const piece of pieces) {
      const at =
        piece.start === 0 ? offset : offset + Buffer.byteLength(text.slice(0, piece.start));
      if ('problem' in piece) {
        this.#report('malformed', at, `the line was skipped: ${piece.problem}`);
      } else {
        this.#checkSequence(piece.event.seq, at);
        this.#share(piece.event);
        this.#sink.event(piece.event, at);
      }
    }
  }

  #checkSequence(seq: number, offset: number): void {
    if (this.#seq !== undefined && seq !== this.#seq + 1) {
      this.#report('gap', offset, `seq ${seq} follows seq ${this.#seq}`);
    }
    this.#seq = seq;
  }

  /** Counts a line of the encoder's own form, with the seq that is due, whose type is never an entry's. */
  #skip(run: Buffer, start: number): boolean {
    const found = seqAt(run, start);
    if (found === undefined || found.seq !== (this.#seq ?? 0) + 1) return false;
    const member = found.end + this.#typeAt;
    const typeAt = member + TYPE.length;
    if (!matchesAt(run, TYPE, member) || matchesAt(run, MESSAGE, typeAt)) return false;
    if (!SKIPPED.has(run.toString('latin1', typeAt, run.indexOf('"', typeAt)))) return false;
    this.#seq = found.seq;
    return true;
  }

  /** Texts that repeat from line to line are kept once: what a large log keeps alive decides how long it takes to open. */
  #share(event: {
    thread_id: string;
    readonly id?: string | undefined;
    parent_id?: string | null | undefined;
  }): void {
    if (event.thread_id === this.#threadId) event.thread_id = this.#threadId;
    if (event.parent_id === this.#lastId) event.parent_id = this.#lastId;
    if (event.id !== undefined) this.#lastId = event.id;
  }

  #report(kind: LogProblem['kind'], offset: number, message: string): void {
    this.#sink.problem?.({ kind, offset, message });
  }
}

/** Parses the header in a first line; refused with `log_malformed` when it is not the thread's. */
function parseHeader(text: string | undefined, { location, threadId }: LogSource): LogHeader {
  if (text === undefined) throw malformedLog(location, 'its first line is not a thread header');
  const decoded = decodeHeader(text);
  if ('problem' in decoded) throw malformedLog(location, decoded.problem);
  const { header } = decoded;
  if (header.thread_id === threadId) return header;
  throw malformedLog(location, `it belongs to thread ${header.thread_id}, not to ${threadId}`);
}

/** The error for a thread without a log. */
export function noLog(threadId: string): RyeError {
  return new RyeError('thread_not_found', `thread ${threadId} has no log`, {
    hint: 'List the threads of this project with `rye threads list`.',
    details: { thread_id: threadId },
  });
}

/** Turns the system's "no such file" into `thread_not_found`. */
export function missingLog(error: unknown, threadId: string): unknown {
  return systemCodeOf(error) === 'ENOENT' ? noLog(threadId) : error;
}

/** The error for a file that is not a log, which is left as it is. */
export function malformedLog(path: string, problem: string): RyeError {
  return new RyeError('log_malformed', `${path} is not a thread log: ${problem}`, {
    hint: 'The file is unchanged. Move it away, or restore it from a backup.',
    details: { path },
  });
}

const KEPT: ReadonlySet<string> = new Set([
  'tool_call_start',
  'thread_continued',
  'run_started',
  'cost',
]);

/**
 * Lines that a context and an export do not need. Unknown types may be entries; `tool_call_start` is kept because a missing
 * result must tell whether its call was started, the beginnings of runs because a run's own events come after them.
 */
const SKIPPED: ReadonlySet<string> = new Set<string>(
  LOG_ONLY_TYPES.filter((type) => !KEPT.has(type)),
);
const TYPE = Buffer.from('"event_type":"');
/** The type of most entries, with the quote that ends it. */
const MESSAGE = Buffer.from('message"');
