import { RyeError, systemCodeOf } from '../../core/errors.ts';
import type { LogEvent, LogHeader, UnknownEvent } from '../../core/events.ts';
import { decodeHeader, decodeLine } from '../../log/codec.ts';
import type { LogProblem } from '../../log/problem.ts';
import { createLogVerifier, type LogVerification } from '../../log/verifier.ts';
import { type LogStep, upgradeFrom } from '../../log/versions.ts';
import type { OpenedLog, VerifyOptions } from '../store.ts';
import { type FileLine, LineSplitter } from './lines.ts';
import { logChunks } from './log-archive.ts';

/** An event and the byte at which it stands. */
export interface PlacedEvent {
  readonly offset: number;
  readonly event: LogEvent | UnknownEvent;
}

/** Refuses a file that is no log. The file is left as it is. */
export function malformedLog(path: string, problem: string): RyeError {
  return new RyeError('log_malformed', `${path} is not a thread log: ${problem}`, {
    hint: 'The file was left as it is. Move it away, or restore it from a backup.',
    details: { path },
  });
}

/** The header in a file's first line; `undefined` stands for an empty file. */
function headerOf(line: FileLine | undefined, path: string, threadId: string): LogHeader {
  if (!line) throw malformedLog(path, 'it is empty');
  if (!line.bytes || !line.ended) throw malformedLog(path, 'its first line is no thread header');
  return parseHeader(line.bytes.toString('utf8'), path, threadId);
}

/** The header in the text of a first line; refused with `log_malformed` when it is not the thread's. */
export function parseHeader(text: string, path: string, threadId: string): LogHeader {
  const decoded = decodeHeader(text);
  if ('problem' in decoded) throw malformedLog(path, decoded.problem);
  if (decoded.header.thread_id === threadId) return decoded.header;
  throw malformedLog(path, `it belongs to thread ${decoded.header.thread_id}, not to ${threadId}`);
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
  if (systemCodeOf(error) !== 'ENOENT') return error;
  return new RyeError('thread_not_found', `thread ${threadId} has no log`, {
    hint: 'List the threads of this project with `rye threads list`.',
    details: { thread_id: threadId },
  });
}

/** Reads a whole log; memory beyond the events is one line. Never writes. */
export async function readLog(path: string, threadId: string, end?: number): Promise<OpenedLog> {
  const splitter = new LineSplitter();
  const reader = new EventReader(0);
  const events: (LogEvent | UnknownEvent)[] = [];
  const offsets: number[] = [];
  let header: LogHeader | undefined;
  let upgrade: LogStep | undefined;
  const take = (line: FileLine): void => {
    if (!header) {
      header = headerOf(line, path, threadId);
      upgrade = upgradeFrom(header.version);
      return;
    }
    for (const { event, offset } of reader.events(line)) {
      events.push(upgrade ? upgrade(event) : event);
      offsets.push(offset);
    }
  };
  try {
    for await (const chunk of logChunks(path, end)) {
      for (const line of splitter.push(chunk)) take(line);
    }
  } catch (error) {
    throw missingLog(error, threadId);
  }
  const rest = splitter.end();
  if (rest) take(rest);
  return {
    header: header ?? headerOf(undefined, path, threadId),
    events,
    offsets,
    problems: reader.problems,
  };
}

/** One sequential pass over a log's bytes through the verifier. */
export async function verifyLog(
  path: string,
  threadId: string,
  { verifier, expected }: VerifyOptions,
): Promise<LogVerification> {
  const checker = createLogVerifier({ threadId, verifier, expected });
  try {
    for await (const chunk of logChunks(path)) {
      if (!checker.push(chunk)) break;
    }
  } catch (error) {
    throw missingLog(error, threadId);
  }
  return checker.end();
}
