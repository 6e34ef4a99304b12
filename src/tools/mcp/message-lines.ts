/**
 * A larger message ends the connection: no answer is that large in good faith, and parsing one would hold up every
 * timer and signal of the process.
 */
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;

/** Why a connection ends at such a message. */
export const TOO_LONG = `it sent a message of more than ${MAX_MESSAGE_BYTES / 1024 / 1024} MiB`;

const NEWLINE = 0x0a;
const FLOOD_BYTES = 1024 * 1024;

/** Splits a stream into lines in time and memory linear in its bytes, however small its chunks are. */
export class MessageLines {
  #pieces: Buffer[] = [];
  #held = 0;

  /** True in the middle of a message that is longer than answers are. */
  get isFlooded(): boolean {
    return this.#held > FLOOD_BYTES;
  }

  /** The lines that a chunk completes, without empty ones; `too_long` as soon as one passes the bound. */
  push(chunk: Buffer): readonly string[] | 'too_long' {
    const lines: string[] = [];
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      if (!this.#hold(chunk.subarray(start, end))) return 'too_long';
      const line = Buffer.concat(this.#pieces).toString('utf8').replace(/\r$/, '');
      this.#pieces = [];
      this.#held = 0;
      if (line !== '') lines.push(line);
      start = end + 1;
    }
    return this.#hold(chunk.subarray(start)) ? lines : 'too_long';
  }

  #hold(piece: Buffer): boolean {
    this.#held += piece.length;
    if (this.#held > MAX_MESSAGE_BYTES) {
      this.#pieces = [];
      return false;
    }
    if (piece.length > 0) this.#pieces.push(piece);
    return true;
  }
}

/**
 * A `fetch` whose responses end with an error at a message beyond the bound: an event of an event stream, or the whole
 * body of any other response.
 */
export function boundedFetch(input: string | URL, init?: RequestInit): Promise<Response> {
  return fetch(input, init).then((response) => {
    if (response.body === null) return response;
    const isStream = response.headers.get('content-type')?.includes('text/event-stream') === true;
    let held = 0;
    const bound = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        const end = isStream
          ? Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).lastIndexOf(NEWLINE)
          : -1;
        held = end === -1 ? held + chunk.length : chunk.length - end - 1;
        if (held > MAX_MESSAGE_BYTES) controller.error(new Error(TOO_LONG));
        else controller.enqueue(chunk);
      },
    });
    const { status, statusText, headers } = response;
    return new Response(response.body.pipeThrough(bound), { status, statusText, headers });
  });
}
