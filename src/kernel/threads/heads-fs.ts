import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { parseJson } from '../core/json.ts';
import { NUMBER, nullable, objectOf, optional, TEXT } from '../core/shape.ts';
import { makeFolders } from '../disk/folders.ts';
import { appendLine, createWhole, writeWhole } from '../disk/whole-file.ts';
import type { StoredHead } from '../storage/store.ts';
import type { ThreadDocument } from './thread-document.ts';

/** Maximum bytes of a file of heads. */
const MAX_BYTES = 512 * 1024;
const KEPT_HEADS = 1500;
/** A lock of this age is that of a dead process. */
const STALE_LOCK_MS = 60_000;

/**
 * The heads of one project's threads in the user space, one per line. The last line of a thread counts. Any number of
 * processes may append: a full file is put aside whole, and only what was put aside before is rewritten, with the newest
 * heads. So nothing is rewritten that a process may still append to.
 */
export class HeadsFile {
  readonly #path: string;
  /** Full, and no longer appended to. */
  readonly #full: string;
  /** The newest heads of all files that were full. */
  readonly #older: string;

  constructor(path: string) {
    this.#path = path;
    this.#full = `${path}.1`;
    this.#older = `${path}.2`;
  }

  /** Returns undefined for an unknown thread, for example on another machine. */
  find(threadId: string): ThreadHead | undefined {
    // in this order: a file is put aside between two looks
    return (
      findIn(this.#path, threadId) ?? findIn(this.#full, threadId) ?? findIn(this.#older, threadId)
    );
  }

  /**
   * Writes with one append, so that several processes may write. A partial line from a crash does not parse and is
   * skipped.
   */
  note(head: ThreadHead): void {
    const line = `${JSON.stringify(head)}\n`;
    if (sizeOf(this.#path) + line.length > MAX_BYTES) this.#putAside();
    while (!this.#append(line)) {
      makeFolders(dirname(this.#path), 0o700);
      if (createWhole(this.#path, line, { mode: 0o600 })) return;
    }
  }

  /** False if there is no file. */
  #append(line: string): boolean {
    if (!existsSync(this.#path)) return false;
    try {
      appendLine(this.#path, line);
      return true;
    } catch (error) {
      // another process has just put it aside, and may have made a new one since
      if (error instanceof RyeError && error.details?.['system'] === 'ENOENT') return false;
      throw error;
    }
  }

  /** Returns the newest head of each thread. */
  all(): ReadonlyMap<string, ThreadHead> {
    return newestIn([this.#older, this.#full, this.#path]);
  }

  /** If another process does it, the file grows until the next head. */
  #putAside(): void {
    const lock = `${this.#path}.lock`;
    if (!isLocked(lock, this.#path)) return;
    try {
      if (sizeOf(this.#path) <= MAX_BYTES / 2) return;
      if (existsSync(this.#full)) {
        const kept = [...newestIn([this.#older, this.#full]).values()].slice(-KEPT_HEADS);
        writeWhole(this.#older, kept.map((head) => `${JSON.stringify(head)}\n`).join(''), {
          mode: 0o600,
        });
      }
      renameSync(this.#path, this.#full);
    } finally {
      rmSync(lock, { force: true });
    }
  }
}

function findIn(path: string, threadId: string): ThreadHead | undefined {
  const bytes = bytesOf(path);
  // a line that names the thread contains its id as JSON writes it: only such a line is decoded
  const named = `"thread_id":${JSON.stringify(threadId)}`;
  for (let at = bytes.length; at > 0; ) {
    const found = bytes.lastIndexOf(named, at - 1);
    if (found === -1) break;
    const start = bytes.lastIndexOf(LF, found) + 1;
    const end = bytes.indexOf(LF, found);
    const head = parseJson(bytes.toString('utf8', start, end === -1 ? bytes.length : end));
    if (HEAD.fits(head) && head.thread_id === threadId) return head;
    at = start;
  }
  return undefined;
}

function newestIn(paths: readonly string[]): Map<string, ThreadHead> {
  const heads = new Map<string, ThreadHead>();
  for (const line of paths.flatMap((path) => bytesOf(path).toString('utf8').split('\n'))) {
    const head = parseJson(line);
    if (!HEAD.fits(head)) continue;
    // the newest last, so that the oldest are dropped
    heads.delete(head.thread_id);
    heads.set(head.thread_id, head);
  }
  return heads;
}

function bytesOf(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch {
    return Buffer.alloc(0);
  }
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** Takes the lock of a file that is written to; false if another process has it. */
function isLocked(lock: string, path: string): boolean {
  try {
    closeSync(openSync(lock, 'wx', 0o600));
    return true;
  } catch {
    const [taken, written] = [lock, path].map(
      (one) => statSync(one, { throwIfNoEntry: false })?.mtimeMs ?? 0,
    );
    // its process died
    if (Number(written) - Number(taken) > STALE_LOCK_MS) rmSync(lock, { force: true });
    return false;
  }
}

const HEAD = objectOf<ThreadHead>({
  thread_id: TEXT,
  status: TEXT,
  updated_at: TEXT,
  sha256: TEXT,
  epoch: NUMBER,
  bytes: NUMBER,
  events: NUMBER,
  knowledge_sha256: optional(nullable(TEXT)),
  accepted: optional(TEXT),
});

/** Returns the SHA-256 hex of the first `bytes` of a log; undefined if it is shorter. */
export async function hashOfPrefix(
  log: AsyncIterable<Buffer>,
  bytes: number,
): Promise<string | undefined> {
  const hash = createHash('sha256');
  let left = bytes;
  for await (const chunk of log) {
    const part = chunk.subarray(0, left);
    hash.update(part);
    left -= part.length;
    if (left === 0) break;
  }
  return left === 0 ? hash.digest('hex') : undefined;
}

const LF = 0x0a;

/** The last signed end of a thread's log, kept apart from the thread's folder to detect rollbacks. */
export interface ThreadHead extends StoredHead {
  /** SHA-256 hex of a thread.json that a person accepted although the heads are newer. */
  readonly accepted?: string;
}

/** A head and the place where it was found. */
export interface KnownHead {
  readonly head: ThreadHead;
  readonly place: 'the registry' | 'your user space';
}

/** The current state of a thread's folder. */
export interface PresentState {
  readonly document: ThreadDocument;
  /** Bytes of the log, whole or compressed; undefined if there is none. */
  readonly logBytes: number | undefined;
  /** SHA-256 hex of the first bytes of the log. */
  readonly hashOfPrefix: (bytes: number) => Promise<string | undefined>;
}

/** Returns why a thread is older than a known head; undefined if it is at that head or after it. */
export async function findRollback(
  known: readonly KnownHead[],
  present: PresentState,
): Promise<string | undefined> {
  for (const { head, place } of known) {
    const problem = olderDocument(head, present) ?? (await olderLog(head, present));
    if (problem !== undefined) return `${problem}; ${place} knows a newer state`;
  }
  return undefined;
}

function olderDocument(head: ThreadHead, { document }: PresentState): string | undefined {
  if (document.updated_at >= head.updated_at) return undefined;
  return `its thread.json is of ${document.updated_at} (${document.status}), not of ${head.updated_at} (${head.status})`;
}

async function olderLog(head: ThreadHead, present: PresentState): Promise<string | undefined> {
  const { transcript } = present.document;
  const bytes = transcript?.bytes ?? present.logBytes ?? 0;
  if (bytes < head.bytes) return `its log has ${bytes} bytes, not ${head.bytes}`;
  const found =
    transcript?.bytes === head.bytes ? transcript.sha256 : await present.hashOfPrefix(head.bytes);
  return found === head.sha256 ? undefined : `its log is not the one of ${head.bytes} bytes`;
}

/** Returns the head that a document names; undefined while its log is open. */
export function headOfDocument(
  { thread_id, status, updated_at, transcript }: ThreadDocument,
  { epoch, knowledge_sha256 }: Pick<ThreadHead, 'epoch' | 'knowledge_sha256'>,
): ThreadHead | undefined {
  return transcript && { thread_id, status, epoch, updated_at, knowledge_sha256, ...transcript };
}
