import type { LogEvent, UnknownEvent } from '../core/events.ts';
import { decodeLine, matchesAt, seqAt, typeDistance } from './codec.ts';
import { eachLine, type LineVisitor } from './scanner.ts';

export interface PickerOptions {
  readonly threadId: string;
  /** The types of the events that {@link event} takes. */
  readonly types: readonly LogEvent['event_type'][];
  readonly event: (event: LogEvent | UnknownEvent) => void;
  /** A text, and what takes the lines that contain it. */
  readonly text?: { readonly of: string; readonly take: (line: string) => void };
}

const TYPE = Buffer.from('"event_type":"');

/**
 * Picks the events of some types from a log, and the lines with a text, while others scan it. Only they become strings, so
 * that memory does not grow with the log. Lines over 16 MiB are skipped, as by every reader.
 */
export class LinePicker implements LineVisitor {
  readonly #options: PickerOptions;
  readonly #text: Buffer | undefined;
  /** The bytes after {@link TYPE} in a wanted line, and both together. */
  readonly #ends: readonly Buffer[];
  readonly #whole: readonly Buffer[];
  readonly #distance: number;

  constructor(options: PickerOptions) {
    this.#options = options;
    this.#text = options.text && Buffer.from(options.text.of);
    this.#ends = options.types.map((type) => Buffer.from(`${type}"`));
    this.#whole = this.#ends.map((end) => Buffer.concat([TYPE, end]));
    this.#distance = typeDistance(options.threadId);
  }

  lines(run: Buffer): boolean {
    const hasText = this.#text !== undefined && run.includes(this.#text);
    // a run may have a million empty lines
    if (!hasText && !run.includes(TYPE)) return true;
    return eachLine(run, (start, end) => {
      if (hasText && this.#text && run.subarray(start, end).includes(this.#text)) {
        this.#options.text?.take(run.toString('utf8', start, end - 1));
      }
      if (this.#isWanted(run, start, end)) this.#give(run.toString('utf8', start, end - 1));
      return true;
    });
  }

  oversized(): boolean {
    return true;
  }

  /** The writer puts the type at one place; a line of another form is searched. */
  #isWanted(run: Buffer, start: number, end: number): boolean {
    const seq = seqAt(run, start);
    const at = seq === undefined ? 0 : seq.end + this.#distance;
    if (seq !== undefined && matchesAt(run, TYPE, at)) {
      const from = at + TYPE.length;
      return this.#ends.some((name) => run[from] === name[0] && matchesAt(run, name, from));
    }
    if (end - start <= TYPE.length) return false;
    const line = run.subarray(start, end);
    return this.#whole.some((type) => line.includes(type));
  }

  #give(line: string): void {
    const { types, event } = this.#options;
    for (const piece of decodeLine(line)) {
      if ('event' in piece && (types as readonly string[]).includes(piece.event.event_type)) {
        event(piece.event);
      }
    }
  }
}
