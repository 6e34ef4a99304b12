import { createHash } from 'node:crypto';
import { openRegular } from '../disk/regular-file.ts';
import { splitText } from './signature-line.ts';

const CHUNK_BYTES = 256 * 1024;

/** A signed Markdown file, without its text. */
export interface SignedDigest {
  /** The signature line; empty if the file has none. */
  readonly line: string;
  /** SHA-256 hex of the bytes below it, of the whole file without one. */
  readonly sha256: string;
}

/** Reads a file of any size once, through one buffer: exports of long threads are too large to be a string. */
export async function digestSigned(path: string): Promise<SignedDigest> {
  const handle = await openRegular(path);
  try {
    const hash = createHash('sha256');
    const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
    // a signature line is far shorter than a chunk
    const first = buffer.subarray(0, (await handle.read(buffer)).bytesRead);
    const head = first.subarray(0, first.indexOf('\n') + 1);
    const { line } = splitText(head.toString('utf8'), 'html');
    hash.update(line === '' ? first : first.subarray(head.length));
    for (;;) {
      const { bytesRead } = await handle.read(buffer);
      if (bytesRead === 0) return { line, sha256: hash.digest('hex') };
      hash.update(buffer.subarray(0, bytesRead));
    }
  } finally {
    await handle.close();
  }
}
