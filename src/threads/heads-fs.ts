import { createHash } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { parseJson } from '../core/json.ts';
import { NUMBER, nullable, objectOf, optional, TEXT } from '../core/shape.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { makeFolders } from '../disk/folders.ts';
import { appendLine, writeWhole } from '../disk/whole-file.ts';
import type { StoredHead } from '../storage/store.ts';
import type { ThreadDocument } from './thread-document.ts';

/** Maximum bytes of the file of heads; a larger one is rewritten with the newest heads. */
const MAX_BYTES = 1024 * 1024;
const KEPT_HEADS = 1500;

/** The heads of one project's threads in the user space, one per line. The last line of a thread counts. */
export class HeadsFile {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /** Returns undefined for an unknown thread, for example on another machine. */
  find(threadId: string): ThreadHead | undefined {
    const bytes = this.#bytes();
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

  /**
   * Writes with one append, so that several processes may write. A partial line from a crash does not parse and is
   * skipped.
   */
  note(head: ThreadHead): void {
    const line = `${JSON.stringify(head)}\n`;
    const stats = statSync(this.#path, { throwIfNoEntry: false });
    if (!stats) {
      makeFolders(dirname(this.#path), 0o700);
      writeWhole(this.#path, line, { mode: 0o600 });
      return;
    }
    if (stats.size + line.length > MAX_BYTES) this.#prune();
    appendLine(this.#path, line);
  }

  #prune(): void {
    const kept = [...this.#read().values()].slice(-KEPT_HEADS);
    writeWhole(this.#path, kept.map((head) => `${JSON.stringify(head)}\n`).join(''), {
      mode: 0o600,
    });
  }

  #bytes(): Buffer {
    try {
      return readFileSync(this.#path);
    } catch {
      return Buffer.alloc(0);
    }
  }

  #read(): Map<string, ThreadHead> {
    const heads = new Map<string, ThreadHead>();
    for (const line of this.#bytes().toString('utf8').split('\n')) {
      const head = parseJson(line);
      if (!HEAD.fits(head)) continue;
      // the newest last, so that pruning drops the oldest
      heads.delete(head.thread_id);
      heads.set(head.thread_id, head);
    }
    return heads;
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

/** The current state of a thread's folder and row. */
export interface PresentState {
  readonly document: ThreadDocument;
  /** Undefined if the registry does not know the thread, or cannot be read. */
  readonly record: ThreadRecord | undefined;
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
  // a registry that was rebuilt has rows without heads, and counts their epochs from the beginning
  const isRebuilt = !known.some(({ place }) => place === 'the registry');
  for (const { head, place } of known) {
    const problem =
      (isRebuilt ? undefined : olderRow(head, present)) ??
      olderDocument(head, present) ??
      (await olderLog(head, present));
    if (problem !== undefined) return `${problem}; ${place} knows a newer state`;
  }
  return undefined;
}

function olderRow(head: ThreadHead, { record }: PresentState): string | undefined {
  if (record === undefined || record.epoch >= head.epoch) return undefined;
  return `its row in the registry has epoch ${record.epoch}, not ${head.epoch}`;
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
