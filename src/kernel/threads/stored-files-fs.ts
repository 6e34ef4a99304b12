import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Clock } from '../core/clock.ts';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { makeFolders } from '../disk/folders.ts';
import { writeWhole } from '../disk/whole-file.ts';
import type { ThreadDocuments } from '../storage/store.ts';
import { type KeyLookup, type SigningKey, sha256Hex } from '../trust/keys.ts';
import { checkSigned, signDigest } from '../trust/signature.ts';
import type { SignedSubject } from '../trust/signature-line.ts';
import { assertOwnPath } from './own-path-fs.ts';
import type { ThreadFiles } from './ports.ts';
import { planHash } from './stored-plan.ts';
import type { ThreadDocument } from './thread-document.ts';
import { EXPORT_FILE, laterPlan, type SendFile, verifiedDocument } from './thread-files-fs.ts';

export interface StoredFilesOptions {
  readonly projectPath: string;
  readonly documents: ThreadDocuments;
  readonly clock: Clock;
  readonly key: () => SigningKey;
  readonly keys: KeyLookup;
  /** The epoch of this process's claim of a thread; of a thread that it has not claimed, the one in the registry. */
  readonly epochOf: (threadId: string) => Promise<number>;
}

/** Names of files that rye keeps in a store. A name decides where a file is written, so that no other one is. */
const NAME =
  /^(?:thread\.json|plan(?:-[0-9a-f]{16})?\.json|capabilities\.md|knowledge\.md|artifacts\/[A-Za-z0-9_-]{1,120}\.(?:txt|patch))$/;

const DOCUMENT = 'thread.json';
const PLAN = 'plan.json';

/** No name begins as an ID may, so that different files have different subjects. */
function fileSubject(threadId: string, name: string): SignedSubject {
  return { kind: 'thread-file', id: `${threadId}/${name}` };
}

/** Returns the function that signs each file and keeps it in the store, for {@link ThreadFilesOptions.send}. */
export function sendingTo(options: StoredFilesOptions): SendFile {
  const { documents, clock, key, epochOf } = options;
  return async (threadId, name, content) => {
    const bytes = typeof content === 'string' ? Buffer.from(content) : content;
    const signature = signDigest(sha256Hex(bytes), {
      subject: fileSubject(threadId, name),
      key: key(),
      now: clock.now(),
    });
    await documents.put(threadId, { name, bytes, signature }, await epochOf(threadId));
  };
}

/** Returns files that are updated from the store before they are read. */
export function withStoredFiles(files: ThreadFiles, options: StoredFilesOptions): ThreadFiles {
  const stored = new StoredFiles(files, options);
  return {
    ...files,
    readDocument: async (threadId) => {
      await stored.pullDocument(threadId);
      return await files.readDocument(threadId);
    },
    readPlan: async (document) => {
      await stored.pullPlan(document);
      return await files.readPlan(document);
    },
    savedPatch: async (threadId, saved) => {
      await stored.pullSaved(threadId, saved.patch);
      return await files.savedPatch(threadId, saved);
    },
    pull: async (threadId) => await stored.pull(threadId),
  };
}

/** The files of threads in a store. Each is verified before it replaces the one on this disk. */
class StoredFiles {
  readonly #files: ThreadFiles;
  readonly #options: StoredFilesOptions;

  constructor(files: ThreadFiles, options: StoredFilesOptions) {
    this.#files = files;
    this.#options = options;
  }

  async pull(threadId: string): Promise<void> {
    const listed = await this.#options.documents.list(threadId);
    for (const { name } of listed) {
      if (!NAME.test(name)) throw foreignName(threadId, name);
    }
    if (listed.length === 0) return;
    await this.pullDocument(threadId);
    for (const { name, sha256 } of listed) {
      const path = name === DOCUMENT ? undefined : await this.#pathOf(threadId, name);
      if (path === undefined) continue;
      const present = readIfThere(path);
      if (present && sha256Hex(present) === sha256) continue;
      const bytes = await this.#fetch(threadId, name);
      if (bytes) this.#place(path, bytes);
    }
  }

  async pullDocument(threadId: string): Promise<void> {
    const bytes = await this.#fetch(threadId, DOCUMENT);
    if (!bytes) return;
    const path = join(this.#files.folder(threadId), DOCUMENT);
    const present = readIfThere(path);
    if (present && bytes.equals(present)) return;
    const { keys } = this.#options;
    const document = verifiedDocument(bytes.toString('utf8'), { threadId, path, keys });
    const before = present && this.#verified(present.toString('utf8'), threadId, path);
    if (before && isOlder(document, before)) throw olderThan(path, threadId);
    this.#place(path, bytes);
  }

  /** Pulls the plan that the document names, unless it is here. */
  async pullPlan({
    thread_id: threadId,
    plan_sha256: sha256,
  }: Parameters<ThreadFiles['readPlan']>[0]): Promise<void> {
    if (sha256 === undefined) return;
    const folder = this.#files.folder(threadId);
    const names = [laterPlan(sha256), PLAN];
    const isHere = names.some((name) => isPlan(readIfThere(join(folder, name)), sha256));
    if (isHere) return;
    for (const name of names) {
      const bytes = await this.#fetch(threadId, name);
      if (!bytes || !isPlan(bytes, sha256)) continue;
      this.#place(join(folder, name), bytes);
      return;
    }
  }

  /** Pulls one of the patches of a worktree. */
  async pullSaved(threadId: string, path: string): Promise<void> {
    const name = `artifacts/${basename(path)}`;
    if (!NAME.test(name)) return;
    const bytes = await this.#fetch(threadId, name);
    if (bytes) this.#place(join(this.#files.folder(threadId), name), bytes);
  }

  /** Returns where a file belongs; undefined for the export of a thread that runs, which grows here. */
  async #pathOf(threadId: string, name: string): Promise<string | undefined> {
    if (name !== EXPORT_FILE) return join(this.#files.folder(threadId), name);
    const { directive, transcript } = await this.#files.readDocument(threadId);
    return transcript && this.#files.knowledgePath(directive, threadId);
  }

  async #fetch(threadId: string, name: string): Promise<Buffer | undefined> {
    const { documents, keys } = this.#options;
    const file = await documents.get(threadId, name);
    if (!file) return undefined;
    const subject = fileSubject(threadId, name);
    const expected = { keys, subject, isRecord: true };
    const verdict = checkSigned(file.signature, sha256Hex(file.bytes), expected);
    if (verdict.ok) return Buffer.from(file.bytes);
    const code = verdict.code.startsWith('key_') ? verdict.code : 'thread_tampered';
    const what = `${name} of ${threadId} in the store does not verify (${verdict.code})`;
    throw new RyeError(code, what, {
      hint: 'It was changed after rye wrote it, or signed by a key that you do not trust. rye ignored it.',
      details: { thread_id: threadId, file: name, key_id: verdict.keyId ?? null },
    });
  }

  #verified(text: string, threadId: string, path: string): ThreadDocument | undefined {
    try {
      return verifiedDocument(text, { threadId, path, keys: this.#options.keys });
    } catch {
      return undefined; // it is replaced
    }
  }

  #place(path: string, bytes: Uint8Array): void {
    assertOwnPath(join(this.#options.projectPath, '.ai'), path);
    makeFolders(dirname(path));
    writeWhole(path, bytes, { follow: false, sync: 'none' });
  }
}

/** A log only grows, and what is signed of it stays. */
function isOlder({ transcript }: ThreadDocument, { transcript: before }: ThreadDocument): boolean {
  return transcript !== undefined && before !== undefined && transcript.bytes < before.bytes;
}

function isPlan(bytes: Buffer | undefined, sha256: string): boolean {
  return bytes !== undefined && planHash(bytes.toString('utf8')) === sha256;
}

function readIfThere(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function foreignName(threadId: string, name: string): RyeError {
  return new RyeError(
    'thread_tampered',
    `the store has a file ${JSON.stringify(name)} of ${threadId}, which rye does not write`,
    { hint: 'Its row was changed. Nothing was written.', details: { thread_id: threadId } },
  );
}

function olderThan(path: string, threadId: string): RyeError {
  return new RyeError(
    'thread_rolled_back',
    `the store has an older thread.json of ${threadId} than this project`,
    {
      hint: `If the store was restored on purpose, remove ${path}.`,
      details: { thread_id: threadId, path },
    },
  );
}
