import { createHash } from 'node:crypto';
import type { CheckpointPayload } from '../core/events.ts';
import type { PayloadSigner } from '../core/signing.ts';

/** What a checkpoint states, before it is signed. */
export type CheckpointStatement = Omit<CheckpointPayload, 'key_id' | 'signature'>;

/** SHA-256 in hex of text (as UTF-8) or bytes. */
export function sha256Hex(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

/** `prev` of a log's first checkpoint: it binds the whole chain to one thread, so that logs can't be swapped. */
export function chainStart(threadId: string): string {
  return sha256Hex(threadId);
}

/** Signs a statement; `key_id` is signed with it. */
export function signCheckpoint(
  statement: CheckpointStatement,
  signer: PayloadSigner,
): CheckpointPayload {
  const unsigned = { ...statement, key_id: signer.keyId };
  return { ...unsigned, signature: signer.sign(unsigned) };
}

/** The part of a checkpoint's payload that its signature covers. */
export function signedPart(payload: CheckpointPayload): Omit<CheckpointPayload, 'signature'> {
  const { from, to, sha256, prev, seq, timestamp, key_id } = payload;
  return { from, to, sha256, prev, seq, timestamp, key_id };
}
