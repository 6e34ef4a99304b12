import { createHash, type Hash } from 'node:crypto';
import type { LogEvent } from '../core/events.ts';
import { isRecord, parseJson } from '../core/json.ts';
import type { KeyRefusal, PayloadKey, PayloadVerifier } from '../core/signing.ts';
import {
  type Checkpoint,
  CheckpointChain,
  chainStart,
  isCheckpointPayload,
  isSecond,
  type LogHead,
  signedPart,
} from './checkpoint.ts';
import { decodeHeader, encodeEvent, matchesAt, seqAt, typeDistance } from './codec.ts';
import { eachLine, type LineVisitor } from './scanner.ts';

/** Length, whole-file SHA-256 (hex) and number of events of a log, the header not counted. */
export interface LogExtent {
  readonly bytes: number;
  readonly sha256: string;
  readonly events: number;
}

/** The first place at which a log is not what was signed, or is not signed. */
export interface LogFlaw {
  readonly code: 'transcript_tampered' | 'thread_rolled_back' | KeyRefusal;
  readonly offset: number;
  readonly reason: string;
}

interface Checked {
  /** The log's length up to the last signature that holds: what follows was not signed. */
  readonly verified_bytes: number;
  readonly checkpoints: number;
  /** The checkpoint at which `verified_bytes` ends; absent if no signature holds. */
  readonly head?: LogHead;
}

/**
 * A log that is what was signed, up to `verified_bytes`. `unverified_bytes` follow the last signature: a crash leaves
 * some, and anyone may have added to them. `events` counts the signed ones; `bytes` and `sha256` are of the whole file.
 */
export interface LogIntact extends LogExtent, Checked {
  readonly ok: true;
  readonly unverified_bytes: number;
  readonly head: LogHead;
  /** Why the unverified bytes can't be read as a log, if so. */
  readonly flaw?: LogFlaw;
}

/** A log whose signed part was changed, whose keys are not trusted, or without any signature. */
export interface LogTampered extends LogFlaw, Checked {
  readonly ok: false;
  /** Nothing in it is signed, as a crash leaves a log that was just created: nothing signed was changed either. */
  readonly unsigned?: true;
}

export type LogVerification = LogIntact | LogTampered;

export interface LogVerifierOptions {
  readonly threadId: string;
  readonly verifier: PayloadVerifier;
  /** The extent in a finished thread's signed thread.json: then nothing may be missing or unsigned. */
  readonly expected?: LogExtent | undefined;
}

const REFUSED: Readonly<Record<KeyRefusal, string>> = {
  key_untrusted: 'is not trusted',
  key_revoked: 'is revoked',
  key_out_of_scope: 'is not trusted for records of threads',
};
const NO_HEADER = 'the log has no header';
const UNSIGNED = 'nothing in the log is signed';
const TIMESTAMP_PREFIX = Buffer.from(',"timestamp":"');
const CHECKPOINT = Buffer.from('"event_type":"checkpoint"');
/**
 * Checkpoints that are hashed before a signature is checked. Each states the hash of the one before it, so a good
 * signature of one proves all before it. Only if the last is not good are those before it tried.
 */
const MAX_OPEN = 256;

/** A checkpoint that fits the chain and whose signature is not checked yet. */
interface OpenCheckpoint {
  readonly offset: number;
  readonly head: LogHead;
  readonly count: number;
  readonly isGood: () => boolean;
}

/**
 * Checks the header, the sequence, the hash chain and the signatures of a log in one pass. Lines are not parsed, only
 * hashed; a checkpoint is recognized at the place where the writer puts its type, and any line of another form
 * breaks the chain or the sequence.
 *
 * Bytes after the last good signature are unverified. A defect before it means that the log was
 * changed: so after the first flaw the verifier looks for a later checkpoint that this thread's keys did sign.
 */
export class LogVerifier implements LineVisitor {
  /** SHA-256 of all bytes so far, to be continued. */
  readonly fileHash: Hash = createHash('sha256');
  readonly #options: LogVerifierOptions;
  readonly #typeAt: number;
  readonly #chain: CheckpointChain;
  #bytes = 0;
  #isSecond = false;
  #events = 0;
  #checkpoints = 0;
  #headerSeen = false;
  #flaw: LogFlaw | undefined;
  /** The flaw is in the signed part, or can't be told from one. */
  #isTampered = false;
  #open: OpenCheckpoint[] = [];
  #good: OpenCheckpoint | undefined;
  /** Keys as they were when first met: one log is judged by one state of the keyring. */
  readonly #keys = new Map<string, PayloadKey | KeyRefusal>();

  constructor(options: LogVerifierOptions) {
    this.#options = options;
    this.#chain = new CheckpointChain(chainStart(options.threadId));
    this.#typeAt = typeDistance(options.threadId);
  }

  chunk(bytes: Uint8Array): void {
    this.fileHash.update(bytes);
    this.#bytes += bytes.length;
  }

  lines(run: Buffer, offset: number): boolean {
    let covered = 0;
    eachLine(run, (start, end) => {
      if (this.#flaw) this.#seekSigned(run.subarray(start, end));
      else if (!this.#headerSeen) this.#header(run.toString('utf8', start, end - 1));
      else {
        const digits = this.#sequence(run, start, offset + start);
        if (digits === 0) this.#seekSigned(run.subarray(start, end));
        else if (matchesAt(run, CHECKPOINT, digits + this.#typeAt)) {
          // long runs of bytes are hashed at once, cut at checkpoints
          this.#chain.cover(run.subarray(covered, start));
          this.#checkpoint(run.subarray(start, end), offset + start);
          covered = end;
        }
      }
      return !this.#isTampered;
    });
    if (!this.#flaw) this.#chain.cover(run.subarray(covered));
    return !this.#isTampered;
  }

  oversized(offset: number): boolean {
    this.#fail(offset, 'a line is over 16 MiB');
    return !this.#isTampered;
  }

  /** Returns the verdict, once all bytes were scanned or the scan ended early. */
  verdict(): LogVerification {
    this.#settle();
    const sha256 = this.fileHash.copy().digest('hex');
    const whole = { bytes: this.#bytes, sha256, events: this.#good?.head.seq ?? 0 };
    if (this.#options.expected) this.#checkEnd(whole, this.#options.expected);
    const head = this.#good?.head;
    const verified = head?.bytes ?? 0;
    const checked = {
      checkpoints: this.#good?.count ?? 0,
      verified_bytes: verified,
      ...(head ? { head } : {}),
    };
    if (this.#flaw && this.#isTampered) return { ok: false, ...this.#flaw, ...checked };
    if (!head) {
      return {
        ok: false,
        code: 'transcript_tampered',
        offset: 0,
        reason: this.#headerSeen ? UNSIGNED : NO_HEADER,
        ...this.#flaw,
        ...checked,
        unsigned: true,
      };
    }
    return {
      ok: true,
      ...whole,
      ...checked,
      head,
      unverified_bytes: whole.bytes - verified,
      ...(this.#flaw ? { flaw: this.#flaw } : {}),
    };
  }

  #checkEnd(found: LogExtent, expected: LogExtent): void {
    const { bytes, sha256, events } = found;
    const verified = this.#good?.head.bytes ?? 0;
    if (bytes < expected.bytes) {
      this.#fail(bytes, `the log ends at byte ${bytes}; thread.json names ${expected.bytes}`);
    } else if (bytes > expected.bytes && verified >= expected.bytes) {
      this.#fail(
        expected.bytes,
        `bytes follow the end at ${expected.bytes} that thread.json names`,
      );
    } else if (verified !== bytes) {
      this.#fail(verified, 'no checkpoint covers the end of the finished log');
    } else if (events !== expected.events) {
      this.#fail(0, `the log has ${events} events; thread.json names ${expected.events}`);
    } else if (sha256 !== expected.sha256) {
      this.#fail(0, "the log's SHA-256 differs from the hash in thread.json");
    }
  }

  #header(line: string): void {
    this.#headerSeen = true;
    const decoded = decodeHeader(line);
    const { threadId } = this.#options;
    if ('problem' in decoded) this.#fail(0, `the file is no log: ${decoded.problem}`);
    else if (decoded.header.thread_id !== threadId) {
      this.#fail(0, `the log belongs to thread ${decoded.header.thread_id}, not to ${threadId}`);
      // no crash of this thread leaves the log of another one
      this.#isTampered = true;
    }
  }

  /** Checks that the line at `start` has the next seq; returns the position after its digits, or 0 after a failure. */
  #sequence(bytes: Buffer, start: number, offset: number): number {
    const found = seqAt(bytes, start);
    if (!found || !matchesAt(bytes, TIMESTAMP_PREFIX, found.end)) {
      this.#fail(offset, 'the line does not have the form of an event');
      return 0;
    }
    if (found.seq !== this.#events + 1) {
      this.#fail(offset, `event ${this.#events + 1} is missing: the line has seq ${found.seq}`);
      return 0;
    }
    this.#events = found.seq;
    return found.end;
  }

  #checkpoint(line: Buffer, offset: number): void {
    const event = checkpointIn(line);
    const problem = event
      ? (this.#statementProblem(event, offset) ?? this.#lineProblem(event, line))
      : 'the checkpoint is malformed';
    if (problem !== undefined || !event) {
      this.#fail(offset, problem ?? '');
      this.#seekSigned(line);
      return;
    }
    const { key_id: keyId, signature } = event.payload;
    const key = this.#key(keyId);
    if (typeof key !== 'object') {
      this.#fail(offset, `the checkpoint is signed with key ${keyId}, which ${REFUSED[key]}`, key);
      return;
    }
    this.#isSecond = isSecond(event.payload);
    const epoch = isSecond(event.payload) ? event.payload.epoch : 0;
    this.#chain.extend(line, { seq: event.seq, epoch, to: offset });
    this.#checkpoints += 1;
    this.#open.push({
      offset,
      count: this.#checkpoints,
      head: this.#chain.head,
      isGood: () => key.verify(signedPart(event), signature),
    });
    if (this.#open.length >= MAX_OPEN) this.#settle();
  }

  #key(keyId: string): PayloadKey | KeyRefusal {
    const key = this.#keys.get(keyId) ?? this.#options.verifier.find(keyId, this.#options.threadId);
    this.#keys.set(keyId, key);
    return key;
  }

  /** Finds the last open checkpoint whose signature holds. One after it that does not is the first flaw. */
  #settle(): void {
    const open = this.#open;
    this.#open = [];
    const last = open.findLastIndex(({ isGood }) => isGood());
    this.#good = open[last] ?? this.#good;
    const bad = open[last + 1];
    if (!bad) return;
    this.#flaw = undefined;
    this.#fail(bad.offset, "the checkpoint's signature is invalid");
  }

  /**
   * Looks at a line after the first flaw. A checkpoint that was signed for this thread and covers what the good ones do not
   * proves that signed bytes were changed or removed; a copy of an earlier one proves nothing.
   */
  #seekSigned(line: Buffer): void {
    if (this.#isTampered || !line.includes(CHECKPOINT)) return;
    const event = checkpointIn(line);
    if (event?.thread_id !== this.#options.threadId) return;
    const { payload } = event;
    if (payload.to < (this.#good?.head.bytes ?? 0)) return;
    // the older form names no thread: it counts only in a log that has no other
    if (!isSecond(payload) && this.#isSecond) return;
    const key = this.#key(payload.key_id);
    if (typeof key === 'object' && key.verify(signedPart(event), payload.signature)) {
      this.#isTampered = true;
    }
  }

  #statementProblem({ payload }: Checkpoint, offset: number): string | undefined {
    const found = this.#chain.close(offset);
    const { prev, from, to, sha256 } = payload;
    if (prev !== found.prev) {
      return this.#checkpoints === 0
        ? 'the first checkpoint was made for another thread, or an earlier one is missing'
        : 'the checkpoint does not follow the previous one';
    }
    if (from !== found.from || to !== offset) {
      return `the checkpoint covers bytes ${from} to ${to}, but is at ${found.from} to ${offset}`;
    }
    if (sha256 !== found.sha256) {
      return `the bytes from ${from} to ${to} are not those that were signed`;
    }
    if (!isSecond(payload)) return this.#isSecond ? 'the checkpoint has an older form' : undefined;
    const { epoch } = this.#chain.head;
    return payload.epoch < epoch
      ? `the checkpoint is of epoch ${payload.epoch}, after one of epoch ${epoch}`
      : undefined;
  }

  /** The line repeats what was signed, byte for byte, so that no other form of it passes. */
  #lineProblem(event: Checkpoint, line: Buffer): string | undefined {
    const { payload } = event;
    const isRepeated =
      isSecond(payload) || (payload.seq === event.seq && payload.timestamp === event.timestamp);
    const asSigned =
      isRepeated &&
      event.thread_id === this.#options.threadId &&
      Buffer.from(payload.signature, 'base64url').toString('base64url') === payload.signature &&
      encodeEvent(event) === line.toString('utf8');
    return asSigned ? undefined : "the checkpoint's line differs from the signed line";
  }

  /** Notes the first flaw. A finished log has none; in another one it matters whether signed bytes follow. */
  #fail(offset: number, reason: string, code: LogFlaw['code'] = 'transcript_tampered'): void {
    if (this.#flaw) return;
    this.#flaw = { code, offset, reason };
    this.#settle();
    const isKnownKey = this.#flaw.code === 'transcript_tampered' || this.#good !== undefined;
    if (this.#options.expected || !isKnownKey) this.#isTampered = true;
  }
}

function checkpointIn(line: Buffer): Checkpoint | undefined {
  const event = parseJson(line.toString('utf8'));
  if (!isRecord(event) || !isCheckpointPayload(event['payload'])) return undefined;
  const { event_type: type, seq, timestamp, thread_id: threadId } = event;
  const isEnvelope =
    type === 'checkpoint' &&
    typeof seq === 'number' &&
    typeof timestamp === 'string' &&
    typeof threadId === 'string';
  return isEnvelope ? (event as unknown as Checkpoint & LogEvent) : undefined;
}
