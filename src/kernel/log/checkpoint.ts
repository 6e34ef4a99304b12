import { createHash } from 'node:crypto';
import type { CheckpointPayload, FirstCheckpointPayload } from '../core/checkpoint.ts';
import type { EventDraft, LogEvent } from '../core/events.ts';
import { isRecord, type JsonObject } from '../core/json.ts';
import type { PayloadSigner } from '../core/signing.ts';

/** Keeps the statement of a checkpoint apart from everything else that the same key signs. */
const DOMAIN = 'rye-log-v2';

/** The statement of a checkpoint, before it is signed. */
export interface CheckpointStatement {
  readonly threadId: string;
  readonly seq: number;
  readonly timestamp: string;
  readonly epoch: number;
  readonly from: number;
  readonly to: number;
  readonly sha256: string;
  readonly prev: string;
}

/** The last checkpoint of a log, which covers everything before it. */
export interface LogHead {
  /** Length of the log up to the end of the checkpoint's line. */
  readonly bytes: number;
  readonly seq: number;
  /** Number of claims of the thread by a process when the checkpoint was written. */
  readonly epoch: number;
  /** SHA-256 hex of the checkpoint's line with its line feed: the next checkpoint's `prev`. */
  readonly sha256: string;
}

/** A `checkpoint` event. */
export type Checkpoint = Extract<LogEvent, { event_type: 'checkpoint' }>;

/** SHA-256 in hex of text (as UTF-8) or bytes. */
export function sha256Hex(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

/** Before a log's first checkpoint. It binds the whole chain to one thread, so that logs can't be swapped. */
export function chainStart(threadId: string, epoch = 0): LogHead {
  return { bytes: 0, seq: 0, epoch, sha256: sha256Hex(threadId) };
}

/** The hash chain of a log's checkpoints: a writer extends it, a verifier follows it. */
export class CheckpointChain {
  #head: LogHead;
  #segment = createHash('sha256');

  constructor(head: LogHead) {
    this.#head = head;
  }

  /** The last checkpoint. */
  get head(): LogHead {
    return this.#head;
  }

  /** Takes bytes that follow the head, in order. */
  cover(bytes: Uint8Array): void {
    this.#segment.update(bytes);
  }

  /** Ends the segment: what a checkpoint at offset `to` has to state about it. */
  close(to: number): Pick<CheckpointStatement, 'from' | 'to' | 'sha256' | 'prev'> {
    const sha256 = this.#segment.digest('hex');
    this.#segment = createHash('sha256');
    return { from: this.#head.bytes, to, sha256, prev: this.#head.sha256 };
  }

  /** Makes the checkpoint in this line the head. */
  extend(
    line: Uint8Array,
    { seq, epoch, to }: Pick<LogHead, 'seq' | 'epoch'> & { to: number },
  ): void {
    this.#head = { bytes: to + line.length, seq, epoch, sha256: sha256Hex(line) };
  }
}

/** Returns the event that signs a statement. */
export function signCheckpoint(statement: CheckpointStatement, signer: PayloadSigner): Checkpoint {
  const { threadId, seq, timestamp, ...facts } = statement;
  const unsigned = { version: 2, ...facts, key_id: signer.keyId } as const;
  const event = { seq, timestamp, thread_id: threadId, event_type: 'checkpoint' } as const;
  const signature = signer.sign(signedPart({ ...event, payload: { ...unsigned, signature: '' } }));
  return { ...event, payload: { ...unsigned, signature } };
}

/** Returns the statement that the signature of a checkpoint covers, of either version. */
export function signedPart({ thread_id, seq, timestamp, payload }: Checkpoint): JsonObject {
  const { from, to, sha256, prev, key_id } = payload;
  if (!isSecond(payload)) {
    return { from, to, sha256, prev, seq: payload.seq, timestamp: payload.timestamp, key_id };
  }
  const { epoch } = payload;
  return { domain: DOMAIN, thread_id, seq, timestamp, epoch, from, to, sha256, prev, key_id };
}

/** True for a checkpoint of today's form, which names its thread and epoch in what it signs. */
export function isSecond(
  payload: CheckpointPayload | FirstCheckpointPayload,
): payload is CheckpointPayload {
  return 'version' in payload;
}

/** True for the payload of a checkpoint of either version. */
export function isCheckpointPayload(
  value: unknown,
): value is CheckpointPayload | FirstCheckpointPayload {
  if (!isRecord(value)) return false;
  const isSecondForm = value['version'] === 2;
  if (!isSecondForm && 'version' in value) return false;
  const numbers = isSecondForm ? ['from', 'to', 'epoch'] : ['from', 'to', 'seq'];
  const texts = ['sha256', 'prev', 'key_id', 'signature', ...(isSecondForm ? [] : ['timestamp'])];
  return (
    numbers.every((member) => Number.isSafeInteger(value[member])) &&
    texts.every((member) => typeof value[member] === 'string')
  );
}

/** Pieces of an answer or of a tool's output as they stream in. A later event has the whole. */
const PIECES: ReadonlySet<EventDraft['event_type']> = new Set<EventDraft['event_type']>([
  'token_delta',
  'thinking_delta',
  'toolcall_delta',
  'tool_call_progress',
]);

/** True for an event that repeats in pieces what a later event has whole. */
export function isPiece({ event_type: type }: Pick<EventDraft, 'event_type'>): boolean {
  return PIECES.has(type);
}

/**
 * True for an event that may wait some microseconds for its signature, so that it shares one with the event that
 * follows: no effect in the world depends on it, and a recovery without it repeats nothing.
 */
export function canWait(draft: EventDraft): boolean {
  if (draft.repeatable === true || isPiece(draft)) return true;
  if (draft.event_type === 'message') return draft.payload.message.role === 'assistant';
  return WAITING.has(draft.event_type);
}

/** Reports on what is in the log already, or in the ledger. */
const WAITING: ReadonlySet<EventDraft['event_type']> = new Set<EventDraft['event_type']>([
  'hook_fired',
  'custom',
  'cost',
]);
