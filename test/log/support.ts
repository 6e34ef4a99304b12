import { isoTime } from '../../src/kernel/core/clock.ts';
import type { EventDraft, LogEvent } from '../../src/kernel/core/events.ts';
import type { PayloadSigner } from '../../src/kernel/core/signing.ts';
import {
  type Checkpoint,
  type CheckpointStatement,
  chainStart,
  sha256Hex,
  signCheckpoint,
} from '../../src/kernel/log/checkpoint.ts';
import { encodeEvent, encodeHeader } from '../../src/kernel/log/codec.ts';
import { LOG_START, placeEvent } from '../../src/kernel/log/cursor.ts';
import { headerFor, THREAD } from '../../testing/conformance/fixtures.ts';

export {
  delta,
  headerFor,
  THREAD,
  testKey,
  userMessage,
} from '../../testing/conformance/fixtures.ts';

/** Places drafts as a writer does, with ids e1, e2… or another prefix. */
export function place(drafts: readonly EventDraft[], prefix = 'e'): readonly LogEvent[] {
  let cursor = LOG_START;
  let count = 0;
  return drafts.map((draft) => {
    const placed = placeEvent(cursor, draft, {
      threadId: THREAD,
      timestamp: isoTime(1_771_322_456_000 + cursor.seq),
      entryId: () => {
        count += 1;
        return `${prefix}${count}`;
      },
    });
    cursor = placed.cursor;
    return placed.event;
  });
}

/** The lines of a log with a checkpoint after each group of drafts. */
export function signedLog(
  groups: readonly (readonly EventDraft[])[],
  signer: PayloadSigner,
  threadId = THREAD,
): readonly string[] {
  return linesOf(groups, threadId, (statement) => signCheckpoint(statement, signer));
}

/** The same as an older rye wrote it. */
export function firstFormLog(
  groups: readonly (readonly EventDraft[])[],
  signer: PayloadSigner,
): readonly string[] {
  return linesOf(groups, THREAD, ({ threadId, seq, timestamp, from, to, sha256, prev }) => {
    const facts = { from, to, sha256, prev, seq, timestamp };
    const unsigned = { ...facts, key_id: signer.keyId };
    const payload = { ...unsigned, signature: signer.sign(unsigned) };
    return { seq, timestamp, thread_id: threadId, event_type: 'checkpoint', payload };
  });
}

function linesOf(
  groups: readonly (readonly EventDraft[])[],
  threadId: string,
  seal: (statement: CheckpointStatement) => Checkpoint,
): readonly string[] {
  const lines = [encodeHeader(headerFor(threadId))];
  let from = 0;
  let prev = chainStart(threadId).sha256;
  let cursor = LOG_START;
  const timestamp = '2026-02-17T10:00:56.123Z';
  for (const drafts of groups) {
    for (const draft of drafts) {
      const placed = placeEvent(cursor, draft, {
        threadId,
        timestamp,
        entryId: () => `id${cursor.seq}`,
      });
      cursor = placed.cursor;
      lines.push(encodeEvent(placed.event));
    }
    const text = Buffer.from(lines.join(''));
    const seq = cursor.seq + 1;
    const sha256 = sha256Hex(text.subarray(from));
    const statement = { threadId, seq, timestamp, epoch: 1, from, to: text.length, sha256, prev };
    const line = encodeEvent(seal(statement));
    lines.push(line);
    from = text.length + Buffer.byteLength(line);
    prev = sha256Hex(line);
    cursor = { ...cursor, seq };
  }
  return lines;
}
