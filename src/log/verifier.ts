import { createHash } from 'node:crypto';
import type { CheckpointPayload, LogEvent } from '../core/events.ts';
import { isRecord, parseJson } from '../core/json.ts';
import type { KeyRefusal, PayloadKey, PayloadVerifier } from '../core/signing.ts';
import { chainStart, sha256Hex, signedPart } from './checkpoint.ts';
import { decodeHeader, encodeEvent, MAX_LINE_BYTES } from './codec.ts';
import { OpenChecks } from './open-checks.ts';
import { LineRegions, matchesAt, seqAt, typeDistance } from './regions.ts';

/** Length, whole-file SHA-256 (hex) and number of events of a log, the header not counted. */
export interface LogExtent {
  readonly bytes: number;
  readonly sha256: string;
  readonly events: number;
}

/** A log whose every checkpoint holds. `unverified_bytes` stand after the last one, as a crash leaves them. */
export interface LogIntact extends LogExtent {
  readonly ok: true;
  readonly checkpoints: number;
  readonly verified_bytes: number;
  readonly unverified_bytes: number;
}

/** The first place at which a log is not what was signed. */
export interface LogTampered {
  readonly ok: false;
  readonly code: 'transcript_tampered' | 'key_untrusted' | 'key_revoked';
  readonly offset: number;
  readonly reason: string;
}

export type LogVerification = LogIntact | LogTampered;

export interface LogVerifierOptions {
  readonly threadId: string;
  readonly verifier: PayloadVerifier;
  /** What a finished thread's signed thread.json says about its log: then nothing may be missing or unsigned. */
  readonly expected?: LogExtent | undefined;
}

/** Takes a log's bytes in order, in chunks of any size; memory is bounded by one line. */
export interface LogVerifier {
  /**
   * Resolves when the next chunk may come and this one may be reused; false once the log has failed: further chunks
   * change nothing. Signatures may still be under way then, a bounded number of them.
   */
  push(chunk: Uint8Array): Promise<boolean>;
  /** Waits for all signatures; the first failure in the order of the bytes counts. */
  end(): Promise<LogVerification>;
}

const LF = 0x0a;
const TIMESTAMP_PREFIX = Buffer.from(',"timestamp":"');
/** Signatures that are checked while the bytes behind them are hashed. */
const MAX_OPEN_CHECKS = 128;
const CHECKPOINT = Buffer.from('"event_type":"checkpoint"');

/**
 * Checks the header, the sequence, the hash chain and the signatures of a log in one pass. Lines are not parsed, only
 * hashed; a checkpoint is recognised at the place where the writer puts its type, and any line of another form
 * breaks the chain or the sequence.
 */
export function createLogVerifier(options: LogVerifierOptions): LogVerifier {
  return new ChainVerifier(options);
}

class ChainVerifier implements LogVerifier {
  readonly #options: LogVerifierOptions;
  readonly #file = createHash('sha256');
  readonly #typeAt: number;
  #segment = createHash('sha256');
  #segmentFrom = 0;
  #prev: string;
  readonly #regions = new LineRegions();
  #offset = 0;
  #events = 0;
  #checkpoints = 0;
  #headerSeen = false;
  #failure: LogTampered | undefined;
  readonly #checks = new OpenChecks();
  /** Keys as they were when first met: one log is judged by one state of the keyring. */
  readonly #keys = new Map<string, PayloadKey | KeyRefusal>();

  constructor(options: LogVerifierOptions) {
    this.#options = options;
    this.#prev = chainStart(options.threadId);
    this.#typeAt = typeDistance(options.threadId);
  }

  async push(chunk: Uint8Array): Promise<boolean> {
    if (this.#failure) return false;
    for (const region of this.#regions.push(chunk)) this.#lines(region);
    if (this.#regions.heldBytes > MAX_LINE_BYTES) this.#fail(this.#offset, 'a line is over 16 MiB');
    await this.#settleChecks(MAX_OPEN_CHECKS);
    return !this.#failure;
  }

  async end(): Promise<LogVerification> {
    await this.#settleChecks(0);
    const torn = this.#regions.rest();
    this.#file.update(torn);
    const bytes = this.#offset + torn.length;
    const sha256 = this.#file.digest('hex');
    if (!this.#failure) this.#checkEnd({ bytes, sha256, events: this.#events });
    if (this.#failure) return this.#failure;
    return {
      ok: true,
      bytes,
      sha256,
      events: this.#events,
      checkpoints: this.#checkpoints,
      verified_bytes: this.#segmentFrom,
      unverified_bytes: bytes - this.#segmentFrom,
    };
  }

  #checkEnd({ bytes, sha256, events }: LogExtent): void {
    const { expected } = this.#options;
    if (!expected) {
      if (!this.#headerSeen) this.#fail(0, 'the log has no header');
      return;
    }
    if (bytes < expected.bytes) {
      this.#fail(bytes, `the log ends at byte ${bytes}; thread.json says ${expected.bytes}`);
    } else if (bytes > expected.bytes) {
      this.#fail(
        expected.bytes,
        `bytes follow the end at ${expected.bytes} that thread.json names`,
      );
    } else if (this.#segmentFrom !== bytes) {
      this.#fail(this.#segmentFrom, 'no checkpoint covers the end of the finished log');
    } else if (events !== expected.events) {
      this.#fail(0, `the log has ${events} events; thread.json says ${expected.events}`);
    } else if (sha256 !== expected.sha256) {
      this.#fail(0, "the log's SHA-256 is not the one that thread.json names");
    }
  }

  /** Whole lines. Hashes runs of them at once, cut at checkpoints. */
  #lines(bytes: Buffer): void {
    if (this.#failure) return;
    this.#file.update(bytes);
    let run = 0;
    let start = 0;
    while (start < bytes.length && !this.#failure) {
      const next = bytes.indexOf(LF, start) + 1;
      if (!this.#headerSeen) {
        this.#header(bytes.toString('utf8', start, next - 1));
      } else {
        const digits = this.#sequence(bytes, start);
        if (digits > 0 && this.#isCheckpoint(bytes, digits)) {
          this.#segment.update(bytes.subarray(run, start));
          this.#checkpoint(bytes.subarray(start, next), this.#offset + start);
          run = next;
        }
      }
      start = next;
    }
    if (!this.#failure) this.#segment.update(bytes.subarray(run));
    this.#offset += bytes.length;
  }

  #header(line: string): void {
    this.#headerSeen = true;
    const decoded = decodeHeader(line);
    const { threadId } = this.#options;
    if ('problem' in decoded) this.#fail(0, `the file is no log: ${decoded.problem}`);
    else if (decoded.header.thread_id !== threadId) {
      this.#fail(0, `the log belongs to thread ${decoded.header.thread_id}, not to ${threadId}`);
    }
  }

  /** Checks that the line at `start` carries the next seq; the position after its digits, or 0 after a failure. */
  #sequence(bytes: Buffer, start: number): number {
    const found = seqAt(bytes, start);
    if (!found || !matchesAt(bytes, TIMESTAMP_PREFIX, found.end)) {
      this.#fail(this.#offset + start, 'the line does not have the form of an event');
      return 0;
    }
    if (found.seq !== this.#events + 1) {
      this.#fail(
        this.#offset + start,
        `event ${this.#events + 1} is missing: the line has seq ${found.seq}`,
      );
      return 0;
    }
    this.#events = found.seq;
    return found.end;
  }

  #isCheckpoint(bytes: Buffer, digitsEnd: number): boolean {
    return matchesAt(bytes, CHECKPOINT, digitsEnd + this.#typeAt);
  }

  #checkpoint(line: Buffer, offset: number): void {
    const text = line.toString('utf8');
    const event = parseJson(text);
    const payload = isRecord(event) ? event['payload'] : undefined;
    if (!isRecord(event) || !isCheckpointPayload(payload)) {
      this.#fail(offset, 'the checkpoint is malformed');
      return;
    }
    const problem =
      this.#statementProblem(payload, offset) ??
      this.#lineProblem(event as unknown as LogEvent, text);
    if (problem !== undefined) {
      this.#fail(offset, problem);
      return;
    }
    this.#checkSignature(payload, offset);
    this.#prev = sha256Hex(line);
    this.#segmentFrom = offset + line.length;
    this.#checkpoints += 1;
  }

  #checkSignature(payload: CheckpointPayload, offset: number): void {
    const { key_id, signature } = payload;
    const key = this.#keys.get(key_id) ?? this.#options.verifier.find(key_id);
    this.#keys.set(key_id, key);
    if (typeof key === 'object') {
      this.#checks.add(offset, key.verify({ ...signedPart(payload) }, signature));
      return;
    }
    const state = key === 'key_revoked' ? 'revoked' : 'not trusted';
    this.#fail(offset, `the checkpoint is signed with key ${key_id}, which is ${state}`, key);
  }

  /** Waits until few enough signatures are open. One that is not good stands before whatever was found since. */
  async #settleChecks(open: number): Promise<void> {
    const offset = await this.#checks.settle(open);
    if (offset === undefined) return;
    this.#failure = undefined;
    this.#fail(offset, "the checkpoint's signature is invalid");
  }

  #statementProblem(payload: CheckpointPayload, offset: number): string | undefined {
    const digest = this.#segment.digest('hex');
    this.#segment = createHash('sha256');
    if (payload.prev !== this.#prev) {
      return this.#checkpoints === 0
        ? 'the first checkpoint was made for another thread, or an earlier one is missing'
        : 'the checkpoint does not follow the previous one';
    }
    if (payload.from !== this.#segmentFrom || payload.to !== offset) {
      return `the checkpoint covers bytes ${payload.from} to ${payload.to}, but stands at ${this.#segmentFrom} to ${offset}`;
    }
    if (payload.sha256 !== digest) {
      return `the bytes from ${payload.from} to ${payload.to} are not those that were signed`;
    }
    return undefined;
  }

  /** The envelope repeats what was signed, byte for byte, so that no other form of the line passes. */
  #lineProblem(event: LogEvent, text: string): string | undefined {
    const payload = event.payload as CheckpointPayload;
    const asSigned =
      event.thread_id === this.#options.threadId &&
      payload.seq === event.seq &&
      payload.timestamp === event.timestamp &&
      Buffer.from(payload.signature, 'base64url').toString('base64url') === payload.signature &&
      encodeEvent(event) === text;
    return asSigned ? undefined : "the checkpoint's line is not the one that was signed";
  }

  #fail(offset: number, reason: string, code: LogTampered['code'] = 'transcript_tampered'): void {
    this.#failure ??= { ok: false, code, offset, reason };
  }
}

function isCheckpointPayload(value: unknown): value is CheckpointPayload {
  return (
    isRecord(value) &&
    ['from', 'to', 'seq'].every((member) => Number.isSafeInteger(value[member])) &&
    ['sha256', 'prev', 'timestamp', 'key_id', 'signature'].every(
      (member) => typeof value[member] === 'string',
    )
  );
}
