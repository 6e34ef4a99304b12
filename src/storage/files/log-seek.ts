import type { FileHandle } from 'node:fs/promises';
import { seqAt } from '../../log/regions.ts';

const LF = 0x0a;
/** What one look into the file reads; also the span in which a scan costs no more than another look. */
const PROBE_BYTES = 64 * 1024;

/**
 * The start of a line at or before the first event with a seq above `since`, and close to it. Events stand in the order of their
 * seq, so a few looks into the file find the place, and no index beside the log can be wrong about it.
 */
export async function offsetBehind(handle: FileHandle, since: number): Promise<number> {
  if (since <= 0) return 0;
  const { size } = await handle.stat();
  let low = 0;
  let high = size;
  while (high - low > PROBE_BYTES) {
    const middle = low + Math.floor((high - low) / 2);
    const line = await firstLineBehind(handle, middle, high);
    if (line === undefined || line.seq > since) high = middle;
    else low = line.offset;
  }
  return low;
}

interface NumberedLine {
  readonly offset: number;
  readonly seq: number;
}

/** The first line that starts behind `from` and before `end` and is an event; damaged ones are passed over. */
async function firstLineBehind(
  handle: FileHandle,
  from: number,
  end: number,
): Promise<NumberedLine | undefined> {
  const probe = Buffer.allocUnsafe(PROBE_BYTES);
  for (let at = from; at < end; ) {
    const { bytesRead } = await handle.read(probe, 0, PROBE_BYTES, at);
    const bytes = probe.subarray(0, bytesRead);
    let next = bytes.indexOf(LF) + 1;
    for (; next > 0 && at + next < end; next = bytes.indexOf(LF, next) + 1) {
      const found = seqAt(bytes, next);
      // digits that the probe cuts off are another number
      if (found && found.end < bytes.length) return { offset: at + next, seq: found.seq };
    }
    if (bytesRead < PROBE_BYTES) return undefined;
    // the last line feed may have its line behind this probe
    at += Math.max(1, bytes.lastIndexOf(LF) === -1 ? bytesRead : bytes.lastIndexOf(LF));
  }
  return undefined;
}
