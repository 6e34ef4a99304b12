import type { FileUndo, UndoneFile, UndoRequest } from '../../kernel/app/api/trees.ts';
import { RyeError, toRyeError } from '../../kernel/core/errors.ts';
import { type FileChange, type FileState, MAX_COPY_BYTES } from '../../kernel/core/file-change.ts';
import type { Process, Stored } from '../../kernel/threads/ports.ts';
import type { ProjectFiles, Restoring } from '../../kernel/threads/project-files.ts';
import { editLog } from './edit.ts';
import { type FileEvents, readFileEvents } from './file-events.ts';
import { type FilePlan, planFiles } from './file-history.ts';

/** A file that differs from what it was, as it was found. */
interface Candidate {
  readonly plan: FilePlan;
  readonly found: FileState | null;
  readonly files: ProjectFiles;
  readonly problem?: RyeError;
}

type UndoEnv = Stored & Process & Restoring;

/**
 * Puts the files that a session's tools changed back to what they were when an entry was written. Checks all files before it
 * changes one; records the undo before its effect, so that it can be finished after a crash and be undone itself.
 */
export async function undoFiles(
  env: UndoEnv,
  threadId: string,
  request: UndoRequest = {},
): Promise<FileUndo> {
  const events = await readFileEvents(env, threadId, request);
  const plans = planFiles(events.changes);
  const candidates = await findCandidates(env, plans);
  const isChecked = request.dryRun === true || request.force === true;
  if (!isChecked) assertRestorable(candidates);
  const { dryRun = false } = request;
  const possible = candidates.filter(
    ({ problem }) => !problem || (request.force === true && problem.code === 'file_changed'),
  );
  if (!dryRun && possible.length > 0) await restoreAll(env, events, possible);
  const folders = dryRun ? [] : await removeFolders(env, plans);
  const isRestored = new Set(possible);
  return {
    thread_id: events.last,
    to_entry: events.entry,
    dry_run: dryRun,
    files: candidates.map((candidate) => reportOf(candidate, isRestored.has(candidate))),
    folders,
    unrecorded_calls: events.unrecorded,
    warnings: candidates.flatMap(({ plan: { path, isMixed } }) =>
      isMixed ? [`${path}: changed outside the thread between two of its changes`] : [],
    ),
  };
}

function reportOf({ plan, found, problem }: Candidate, isRestored: boolean): UndoneFile {
  const { path, target } = plan;
  const action = target === null ? 'removed' : found === null ? 'recreated' : 'restored';
  return {
    path,
    action: isRestored ? action : 'kept',
    ...(problem ? { problem: problem.toJSON() } : {}),
  };
}

/** Looks at each planned file; leaves those that are as they were. */
async function findCandidates(
  env: UndoEnv,
  plans: readonly FilePlan[],
): Promise<readonly Candidate[]> {
  const opened = new Map<string, ProjectFiles>();
  const candidates: Candidate[] = [];
  for (const plan of plans) {
    const { thread_id: id } = plan;
    const files = opened.get(id) ?? (await openFiles(env, id));
    opened.set(id, files);
    const candidate = await look(env, plan, files);
    if (candidate) candidates.push(candidate);
  }
  return candidates;
}

async function openFiles(env: UndoEnv, threadId: string): Promise<ProjectFiles> {
  const document = await env.files.readDocument(threadId);
  return await env.filesOf(await env.files.readPlan(document), threadId);
}

async function look(
  env: UndoEnv,
  plan: FilePlan,
  files: ProjectFiles,
): Promise<Candidate | undefined> {
  let found: FileState | null;
  try {
    found = await files.look(plan.path);
  } catch (error) {
    return { plan, found: null, files, problem: toRyeError(error) };
  }
  const { target, expected } = plan;
  if (found?.sha256 === target?.sha256) return undefined;
  const missing = copyProblem(env, plan);
  if (missing) return { plan, found, files, problem: missing };
  if (found !== null && found.bytes > MAX_COPY_BYTES) {
    return { plan, found, files, problem: tooLarge(plan.path) };
  }
  if (expected.has(found?.sha256 ?? null)) return { plan, found, files };
  return { plan, found, files, problem: changedSince(plan.path) };
}

/** Returns why the content that a file had can't be restored. */
function copyProblem({ files }: UndoEnv, plan: FilePlan): RyeError | undefined {
  const { path, thread_id: id, target, unkept } = plan;
  if (target === null) return undefined;
  try {
    if (unkept === undefined && files.copies.read(id, target.sha256)) return undefined;
  } catch (error) {
    return toRyeError(error);
  }
  const reason = unkept === undefined ? 'its copy is gone' : `no copy was kept: ${unkept}`;
  return new RyeError('part_missing', `${path} can't be restored: ${reason}`, {
    hint: 'Restore it by hand. The other files: add --force.',
    details: { path },
  });
}

function tooLarge(path: string): RyeError {
  return new RyeError('item_too_large', `${path} is too large to be kept before the undo`, {
    hint: 'Move it away, then run the undo again.',
    details: { path },
  });
}

function changedSince(path: string): RyeError {
  return new RyeError('file_changed', `${path} was changed outside the thread since`, {
    hint: 'To lose that change: add --force. See it first with --dry-run.',
    details: { path },
  });
}

/** Throws the problem of the first file that can't be restored; its message names all of them. */
function assertRestorable(candidates: readonly Candidate[]): void {
  const problems = candidates.flatMap(({ problem }) => (problem ? [problem] : []));
  const [first] = problems;
  if (!first) return;
  if (problems.length === 1) throw first;
  throw new RyeError(first.code, problems.map(({ message }) => message).join('; '), {
    hint: first.hint,
    details: { files: candidates.flatMap(({ plan, problem }) => (problem ? [plan.path] : [])) },
  });
}

async function restoreAll(
  env: UndoEnv,
  { last, entry }: FileEvents,
  candidates: readonly Candidate[],
): Promise<void> {
  await editLog(
    env,
    last,
    async ({ book }) => {
      const files: FileChange[] = [];
      for (const candidate of candidates) files.push(await keepCopy(env, last, candidate));
      const payload = { to_entry: entry, files };
      await book({ drafts: [{ event_type: 'files_restored', payload, durable: true }] });
      for (const candidate of candidates) await restoreOne(env, candidate);
      return { drafts: [] };
    },
    'names',
  );
}

/** Keeps what a file has now, so that the undo can be undone. */
async function keepCopy(
  env: UndoEnv,
  threadId: string,
  { plan, found, files }: Candidate,
): Promise<FileChange> {
  const { path, target } = plan;
  const change = { path, before: found, after: target };
  if (found === null) return change;
  const unkept = await env.files.copies.keep(threadId, await files.read(path));
  return unkept === undefined ? change : { ...change, unkept };
}

async function restoreOne(env: UndoEnv, { plan, found, files }: Candidate): Promise<void> {
  const { path, thread_id: id, target } = plan;
  if (target === null) {
    await files.restore(path, found, null);
    return;
  }
  const bytes = env.files.copies.read(id, target.sha256);
  if (!bytes) throw new RyeError('part_missing', `the copy of ${path} is gone`);
  const { mode } = target;
  await files.restore(path, found, { bytes, ...(mode === undefined ? {} : { mode }) });
}

/** Removes the folders that the thread made for files that are gone, the innermost first, if they are empty. */
async function removeFolders(env: UndoEnv, plans: readonly FilePlan[]): Promise<readonly string[]> {
  const made = new Map(
    plans
      .filter(({ target }) => target === null)
      .flatMap(({ thread_id: id, made: folders }) => folders.map((one) => [one, id] as const)),
  );
  const removed: string[] = [];
  for (const [folder, id] of [...made].toSorted(([a], [b]) => b.length - a.length)) {
    const files = await openFiles(env, id);
    if (await files.removeFolder(folder).catch(() => false)) removed.push(folder);
  }
  return removed;
}
