import type { LogEvent, UnknownEvent } from '../core/events.ts';
import { decodeLine } from './codec.ts';
import { eachLine, LineScanner } from './scanner.ts';

/**
 * The lines of a log that contain one of these texts, without their line feeds. Only they become strings, so that memory does
 * not grow with the log. Lines over 16 MiB are skipped, as by every reader.
 */
export async function* linesWith(
  chunks: AsyncIterable<Uint8Array>,
  texts: readonly string[],
): AsyncGenerator<string, void, undefined> {
  const wanted = texts.map((text) => Buffer.from(text));
  const isWanted = (bytes: Buffer): boolean => wanted.some((text) => bytes.includes(text));
  let picked: string[] = [];
  const scanner = new LineScanner([
    {
      lines: (run) =>
        !isWanted(run) ||
        eachLine(run, (start, end) => {
          if (isWanted(run.subarray(start, end))) picked.push(run.toString('utf8', start, end - 1));
          return true;
        }),
      oversized: () => true,
    },
  ]);
  for await (const chunk of chunks) {
    scanner.push(chunk);
    yield* picked;
    picked = [];
  }
}

/** The events of these types in a log, in order, parsed one at a time; a few others may be among them. */
export async function* eventsWith(
  chunks: AsyncIterable<Uint8Array>,
  types: readonly LogEvent['event_type'][],
): AsyncGenerator<LogEvent | UnknownEvent, void, undefined> {
  const members = types.map((type) => `"event_type":"${type}"`);
  for await (const line of linesWith(chunks, members)) {
    for (const piece of decodeLine(line)) if ('event' in piece) yield piece.event;
  }
}
