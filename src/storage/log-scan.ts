import { isAscii, isUtf8 } from 'node:buffer';
import { RyeError } from '../core/errors.ts';
import {
  LOG_ONLY_TYPES,
  type LogEvent,
  type LogHeader,
  type UnknownEvent,
} from '../core/events.ts';
import { parseJson } from '../core/json.ts';
import { asEvent, decodeHeader, MAX_LINE_BYTES } from '../log/codec.ts';
import { LineRegions } from '../log/regions.ts';
import { upgradeFrom } from '../log/versions.ts';
import type { OpenedLog } from './store.ts';

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
export function parseHeader(text: string, path: string, threadId: string): LogHeader {
  const decoded = decodeHeader(text);
  if ('problem' in decoded) throw malformedLog(path, decoded.problem);
  if (decoded.header.thread_id === threadId) return decoded.header;
  throw malformedLog(path, `it belongs to thread ${decoded.header.thread_id}, not to ${threadId}`);
}

export interface ScanOptions {
  /** Leave out what has no place in the tree and starts no tool: such lines are counted, not parsed. */
  readonly entriesOnly: boolean;
  /** How many bytes to read; by default all. */
  readonly end?: number;
}

/**
 * Reads a sound log fast: decodes text a region at a time and does not parse lines that the caller skips. Returns undefined
 * for a log with a defect, which the careful reader reports.
 */
export async function scanLog(
  source: LogSource,
  options: ScanOptions,
): Promise<OpenedLog | undefined> {
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

const LF = 0x0a;
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
/** The type of most entries, and as it stands in a line. */
const MESSAGE = 'message"';

class Scan {
  readonly #location: string;
  readonly #threadId: string;
  readonly #entriesOnly: boolean;
  /** What stands between the timestamp and the event type. */
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

  /** The position behind the header, which is read from the first region. */
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

/** An event that nobody else has seen yet. */
type Shareable = {
  -readonly [K in keyof UnknownEvent]: UnknownEvent[K];
};

/**
 * Lines that a context and an export do not need. Unknown types may be entries; `tool_call_start` is kept because a missing
 * result must say whether its call was started, `thread_continued` because what is a continuation's own begins behind it.
 */
const LOG_ONLY: ReadonlySet<string> = new Set<string>(
  LOG_ONLY_TYPES.filter((type) => type !== 'tool_call_start' && type !== 'thread_continued'),
);
