import { createReadStream } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { isActive } from '../core/thread.ts';
import type { Foundation } from './foundation.ts';
import type { UnverifiedLine, UnverifiedPart } from './rye.ts';

/**
 * The parts of a thread's log that no signature covers: what recoveries moved to files beside it and, if the thread
 * crashed and was not recovered, the end of the log itself. A running thread has none: it signs what it wrote in a moment.
 */
export async function unverifiedParts(
  { store, keyring }: Pick<Foundation, 'store' | 'keyring'>,
  threadId: string,
): Promise<readonly UnverifiedPart[]> {
  const { logs, registry, processes } = store;
  const moved = logs.quarantined(threadId).map(({ file, offset, bytes }) => ({
    file,
    offset,
    bytes,
    from: 0,
  }));
  const record = await registry.get(threadId);
  const { pid = null, host = null, process_start: processStart = null } = record ?? {};
  const isOwned =
    pid !== null &&
    host !== null &&
    processStart !== null &&
    processes.isAlive({ pid, host, processStart });
  if (!record || !isActive(record.status) || isOwned) return moved;
  try {
    const verdict = await logs.verify(threadId, { verifier: keyring.payloadVerifier });
    if (!verdict.ok || verdict.unverified_bytes === 0) return moved;
    const { verified_bytes: offset, unverified_bytes: bytes } = verdict;
    return [...moved, { file: basename(logs.path(threadId)), offset, bytes, from: offset }];
  } catch {
    return moved; // it has no log yet
  }
}

/** The lines of these parts, as they are on the disk: nothing in them is verified, and they may be no events at all. */
export async function* unverifiedLines(
  { store }: Pick<Foundation, 'store'>,
  threadId: string,
  parts: readonly UnverifiedPart[],
): AsyncIterable<UnverifiedLine> {
  const folder = dirname(store.logs.path(threadId));
  for (const { file, from } of parts) {
    const input = createReadStream(join(folder, file), { start: from, encoding: 'utf8' });
    let line = 0;
    for await (const text of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      line += 1;
      yield { verified: false, file, line, text };
    }
  }
}
