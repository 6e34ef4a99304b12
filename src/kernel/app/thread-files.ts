import { createHash } from 'node:crypto';
import { existsSync, realpathSync } from 'node:fs';
import { join, sep } from 'node:path';
import { isoTime } from '../core/clock.ts';
import { messageOf, RyeError } from '../core/errors.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { readRegular } from '../disk/regular-file.ts';
import type { Registry, Store, StoredHead } from '../storage/store.ts';
import {
  findRollback,
  HeadsFile,
  hashOfPrefix,
  headOfDocument,
  type KnownHead,
  type ThreadHead,
} from '../threads/heads-fs.ts';
import type { HeadsPort, Stored, ThreadFiles } from '../threads/ports.ts';
import { sendingTo, withStoredFiles } from '../threads/stored-files-fs.ts';
import type { ThreadDocument } from '../threads/thread-document.ts';
import { openThreadFiles, threadsFolder } from '../threads/thread-files-fs.ts';
import { sha256Hex } from '../trust/keys.ts';
import { splitText } from '../trust/signature-line.ts';
import { lazy } from './lazy.ts';
import type { Workspace } from './workspace.ts';

/** The epochs of the claims of one process, by thread. */
type Epochs = ReadonlyMap<string, number>;

/**
 * The signed files of a project's threads, which are also in the store if that is one of many machines. `claimed` fences
 * the writes of a process whose threads another one has taken over.
 */
export function threadFiles(workspace: Workspace, claimed: Epochs = new Map()): ThreadFiles {
  const { options, clock, keyring, store } = workspace;
  const { projectPath } = options;
  const stored = store.documents && {
    projectPath,
    documents: store.documents,
    clock,
    key: () => keyring.recordSigner(),
    keys: keyring,
    epochOf: async (threadId: string) =>
      claimed.get(threadId) ?? (await store.registry.get(threadId))?.epoch ?? 0,
  };
  const local = openThreadFiles({
    projectPath,
    isStoreLocal: store.maintenance !== undefined,
    clock,
    key: () => keyring.recordSigner(),
    keys: keyring,
    send: stored && sendingTo(stored),
  });
  const files = stored ? withStoredFiles(local, stored) : local;
  const heads = new ThreadHeads(workspace);
  const snapshots = new Map<string, string>();
  return {
    ...files,
    writeDocument: async (document, sync) => {
      const { thread_id: threadId } = document;
      const own = { ...document, ...unsignedRunOf(workspace) };
      const named = withParts(own, files.folder(threadId), snapshots.get(threadId));
      const next = await heads.inOrder(named);
      await files.writeDocument(next, sync);
      await heads.note(next);
    },
    writeCapabilities: async (threadId, text) => {
      await files.writeCapabilities(threadId, text);
      snapshots.set(threadId, recordHash(text));
    },
    writeKnowledge: async (threadId, path, text) => {
      await files.writeKnowledge(threadId, path, text);
      await heads.noteExport(threadId, recordHash(text));
    },
  };
}

/** Marks what a run without a signing key writes. */
function unsignedRunOf({ recordKey: key }: Workspace): Pick<ThreadDocument, 'unsigned_run'> {
  if (key === undefined || !('sign' in key)) return {};
  return { unsigned_run: { key_id: key.keyId, public_key: key.pem } };
}

/**
 * Returns the store and the files for work that claims threads. Files that are written in a store belong to a claim: after
 * another process has taken a thread over, they are refused.
 */
export function claimedParts(workspace: Workspace): Pick<Stored, 'store' | 'files'> {
  const { store } = workspace;
  if (!store.documents) return { store, files: threadFiles(workspace) };
  const claimed = new Map<string, number>();
  return { store: notingClaims(store, claimed), files: threadFiles(workspace, claimed) };
}

function notingClaims(store: Store, claimed: Map<string, number>): Store {
  const { registry, ledger, deliveries, heads, approvals, logs, index, owners } = store;
  const noted = (record: ThreadRecord): ThreadRecord => {
    claimed.set(record.thread_id, record.epoch);
    return record;
  };
  const claiming = lazy<Registry>(async () => registry, {
    register: async (params) => {
      const record = await registry.register(params);
      return params.isClaimed === true ? noted(record) : record;
    },
    claim: async (...claim) => noted(await registry.claim(...claim)),
    resume: async (...resume) => noted(await registry.resume(...resume)),
  });
  const { documents, bundles, maintenance } = store;
  return {
    registry: claiming,
    ledger,
    deliveries,
    heads,
    approvals,
    logs,
    index,
    owners,
    ...(documents ? { documents } : {}),
    ...(bundles ? { bundles } : {}),
    ...(maintenance ? { maintenance } : {}),
    close: (options) => store.close(options),
  };
}

/**
 * The document of a thread that ended names what else was written, so that a missing part is found. `written` is the hash
 * of the capabilities that this process wrote; undefined: another one did.
 */
function withParts(document: ThreadDocument, folder: string, written?: string): ThreadDocument {
  if (!document.transcript || document.capabilities_sha256 !== undefined) return document;
  if (written !== undefined) return { ...document, capabilities_sha256: written };
  try {
    const text = readRegular(join(folder, 'capabilities.md')).toString('utf8');
    return { ...document, capabilities_sha256: recordHash(text) };
  } catch {
    return document; // it ended before it had one
  }
}

/** SHA-256 hex of a signed text without its signature: signing it again changes nothing. */
export function recordHash(text: string): string {
  const { content } = splitText(text, 'html');
  return sha256Hex(content);
}

/** The comparison of a thread with its known heads. */
export interface HeadCheck {
  /** Undefined if the thread is the newest state that is known. */
  readonly rollback: string | undefined;
  /** Places with a known head. */
  readonly places: readonly KnownHead['place'][];
  readonly record: ThreadRecord | undefined;
  /** True if the row of the registry is older than the last state that the user space knows. */
  readonly isRowBehind: boolean;
  /** Why the registry was not asked. */
  readonly registryProblem: string | undefined;
  readonly isAccepted: boolean;
  /** SHA-256 hex of the export that was written last, if that is known. */
  readonly exported: string | undefined;
}

/** The heads of a project's threads, in its registry and in the user space, which a copy of the project does not bring. */
export class ThreadHeads implements HeadsPort {
  readonly #workspace: Workspace;
  #opened: HeadsFile | undefined;
  /** Exports that were written while their thread had no head yet. */
  readonly #exports = new Map<string, string>();

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  get #file(): HeadsFile {
    if (this.#opened) return this.#opened;
    const { projectPath, userSpacePath } = this.#workspace.options;
    const project = existsSync(projectPath) ? realpathSync(projectPath) : projectPath;
    const name = createHash('sha256').update(project).digest('hex').slice(0, 16);
    this.#opened = new HeadsFile(join(userSpacePath, '.ai', 'state', 'heads', `${name}.jsonl`));
    return this.#opened;
  }

  /** Returns a document that is to be written, with a time after that of the last head if the clock was set back since. */
  async inOrder(document: ThreadDocument): Promise<ThreadDocument> {
    const { thread_id: threadId, updated_at: now, transcript, runs } = document;
    // the first run has no head before its end
    if (!transcript && !runs) return document;
    const { head } = await this.#registered(threadId);
    const times = [head, this.#file.find(threadId)].flatMap((one) => one?.updated_at ?? []);
    const latest = times.toSorted().at(-1) ?? now;
    return latest > now ? { ...document, updated_at: isoTime(Date.parse(latest) + 1) } : document;
  }

  /** Remembers the end that a document names. A head that cannot be written is a notice: the thread itself is whole. */
  async note(document: ThreadDocument): Promise<void> {
    // the log is open: the document names no end yet
    if (!document.transcript) return;
    const { registry, heads } = this.#workspace.store;
    try {
      const record = await registry.get(document.thread_id);
      const before = (await heads.find(document.thread_id)) ?? this.#file.find(document.thread_id);
      const head = headOfDocument(document, {
        epoch: record?.epoch ?? 0,
        knowledge_sha256: this.#exports.get(document.thread_id) ?? before?.knowledge_sha256 ?? null,
      });
      if (head === undefined) return;
      await heads.note(head);
      if (!this.#workspace.isGuest) this.#file.note(head);
    } catch (error) {
      this.#workspace.notice(
        `could not record the latest state of ${document.thread_id}, so a rollback would go undetected: ${messageOf(error)}`,
      );
    }
  }

  /** Remembers the export that was written last. */
  async noteExport(threadId: string, knowledge_sha256: string): Promise<void> {
    const { heads } = this.#workspace.store;
    this.#exports.set(threadId, knowledge_sha256);
    try {
      const head = await heads.find(threadId);
      if (head === undefined) return;
      await heads.note({ ...head, knowledge_sha256 });
      if (!this.#workspace.isGuest) this.#file.note({ ...head, knowledge_sha256 });
    } catch (error) {
      this.#workspace.notice(`could not record the export of ${threadId}: ${messageOf(error)}`);
    }
  }

  known(): ReadonlyMap<string, StoredHead> {
    return this.#file.all();
  }

  async rollbackOf(document: ThreadDocument): Promise<string | undefined> {
    return (await this.check(document)).rollback;
  }

  async check(document: ThreadDocument): Promise<HeadCheck> {
    const { thread_id: threadId } = document;
    const own = this.#file.find(threadId);
    const { record, head, problem } = await this.#registered(threadId);
    const known: KnownHead[] = [];
    if (head) known.push({ head, place: 'the registry' });
    if (own) known.push({ head: own, place: 'your user space' });
    const isAccepted = own?.accepted !== undefined && own.accepted === this.#documentHash(threadId);
    const { logs } = this.#workspace.store;
    const rollback = isAccepted
      ? undefined
      : await findRollback(known, {
          document,
          logBytes: await logs.size(threadId),
          hashOfPrefix: async (bytes) =>
            await hashOfPrefix(logs.bytes(threadId, { end: bytes }), bytes),
        });
    const places = known.map(({ place }) => place);
    const isRowBehind = (record?.epoch ?? 0) < (own?.epoch ?? 0);
    const [newest, other] = isRowBehind ? [own, head] : [head, own];
    const exported = newest?.knowledge_sha256 ?? other?.knowledge_sha256 ?? undefined;
    return {
      rollback,
      places,
      record,
      isRowBehind,
      registryProblem: problem,
      isAccepted,
      exported,
    };
  }

  /** Makes what is on disk the newest state, after a person restored it on purpose. */
  async accept(document: ThreadDocument, knowledge_sha256: string | null): Promise<void> {
    const { thread_id: threadId, status, updated_at } = document;
    const { logs } = this.#workspace.store;
    const bytes = document.transcript?.bytes ?? (await logs.size(threadId)) ?? 0;
    const sha256 =
      document.transcript?.sha256 ??
      (await hashOfPrefix(logs.bytes(threadId, { end: bytes }), bytes)) ??
      '';
    const { record } = await this.#registered(threadId);
    const head: ThreadHead = {
      thread_id: threadId,
      status,
      epoch: record?.epoch ?? 0,
      updated_at,
      bytes,
      sha256,
      events: document.transcript?.events ?? 0,
      knowledge_sha256,
      accepted: this.#documentHash(threadId),
    };
    this.#file.note(head);
    if (record) await this.#workspace.store.heads.accept(head);
  }

  async #registered(threadId: string): Promise<{
    readonly record?: ThreadRecord | undefined;
    readonly head?: ThreadHead | undefined;
    readonly problem?: string;
  }> {
    const { registry, heads } = this.#workspace.store;
    // looking must not make an empty registry
    if (!this.#workspace.isRegistryMade) return { problem: 'registry missing' };
    try {
      const record = await registry.get(threadId);
      if (!record) return { problem: 'the registry does not know the thread' };
      return { record, head: await heads.find(threadId) };
    } catch (error) {
      if (!(error instanceof RyeError)) throw error;
      return { problem: `the registry cannot be read: ${error.message}` };
    }
  }

  #documentHash(threadId: string): string {
    const path = join(threadsFolder(this.#workspace.options.projectPath), threadId, 'thread.json');
    return sha256Hex(readRegular(path));
  }
}

/** Folders below `.ai` that rye writes by itself. */
const WRITTEN = [
  'state',
  'state/threads',
  'knowledge',
  'knowledge/agent',
  'knowledge/agent/threads',
];

/**
 * Refuses with `path_denied` a project whose folders of state are links out of its `.ai`: a cloned repository must
 * not choose where rye writes.
 */
export function assertOwnState(projectPath: string): void {
  const root = join(projectPath, '.ai');
  const realRoot = realPath(root);
  if (realRoot === undefined) return;
  for (const name of WRITTEN) {
    const path = join(root, name);
    const real = realPath(path);
    if (real === undefined || real.startsWith(realRoot + sep)) continue;
    throw new RyeError('path_denied', `${path} is refused: it is a symbolic link out of ${root}`, {
      hint: 'Remove the link; rye makes the folder.',
    });
  }
}

function realPath(path: string): string | undefined {
  try {
    // each thread asks; in JavaScript each part of a path costs a call of the system
    return realpathSync.native(path);
  } catch {
    return undefined; // it is not there yet
  }
}
