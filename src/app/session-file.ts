import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { messageOf, RyeError } from '../core/errors.ts';
import { MAX_LINE_BYTES } from '../log/codec.ts';
import { LineRegions } from '../log/regions.ts';

/** A file that was read whole: its length and hash. */
export interface ReadFile {
  readonly bytes: number;
  /** SHA-256, hexadecimal. */
  readonly sha256: string;
}

/**
 * Hands the lines of a text file to `take` in order, without their line feeds; `isTorn` for a last one that has none,
 * `isLossy` for one that is not UTF-8. The file is streamed and never written. Errors: `file_not_found`; `item_too_large` for a line over 16 MiB.
 */
export async function readLines(
  path: string,
  take: (line: string, isTorn: boolean, isLossy: boolean) => void,
): Promise<ReadFile> {
  await assertFile(path);
  const hash = createHash('sha256');
  const regions = new LineRegions();
  let bytes = 0;
  let line = 1;
  const pass = (text: Buffer, isTorn: boolean): void => {
    if (text.length > MAX_LINE_BYTES) throw tooLong(path, line);
    take(text.toString('utf8'), isTorn, !isUtf8(text));
    line += 1;
  };
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 18 })) {
    const piece = chunk as Buffer;
    hash.update(piece);
    bytes += piece.length;
    for (const whole of regions.push(piece)) {
      for (let start = 0; start < whole.length; ) {
        const end = whole.indexOf(LF, start);
        pass(whole.subarray(start, end), false);
        start = end + 1;
      }
    }
    if (regions.heldBytes > MAX_LINE_BYTES) throw tooLong(path, line);
  }
  if (regions.heldBytes > 0) pass(regions.rest(), true);
  return { bytes, sha256: hash.digest('hex') };
}

const LF = 0x0a;

async function assertFile(path: string): Promise<void> {
  let found: Awaited<ReturnType<typeof stat>>;
  try {
    found = await stat(path);
  } catch (error) {
    throw new RyeError('file_not_found', `${path} cannot be read: ${messageOf(error)}`, {
      hint: 'Give the path of a session file.',
      cause: error,
    });
  }
  // a pipe or a device may never end
  if (!found.isFile()) throw new RyeError('usage', `${path} is not a regular file`);
}

function tooLong(path: string, line: number): RyeError {
  return new RyeError('item_too_large', `the line is over ${MAX_LINE_BYTES} bytes`, {
    location: { path, line },
    hint: 'The file was left as it is.',
  });
}
