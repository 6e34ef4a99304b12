import {
  closeSync,
  constants,
  existsSync,
  openSync,
  readdirSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { readdir, readFile, rmdir, unlink } from 'node:fs/promises';
import { basename, dirname, join, relative, sep } from 'node:path';
import type { Clock } from '../core/clock.ts';
import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';
import { assertThreadId } from '../core/ids.ts';
import { isJsonObject, parseJson } from '../core/json.ts';
import type { ThreadPlan } from '../core/plan.ts';
import { makeFolders, makeFoldersBy } from '../disk/folders.ts';
import { measuredSync } from '../disk/measured-sync.ts';
import { readRegular } from '../disk/regular-file.ts';
import {
  createWhole,
  type FileSync,
  moveAside,
  UNFINISHED_FILE,
  writeWhole,
  writeWholeBy,
} from '../disk/whole-file.ts';
import { itemSubject } from '../items/binding.ts';
import { type KeyLookup, type SigningKey, sha256Hex } from '../trust/keys.ts';
import { checkDocument, type Signing, signDocument, signText } from '../trust/signature.ts';
import type { SignedSubject } from '../trust/signature-line.ts';
import { COPIES, openFileCopies } from './file-copies-fs.ts';
import { assertOwnPath } from './own-path-fs.ts';
import type { LiveFile, ThreadFiles } from './ports.ts';
import { parsePlan, planHash, planText } from './stored-plan.ts';
import { asJson, parseDocument, type ThreadDocument } from './thread-document.ts';
import { documentSubject, unsignedRecord, unsignedRunIn } from './unsigned-run-fs.ts';

export interface ThreadFilesOptions {
  readonly projectPath: string;
  readonly clock: Clock;
  /** The signing key; asked for at the first write. */
  readonly key: () => SigningKey;
  readonly keys: KeyLookup;
  /** True if the store keeps its state in the same folder, which then exists before any thread starts. */
  readonly isStoreLocal: boolean;
  /** Called with each file before it is written here; absent: the files are in the project's folder alone. */
  readonly send?: SendFile | undefined;
}

/** Delivers a file of a thread to where other machines find it; `name` is its path in the thread's folder. */
export type SendFile = (
  threadId: string,
  name: string,
  bytes: string | Uint8Array,
) => Promise<void>;

/** Files that make a folder the folder of a thread. It may also hold folders of other threads. */
const OWN_FILES = ['thread.json', 'plan.json', 'transcript.jsonl', 'transcript.jsonl.gz'];

/** Name of a thread's export where its files are kept together. */
export const EXPORT_FILE = 'knowledge.md';

const RECOVER = 'Free some space or check the permissions, then run `rye threads recover`.';

/** Returns the folder of a project that holds all threads. */
export function threadsFolder(projectPath: string): string {
  return join(projectPath, '.ai', 'state', 'threads');
}

/** Returns the subject that a thread's capability snapshot is signed as. */
export function capabilitiesSubject(threadId: string): SignedSubject {
  return { kind: 'capabilities', id: threadId };
}

/** An export is signed as the knowledge entry that it is, by its path below the folder of knowledge. */
export function exportSubject(path: string): SignedSubject {
  const id = path.split(sep).join('/').replace(/\.md$/, '');
  return itemSubject({ type: 'knowledge', id, extension: '.md' });
}

/** Opens the signed files of threads on disk. Every write is atomic: a reader sees the old file or the new one. */
export function openThreadFiles(options: ThreadFilesOptions): ThreadFiles {
  const { projectPath, clock, isStoreLocal, send = async () => undefined } = options;
  const folder = (threadId: string): string => {
    assertThreadId(threadId);
    return join(threadsFolder(projectPath), threadId);
  };
  const root = join(projectPath, '.ai');
  const syncer = measuredSync(clock, 'all');
  const assertPlace = (path: string): void => {
    assertOwnPath(root, path);
    if (isStoreLocal) assertState(projectPath, path);
  };
  const write = async (path: string, text: string, sync: FileSync): Promise<void> => {
    assertPlace(path);
    await makeFoldersBy(syncer, dirname(path));
    await writeWholeBy(syncer, path, text, { hint: RECOVER, sync });
  };
  const writeState = async (
    threadId: string,
    name: string,
    { text, sync }: { readonly text: string; readonly sync: FileSync },
  ): Promise<void> => {
    await send(threadId, name, text);
    await write(join(folder(threadId), name), text, sync);
  };
  const writeNew = async (threadId: string, name: NewName, bytes: Content): Promise<string> => {
    const path = writeArtifactFile(root, folder(threadId), { name, bytes });
    await send(threadId, `artifacts/${basename(path)}`, bytes);
    return relative(projectPath, path);
  };
  const signing = (subject: SignedSubject): Signing => {
    return { subject, key: options.key(), now: clock.now() };
  };
  return {
    folder,
    ...deathMarks(folder),
    copies: openFileCopies(folder, async (path) => assertPlace(path)),
    knowledgePath: (directive, threadId) =>
      join(projectPath, '.ai', 'knowledge', 'agent', 'threads', directive, `${threadId}.md`),
    list: () => listThreads(threadsFolder(projectPath)),
    setAside: (threadId) => setAside(folder(threadId), clock),
    exists: (threadId) => OWN_FILES.some((name) => existsSync(join(folder(threadId), name))),
    writeDocument: async (document, sync = 'all') => {
      const { thread_id: id } = document;
      const signed = signDocument(asJson(document), signing(documentSubject(id)));
      const text = `${JSON.stringify(signed, null, 2)}\n`;
      await writeState(id, 'thread.json', { text, sync });
    },
    readDocument: async (threadId) => {
      const path = join(folder(threadId), 'thread.json');
      const text = await readThreadJson(path, threadId);
      return verifiedDocument(text, { threadId, path, keys: options.keys });
    },
    writePlan: async (threadId, plan, run = 1) => {
      const text = planText(plan);
      const name = run === 1 ? 'plan.json' : laterPlan(planHash(text));
      await writeState(threadId, name, { text, sync: run === 1 ? 'content' : 'all' });
    },
    readPlan: async (document) => await readPlan(folder(document.thread_id), document),
    writeCapabilities: async (threadId, text) =>
      await writeState(threadId, 'capabilities.md', {
        text: signText({ text, style: 'html', ...signing(capabilitiesSubject(threadId)) }),
        sync: 'content',
      }),
    writeKnowledge: async (threadId, path, text) => {
      const subject = exportSubject(relative(join(root, 'knowledge'), path));
      const signed = signText({ text, style: 'html', ...signing(subject) });
      await send(threadId, EXPORT_FILE, signed);
      await write(path, signed, 'none');
    },
    removeKnowledge,
    openExport: async (path, isResumed) => await openLive(root, path, isResumed),
    writeArtifact: async (threadId, name, bytes) =>
      await writeNew(threadId, [safeName(name), 'txt'], bytes),
    writePatch: async (threadId, name, bytes) =>
      await writeNew(threadId, [safeName(name), 'patch'], bytes),
    ...savedPatches({ projectPath, folder, assertPlace, send }),
    pull: async () => undefined,
  };
}

function setAside(folder: string, clock: Clock): string | undefined {
  const path = join(folder, 'thread.json');
  if (!existsSync(path)) return undefined;
  const to = join(folder, `damaged-thread-${clock.now()}.json`);
  moveAside(path, to);
  return to;
}

function removeKnowledge(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // it was never there, or the disk allows nothing at all
  }
}

/** Leaves a link or another entry at this path alone; the end of the thread deals with it. */
async function openLive(
  root: string,
  path: string,
  isResumed: boolean,
): Promise<LiveFile | undefined> {
  const { O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_TRUNC, O_WRONLY } = constants;
  try {
    assertOwnPath(root, path);
    makeFolders(dirname(path));
    const fd = openSync(
      path,
      O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | (isResumed ? O_TRUNC : O_EXCL),
      0o644,
    );
    return {
      append: (text) => void writeSync(fd, text),
      close: () => closeSync(fd),
    };
  } catch {
    return undefined;
  }
}

/**
 * The registry made the folder before any thread could start. If it is gone, the thread's log and records are gone with
 * it, and a new folder with nothing but the end of a thread would hide that.
 */
function assertState(projectPath: string, path: string): void {
  const threads = threadsFolder(projectPath);
  if (!path.startsWith(threads) || existsSync(threads)) return;
  throw new RyeError('state_missing', `${threads} was removed or renamed while a thread ran`, {
    hint: 'Put the folder back, then run: rye threads recover',
    details: { path: threads },
  });
}

async function readThreadJson(path: string, threadId: string): Promise<string> {
  try {
    return readRegular(path).toString('utf8');
  } catch (error) {
    throw new RyeError(
      'thread_not_found',
      `thread ${threadId} has no readable thread.json: ${messageOf(error)}`,
      {
        hint: 'See `rye threads list` for the threads of this project.',
        cause: error,
      },
    );
  }
}

function deathMarks(
  folder: (threadId: string) => string,
): Pick<ThreadFiles, 'deathMark' | 'diedAt'> {
  const deathMark = (threadId: string, epoch: number): string =>
    join(folder(threadId), `.died-${epoch}`);
  return {
    deathMark,
    diedAt: (threadId, epoch) =>
      statSync(deathMark(threadId, epoch), { throwIfNoEntry: false })?.mtimeMs,
  };
}

/** Parses and verifies the text of thread.json, see {@link ThreadFiles.readDocument}. */
export function verifiedDocument(
  text: string,
  {
    threadId,
    path,
    keys,
  }: { readonly threadId: string; readonly path: string; readonly keys: KeyLookup },
): ThreadDocument {
  const document = parseJson(text);
  if (!isJsonObject(document)) {
    throw new RyeError('thread_damaged', `thread.json of ${threadId} is cut or empty: ${path}`, {
      hint: `Rebuild it from the signed log with: rye threads recover ${threadId} --rebuild`,
      details: { path },
    });
  }
  const subject = documentSubject(threadId);
  const verdict = checkDocument(document, { keys, subject, isRecord: true });
  if (!verdict.ok) {
    if (unsignedRunIn(document, threadId) !== undefined) throw unsignedRecord(threadId);
    throw new RyeError(
      verdict.code.startsWith('key_') ? verdict.code : 'thread_tampered',
      `thread.json of ${threadId} does not verify (${verdict.code})`,
      {
        hint: `It was changed after rye wrote it, or signed by a key that you do not trust. rye ignored it. To rebuild it from the signed log: rye threads recover ${threadId} --rebuild`,
      },
    );
  }
  if (document['thread_id'] !== threadId) {
    throw new RyeError('thread_tampered', `thread.json of ${threadId} belongs to another thread`, {
      details: { found: document['thread_id'] },
    });
  }
  return parseDocument(document, threadId);
}

async function readPlan(
  folder: string,
  { thread_id: threadId, plan_sha256: sha256 }: Pick<ThreadDocument, 'thread_id' | 'plan_sha256'>,
): Promise<ThreadPlan> {
  const later = sha256 === undefined ? undefined : join(folder, laterPlan(sha256));
  const path = later !== undefined && existsSync(later) ? later : join(folder, 'plan.json');
  let text: string;
  try {
    text = readRegular(path).toString('utf8');
  } catch (error) {
    throw new RyeError('file_not_found', `the plan of ${threadId} is gone: ${messageOf(error)}`, {
      hint: 'Without it the thread cannot be resumed: start its directive again.',
      cause: error,
    });
  }
  if (sha256 === undefined) {
    throw new RyeError('file_not_found', `the record of ${threadId} names no plan`, {
      hint: 'Without it the thread cannot be resumed: start its directive again.',
    });
  }
  if (planHash(text) === sha256) return parsePlan(text, threadId);
  throw new RyeError('thread_tampered', `the plan of ${threadId} is not the one it began with`, {
    location: { path },
    hint: 'It was changed after rye wrote it. rye ignored it.',
  });
}

/** Returns the name of a plan that differs from the first run's: a run with the same plan finds it again. */
export function laterPlan(sha256: string): string {
  return `plan-${sha256.slice(0, 16)}.json`;
}

type NewName = readonly [name: string, extension: string];
type Content = string | Uint8Array;

function writeArtifactFile(
  root: string,
  threadFolder: string,
  { name, bytes }: { readonly name: NewName; readonly bytes: Content },
): string {
  const artifacts = join(threadFolder, 'artifacts');
  assertOwnPath(root, artifacts);
  return writeNewFile(artifacts, name, bytes);
}

/** Creates `name`, or `name-2`, `name-3`… : call ids are the model's and may repeat. */
function writeNewFile(folder: string, [name, extension]: NewName, content: Content): string {
  makeFolders(folder);
  for (let attempt = 1; ; attempt += 1) {
    const path = join(
      folder,
      attempt === 1 ? `${name}.${extension}` : `${name}-${attempt}.${extension}`,
    );
    if (createWhole(path, content)) return path;
  }
}

/** Folders of a thread that hold no threads. */
const INNER_FOLDERS: ReadonlySet<string> = new Set(['artifacts', COPIES]);

/** Lists the threads below a folder. IDs contain slashes, so a thread's folder may be inside another thread's folder. */
function listThreads(root: string): readonly string[] {
  const found: string[] = [];
  const look = (folder: string, id: string): void => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (!entry.isDirectory() || INNER_FOLDERS.has(entry.name)) continue;
      look(join(folder, entry.name), id === '' ? entry.name : `${id}/${entry.name}`);
    }
    if (id !== '' && OWN_FILES.some((name) => existsSync(join(folder, name)))) found.push(id);
  };
  if (existsSync(root)) look(root, '');
  return found.filter(isThreadId).toSorted();
}

function isThreadId(id: string): boolean {
  try {
    assertThreadId(id);
    return true;
  } catch {
    return false;
  }
}

function safeName(name: string): string {
  const safe = name.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, 100);
  return safe === '' ? 'result' : safe;
}

/** Names of half-written files, of handovers that no process took, which may hold secrets, and of marks of a death. */
const LEFTOVER =
  /^(?:handover\.json|\.died-\d+|(?:handover\.json|thread\.json|plan(?:-[0-9a-f]+)?\.json|capabilities\.md)\..+|\.lease-\d+-[0-9a-f]+)$/;

/** Removes the files that a dead process left unfinished in a thread's folder, then the folder if it is empty. */
export async function removeLeftovers(folder: string): Promise<void> {
  try {
    const names = await readdir(folder);
    for (const name of names) {
      if (LEFTOVER.test(name) || UNFINISHED_FILE.test(name)) await unlink(join(folder, name));
    }
    await rmdir(folder);
  } catch (error) {
    const code = systemCodeOf(error);
    // the folder holds files of this thread, or of one whose id begins with this one's
    if (code !== 'ENOENT' && code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
  }
}

interface SavedPatchesOptions {
  readonly projectPath: string;
  readonly folder: (threadId: string) => string;
  readonly assertPlace: (path: string) => void;
  readonly send: (threadId: string, name: string, bytes: Uint8Array) => Promise<void>;
}

/**
 * The patches of worktrees whose threads move between machines. The log names the newer one of two, so that a crash between
 * both writes loses none.
 */
function savedPatches({
  projectPath,
  folder,
  assertPlace,
  send,
}: SavedPatchesOptions): Pick<ThreadFiles, 'writeSaved' | 'savedPatch'> {
  return {
    writeSaved: async (threadId, slot, bytes) => {
      const name = `artifacts/worktree-${slot}.patch`;
      await send(threadId, name, bytes);
      const path = join(folder(threadId), name);
      assertPlace(path);
      makeFolders(dirname(path));
      writeWhole(path, bytes, { follow: false });
      return relative(projectPath, path);
    },
    savedPatch: async (threadId, { patch, sha256 }) => {
      const path = join(folder(threadId), 'artifacts', basename(patch));
      const bytes = await readFile(path).catch(() => undefined);
      if (bytes && sha256Hex(bytes) === sha256) return relative(projectPath, path);
      const what = `${patch} of ${threadId} differs from the patch in its log`;
      throw new RyeError('thread_tampered', what, {
        hint: 'It was changed or removed. Without it the thread cannot continue: start it again.',
        location: { path },
      });
    },
  };
}
