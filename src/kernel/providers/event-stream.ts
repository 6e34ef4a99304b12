import { AnswerTooLarge } from './failure.ts';

/** Limits of the size of an answer. */
export interface AnswerLimits {
  /** Bytes of one server-sent event. */
  readonly eventBytes: number;
  /** Bytes of all events, with their envelopes. */
  readonly totalBytes: number;
}

const KIB = 1024;
/** A separator is at most four bytes, so that three of them may lie in an earlier piece. */
const SEAM_BYTES = 3;
const SEPARATORS = ['\n\n', '\r\n\r\n', '\r\r'];

/**
 * The limits of an answer to a request with this `max_tokens`. They are far above what a server sends that obeys it:
 * an event may hold the whole answer, and each token may come in an envelope of 2 KiB.
 */
export function answerLimits(maxTokens: number): AnswerLimits {
  return {
    eventBytes: 256 * KIB + 16 * maxTokens,
    totalBytes: KIB * KIB + 2 * KIB * maxTokens,
  };
}

/**
 * Parses server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) from the pieces of a body.
 * It looks at each piece once, however long an unfinished event grows, and all at once: the iterators of the vendors'
 * clients make several promises for each event.
 */
export class EventStream {
  readonly #limits: AnswerLimits;
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  #open: Uint8Array[] = [];
  #openBytes = 0;
  #totalBytes = 0;
  #tail: Uint8Array = new Uint8Array();

  constructor(limits: AnswerLimits) {
    this.#limits = limits;
  }

  /** Returns the data of the events that `piece` completes. Throws {@link AnswerTooLarge} if the answer passes its limit. */
  push(piece: Uint8Array): readonly string[] {
    const { totalBytes } = this.#limits;
    this.#totalBytes += piece.length;
    if (this.#totalBytes > totalBytes) {
      throw tooLarge(`the answer has more than ${totalBytes} bytes`);
    }
    const end = endOfLastEvent(this.#tail, piece);
    this.#tail =
      piece.length < SEAM_BYTES
        ? Buffer.concat([this.#tail, piece]).subarray(-SEAM_BYTES)
        : piece.subarray(-SEAM_BYTES);
    const complete = end > 0 ? this.#take(piece.subarray(0, end)) : '';
    if (end < piece.length) {
      this.#open.push(piece.subarray(end));
      this.#openBytes += piece.length - end;
    }
    return complete === '' ? [] : dataOf(complete);
  }

  /** Throws {@link AnswerTooLarge} if the unfinished event passes its limit. */
  check(): void {
    const { eventBytes } = this.#limits;
    if (this.#openBytes > eventBytes) {
      throw tooLarge(`an event has more than ${eventBytes} bytes`);
    }
  }

  /** Returns the data of an event that the end of the body completes. */
  end(): readonly string[] {
    return dataOf(this.#take(new Uint8Array()) + this.#decoder.decode());
  }

  /** Returns the text of the open pieces and of `last`. */
  #take(last: Uint8Array): string {
    const bytes = this.#open.length === 0 ? last : Buffer.concat([...this.#open, last]);
    this.#open = [];
    this.#openBytes = 0;
    return this.#decoder.decode(bytes, { stream: true });
  }
}

function tooLarge(what: string): AnswerTooLarge {
  return new AnswerTooLarge(`${what}, so the answer was stopped`);
}

const BYTE_ORDER_MARK = 0xfeff;

/** Returns the data of each event in a text that begins and ends between events. */
function dataOf(text: string): readonly string[] {
  const events: string[] = [];
  const lines = text.includes('\r') ? text.split(/\r\n|[\n\r]/) : text.split('\n');
  let data: string | undefined;
  for (const line of lines) {
    if (line === '') {
      if (data !== undefined) events.push(data);
      data = undefined;
      continue;
    }
    const value = dataIn(line.charCodeAt(0) === BYTE_ORDER_MARK ? line.slice(1) : line);
    if (value !== undefined) data = data === undefined ? value : `${data}\n${value}`;
  }
  return events;
}

/** Returns the value of a line of the field `data`; undefined for any other field and for a comment. */
function dataIn(line: string): string | undefined {
  if (line === 'data') return '';
  if (!line.startsWith('data:')) return undefined;
  return line.slice(line.startsWith('data: ') ? 'data: '.length : 'data:'.length);
}

/** Returns the offset after the last complete event in `piece`, which follows the bytes `tail`; 0 if none does. */
function endOfLastEvent(tail: Uint8Array, piece: Uint8Array): number {
  const inside = endOfLastSeparator(piece);
  if (inside > 0) return inside;
  const end = endOfLastSeparator(Buffer.concat([tail, piece.subarray(0, SEAM_BYTES)]));
  return Math.max(0, end - tail.length);
}

function endOfLastSeparator(bytes: Uint8Array): number {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let last = 0;
  for (const separator of SEPARATORS) {
    const at = buffer.lastIndexOf(separator);
    if (at >= 0) last = Math.max(last, at + separator.length);
  }
  return last;
}

const FIELDS = ['data', 'event', 'id', 'retry', ''];

/**
 * Tells by its first bytes whether a body is a stream of events or one JSON document: servers and gateways give streams any
 * label. `kind` is undefined until enough has come.
 */
export class BodyForm {
  kind: 'events' | 'document' | 'other' | undefined;
  readonly #isLabeled: boolean;
  readonly #decoder = new TextDecoder();
  #pieces: Uint8Array[] = [];
  /** The text so far without white space before it. */
  #head = '';

  /** `isLabeled`: the server calls it a stream of events. */
  constructor(isLabeled: boolean) {
    this.#isLabeled = isLabeled;
  }

  take(piece: Uint8Array): void {
    if (this.kind === undefined) {
      this.#head = (this.#head + this.#decoder.decode(piece, { stream: true })).trimStart();
      this.kind = this.#decide();
    }
    if (this.kind === 'document') this.#pieces.push(piece);
  }

  /** The text of a document. */
  text(): string {
    const text = new TextDecoder().decode(Buffer.concat(this.#pieces));
    return text.slice(text.indexOf('{'));
  }

  #decide(): BodyForm['kind'] {
    const head = this.#head;
    if (head.startsWith('{')) return 'document';
    if (head !== '' && (this.#isLabeled || /^(?:data|event|id|retry)?:/.test(head)))
      return 'events';
    return FIELDS.some((field) => `${field}:`.startsWith(head)) ? undefined : 'other';
  }
}
