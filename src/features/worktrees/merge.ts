import { join } from 'node:path';
import { RyeError, toRyeError } from '../../kernel/core/errors.ts';
import type { FileChange, FileState } from '../../kernel/core/file-change.ts';
import { writeWhole } from '../../kernel/disk/whole-file.ts';
import { exclusively } from '../../kernel/tools/files.ts';
import { tryGit } from '../../kernel/tools/git.ts';
import { sha256 } from '../../kernel/tools/kept-files.ts';
import { makePrivateFolder } from '../../kernel/tools/kill-guard.ts';
import type { RestoredFiles } from '../../kernel/tools/restored-files.ts';
import type { CollectedFile } from './worktrees.ts';

/** A file that was not merged, and the reason. */
export interface MergeConflict {
  readonly path: string;
  readonly reason: string;
}

export interface MergeRequest {
  /** Returns the content of a blob as git writes it to that path. */
  readonly contentOf: (path: string, blob: string) => Promise<Uint8Array>;
  readonly files: readonly CollectedFile[];
  /** The folder that the changes are merged into, and its files under the rules of the thread. */
  readonly target: { readonly path: string; readonly files: RestoredFiles };
  /** Keeps what a file has and records the change that follows. */
  readonly keep: (change: FileChange, bytes: Uint8Array | undefined) => Promise<void>;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The merge of one file; `bytes` null removes it. */
interface MergedFile {
  readonly path: string;
  readonly found: FileState | null;
  readonly current: Uint8Array | null;
  readonly bytes: Uint8Array | null;
  readonly mode: number | undefined;
}

/** Maximum attempts to merge into files that other threads change meanwhile. */
const ATTEMPTS = 20;

/** The outcome of a merge: without conflicts, all files are merged. */
export interface MergeOutcome {
  readonly conflicts: readonly MergeConflict[];
  /** Files that have the change despite a conflict: they were changed again before it could be taken back. */
  readonly merged: readonly string[];
}

/**
 * Merges the changes of a worktree into a folder, three ways and file by file: all of them, or none if one conflicts. A file
 * that another process changes in between is merged again.
 */
export async function mergeChanges(request: MergeRequest): Promise<MergeOutcome> {
  return await exclusively(`merge into ${request.target.path}`, async () => {
    // of every attempt: the next one finds them in the folder
    const applied: AppliedFile[] = [];
    for (let attempt = 1; ; attempt += 1) {
      const { merged, conflicts } = await mergeAll(request);
      if (conflicts.length > 0) return { conflicts, merged: await takeBack(request, applied) };
      const failed = await applyAll(request, merged, applied);
      if (failed === undefined) return { conflicts: [], merged: [] };
      const { path, error } = failed;
      const isRace = RACES.has(error.code);
      if (isRace && attempt < ATTEMPTS) continue;
      const left = await takeBack(request, applied);
      if (isRace) return { conflicts: [{ path, reason: error.message }], merged: left };
      throw left.length === 0 ? error : halfMerged(error, left);
    }
  });
}

/** Codes of writes that another process was faster than. */
const RACES: ReadonlySet<string> = new Set(['file_changed', 'tool_failed']);

/** A merged file, and the folders that were made for it. */
interface AppliedFile extends MergedFile {
  readonly made: readonly string[];
}

/** Applies files in order, and stops at the first that fails. */
async function applyAll(
  request: MergeRequest,
  merged: readonly MergedFile[],
  applied: AppliedFile[],
): Promise<{ readonly path: string; readonly error: RyeError } | undefined> {
  for (const file of merged) {
    try {
      applied.push({ ...file, made: await apply(request, file) });
    } catch (error) {
      return { path: file.path, error: toRyeError(error) };
    }
  }
  return undefined;
}

/** Takes applied files back, the last one first. Returns the paths of those that could not be. */
async function takeBack(
  request: MergeRequest,
  applied: readonly AppliedFile[],
): Promise<readonly string[]> {
  const left = new Set<string>();
  for (const { path, found, current, bytes, mode, made } of applied.toReversed()) {
    try {
      const taken = { path, found: stateOf(bytes, mode), current: bytes, bytes: current };
      await apply(request, { ...taken, mode: found?.mode });
      for (const folder of made.toReversed()) await request.target.files.removeFolder(folder);
    } catch {
      left.add(path);
    }
  }
  return [...left].toSorted();
}

function halfMerged(error: RyeError, left: readonly string[]): RyeError {
  return new RyeError(error.code, `${error.message}; these files are merged: ${left.join(', ')}`, {
    cause: error,
  });
}

async function mergeAll(request: MergeRequest) {
  const merged: MergedFile[] = [];
  const conflicts: MergeConflict[] = [];
  for (const file of request.files) {
    try {
      const one = await mergeFile(request, file);
      if (one) merged.push(one);
    } catch (error) {
      conflicts.push({ path: file.path, reason: toRyeError(error).message });
    }
  }
  return { merged, conflicts };
}

/** Returns undefined if the file already has the change; throws a conflict. */
async function mergeFile(
  { contentOf, target, env }: MergeRequest,
  { path, before, after }: CollectedFile,
): Promise<MergedFile | undefined> {
  if (![before.mode, after.mode].every((mode) => FILE_MODES.has(mode))) {
    throw conflict('only regular files are merged');
  }
  const found = await target.files.look(path);
  const current = found === null ? null : await target.files.read(path);
  const of = async ({ mode: one, blob }: CollectedFile['before']) =>
    one === NO_FILE ? null : await contentOf(path, blob);
  const base = await of(before);
  const theirs = await of(after);
  const mode = modeOf(found, before.mode, after.mode);
  if (isSame(current, theirs) && (found === null || mode === found.mode)) return undefined;
  if (isSame(current, theirs) || isSame(current, base)) {
    return { path, found, current, bytes: theirs, mode };
  }
  if (!base) throw conflict('it was added on both sides');
  if (!current || !theirs) throw conflict('it was changed on one side and removed on the other');
  return { path, found, current, bytes: await mergeTexts({ current, base, theirs }, env), mode };
}

const FILE_MODES: ReadonlySet<string> = new Set(['000000', '100644', '100755']);
const NO_FILE = '000000';
const PROGRAM = '100755';

function isSame(left: Uint8Array | null, right: Uint8Array | null): boolean {
  if (left === null || right === null) return left === right;
  return Buffer.compare(left, right) === 0;
}

/** Git knows one permission: that to execute. */
function modeOf(found: FileState | null, before: string, after: string): number | undefined {
  if (found?.mode === undefined) return after === PROGRAM ? 0o755 : undefined;
  if (before === after) return found.mode;
  return after === PROGRAM ? found.mode | 0o111 : found.mode & ~0o111;
}

async function mergeTexts(
  sides: Readonly<Record<'current' | 'base' | 'theirs', Uint8Array>>,
  env: MergeRequest['env'],
): Promise<Buffer> {
  const folder = await makePrivateFolder('merge');
  try {
    for (const [name, bytes] of Object.entries(sides)) {
      writeWhole(join(folder.path, name), bytes);
    }
    const args = ['merge-file', '-p', '-q', 'current', 'base', 'theirs'];
    const { code, stdout } = await tryGit(args, { cwd: folder.path, env });
    if (code === 0) return stdout;
    throw conflict(
      code > 127 ? 'it is binary and was changed on both sides' : 'the same lines were changed',
    );
  } finally {
    await folder.remove();
  }
}

function conflict(reason: string): RyeError {
  return new RyeError('tool_failed', reason);
}

/** Records a file's change, then makes it. Returns the folders that it made. */
async function apply(
  { target, keep }: MergeRequest,
  { path, found, current, bytes, mode }: MergedFile,
): Promise<readonly string[]> {
  const after = stateOf(bytes, mode);
  const made = after === null ? [] : await target.files.missingFolders(path);
  const change = { path, before: found, after, merged: true } as const;
  await keep({ ...change, ...(made.length === 0 ? {} : { made }) }, current ?? undefined);
  const earlier = bytes === null ? null : { bytes, ...(mode === undefined ? {} : { mode }) };
  await target.files.restore(path, found, earlier);
  return made;
}

function stateOf(bytes: Uint8Array | null, mode: number | undefined): FileState | null {
  if (bytes === null) return null;
  return { sha256: sha256(bytes), bytes: bytes.length, ...(mode === undefined ? {} : { mode }) };
}
