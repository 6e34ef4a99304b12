import { isoTime } from '../../core/clock.ts';
import { RyeError, toRyeError } from '../../core/errors.ts';
import { parseJson } from '../../core/json.ts';
import { inputsLabel } from '../../core/label.ts';
import type { PlannedFleet, ThreadPlan } from '../../core/plan.ts';
import { BOOLEAN, mapOf, NUMBER, objectOf, oneOf, optional, TEXT } from '../../core/shape.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import type {
  Embedding,
  LaunchedThread,
  Launching,
  Preparation,
  Process,
  RunnerCommand,
  Stored,
  Supervising,
  ThreadFiles,
} from '../ports.ts';
import { assertProgram, assertTravels } from '../prepare/policy.ts';
import type { PreparedThread } from '../prepare/prepare.ts';
import {
  endIfFails,
  endUnstarted,
  readParent,
  readyToStart,
  registerThread,
  reserveBudget,
  type StartedThread,
} from '../run/start.ts';
import { startDocument } from '../thread-document.ts';
import { type PlannedPlace, placeInSource } from '../worktrees.ts';
import { takeIdle } from './idle-fs.ts';
import {
  hasHandover,
  launchProcess,
  leaveHandover,
  noteSharedProcess,
  readHandover,
  receiveSecrets,
  removeHandover,
} from './process-fs.ts';

/** The options that a thread's process cannot read from its plan. */
export interface RunnerOptions {
  readonly allow_unsigned: boolean;
  readonly replay_from?: string;
  readonly record_to?: string;
}

/** The content of the private file that a thread's process receives in addition to the plan. */
export interface Handover {
  readonly format: 1;
  readonly options: RunnerOptions;
  /** The process that holds the values of secret inputs in memory, and is the only one that can start the thread. */
  readonly holder?: { readonly pid: number; readonly processStart: string; readonly host: string };
  /** Only in files of older versions: values of secret inputs, by name. */
  readonly secrets?: Readonly<Record<string, string>>;
}

/** Secret inputs of threads that this process has queued, by project and thread. They are never written to a file. */
const heldSecrets = new Map<string, Readonly<Record<string, string>>>();

function holdKey(env: Pick<Process, 'projectPath'>, threadId: string): string {
  return `${env.projectPath}\0${threadId}`;
}

export interface LaunchRequest {
  readonly prepared: PreparedThread;
  readonly threadId?: string | undefined;
  readonly options: RunnerOptions;
  /** True if this process ends after the call, so that secret inputs can't wait in its memory for a slot. */
  readonly leaves?: boolean | undefined;
}

/**
 * Registers a prepared thread, reserves its budget, writes its thread.json and hands it to another process, now or when
 * a slot is free. A failure after the registration ends the thread as `error` and frees what was reserved.
 */
export async function launchThread(
  env: LaunchEnv,
  request: LaunchRequest,
): Promise<LaunchedThread> {
  const place = request.prepared.plan.fleet ?? env.fleet?.leg?.place;
  return place ? await launchOnFleet(env, request, place) : await launchHere(env, request);
}

type LaunchEnv = Supervising & Embedding & Pick<Preparation, 'guards'>;

/** Queues a thread for the workers of a fleet. */
async function launchOnFleet(
  env: LaunchEnv,
  { prepared, threadId: wanted }: LaunchRequest,
  place: PlannedFleet,
): Promise<LaunchedThread> {
  const { secrets } = prepared;
  const names = Object.keys(secrets);
  // a child does not get its parent's secrets
  const { secrets: _ofParent, ...shared } = place;
  const fleet: PlannedFleet = { ...shared, ...(names.length === 0 ? {} : { secrets: names }) };
  const plan = { ...prepared.plan, ...workPlace(env, prepared.plan, place), fleet };
  if (names.length > 0 && !env.fleet?.seal) throw unsealable(plan);
  const threadId = await registerLaunched(env, { ...prepared, plan }, wanted);
  try {
    await writeCreated(env, { ...prepared, plan }, threadId, 'all');
    if (names.length > 0) await env.fleet?.seal?.({ threadId, place: fleet, names, secrets });
    await env.fleet?.start(threadId, fleet);
  } catch (error) {
    await endQueued(env, threadId, toRyeError(error));
    throw error;
  }
  const { id: directive } = plan.directive;
  return { thread_id: threadId, directive, status: 'created', pid: null, ...labelOf(plan) };
}

/** Returns the place of a thread that other machines run: its own worktree of the source, or a new folder. */
function workPlace(
  { ids }: Pick<Process, 'ids'>,
  plan: ThreadPlan,
  { source }: PlannedFleet,
): PlannedPlace {
  if (source) return placeInSource(plan, source, ids);
  if (!plan.worktree) return {};
  throw new RyeError('isolation_unavailable', 'a fleet has worktrees only of a source tree', {
    hint: 'Send the source with the thread: rye run … --fleet --source git',
  });
}

async function registerLaunched(
  env: LaunchEnv,
  { plan, parent }: PreparedThread,
  wanted: string | undefined,
): Promise<string> {
  assertTravels(env, plan);
  await readyToStart(env, { threadId: wanted });
  return (await registerThread(env, plan, { threadId: wanted, parent })).thread_id;
}

/** Sets the budget of a registered thread aside and writes its signed thread.json and its plan. */
async function writeCreated(
  env: LaunchEnv,
  { plan }: PreparedThread,
  threadId: string,
  sync: 'all' | 'content',
): Promise<void> {
  await reserveBudget(env, plan, threadId);
  const now = isoTime(env.clock.now());
  const document = { ...startDocument(plan, { threadId, now }), status: 'created' as const };
  await env.files.writeDocument(document, sync);
  await env.files.writePlan(threadId, plan);
}

/** Hands a thread to another process of this machine. */
async function launchHere(
  env: LaunchEnv,
  { prepared, threadId: wanted, options, leaves = false }: LaunchRequest,
): Promise<LaunchedThread> {
  const { plan, secrets } = prepared;
  const threadId = await registerLaunched(env, prepared, wanted);
  try {
    const isSecret = Object.keys(secrets).length > 0;
    const handover: Handover = {
      format: 1,
      options,
      ...(isSecret ? { holder: holderOf(env) } : {}),
    };
    if (isSecret) heldSecrets.set(holdKey(env, threadId), secrets);
    // the handover syncs the names of all three
    await writeCreated(env, prepared, threadId, 'content');
    leaveHandover(env.files.folder(threadId), JSON.stringify(handover));
    await env.store.registry.assign(threadId, null, isoTime(env.clock.now()));
  } catch (error) {
    await endQueued(env, threadId, toRyeError(error));
    throw error;
  }
  const failure = (await startQueued(env)).get(threadId);
  if (failure) throw failure;
  const record = await env.store.registry.get(threadId);
  const isQueued = record?.status === 'created' && record.pid === null;
  if (isQueued && leaves && heldSecrets.has(holdKey(env, threadId))) {
    const error = new RyeError(
      'spawn_failed',
      `no slot is free for ${threadId}, and its secret inputs may not wait in a file`,
      {
        hint: 'Start it again when a thread has ended, or raise concurrency in coordination.yaml.',
      },
    );
    await endQueued(env, threadId, error);
    throw error;
  }
  return {
    thread_id: threadId,
    directive: plan.directive.id,
    status: isQueued ? 'created' : 'running',
    pid: record?.pid ?? null,
    ...labelOf(plan),
  };
}

function unsealable({ directive, secret_inputs: names }: ThreadPlan): RyeError {
  return new RyeError(
    'invalid_input',
    `${directive.id} has the secret input ${names[0]}, which cannot be sent from here`,
    { hint: 'Start it with: rye run … --fleet', details: { inputs: names } },
  );
}

/** Returns the label of a thread with this plan; of a child without one: its directive and its inputs. */
export function labelOf({
  label,
  directive,
  inputs,
  parent_thread_id: parent,
}: ThreadPlan): Pick<LaunchedThread, 'label'> {
  if (label !== undefined) return { label };
  return parent === null ? {} : { label: inputsLabel(directive.id, inputs) };
}

/**
 * Starts the threads that wait for a slot, oldest first, as far as slots are free. There is no scheduler process: every
 * call that queues a thread, ends one or waits for one calls this. The process of a thread that `ended` runs the first of
 * them itself, which costs a quarter of a new process. Resolves to the threads that could not be started.
 */
export async function startQueued(
  env: Supervising,
  ended?: string,
): Promise<ReadonlyMap<string, RyeError>> {
  const failures = new Map<string, RyeError>();
  const created = await env.store.registry.list({ status: 'created' });
  const isHere = env.store.maintenance !== undefined;
  const queued = created
    // other machines share the store: a thread is started where its handover is
    .filter(
      ({ pid, thread_id: id }) => pid === null && (isHere || hasHandover(env.files.folder(id))),
    )
    .toReversed();
  if (queued.length === 0) return failures;
  const { coordination } = env.config;
  const full = new Set<string | null>();
  for (const record of queued) {
    if (full.has(record.parent_id)) continue;
    const lost = await secretsLost(env, record.thread_id);
    if (lost === 'elsewhere') continue;
    if (lost) {
      await endQueued(env, record.thread_id, lost);
      failures.set(record.thread_id, lost);
      continue;
    }
    const now = isoTime(env.clock.now());
    const { registry } = env.store;
    if (!(await registry.takeLaunch(record.thread_id, env.owner, coordination, now))) {
      // no free slot, or another process took it, which does not affect the next thread
      const current = await registry.get(record.thread_id);
      if (current?.status === 'created' && current.pid === null) full.add(record.parent_id);
      continue;
    }
    if (ended !== undefined && runsHere(env, record, ended)) continue;
    const failure = await launch(env, record);
    if (failure) failures.set(record.thread_id, failure);
  }
  return failures;
}

/** Ends a thread that was not started, and drops its handover and secrets. */
export async function endQueued(
  env: Stored & Process,
  threadId: string,
  error: RyeError,
): Promise<void> {
  heldSecrets.delete(holdKey(env, threadId));
  await endUnstarted(env, threadId, { status: 'error', error: error.toJSON() });
  await removeHandover(env.files.folder(threadId));
}

/**
 * Reports whether a queued thread needs secret inputs that this process lacks: `elsewhere` if another process has them,
 * an error if they are lost.
 */
async function secretsLost(
  env: Stored & Pick<Process, 'projectPath'>,
  threadId: string,
): Promise<RyeError | 'elsewhere' | undefined> {
  if (heldSecrets.has(holdKey(env, threadId))) return undefined;
  let holder: Handover['holder'];
  try {
    ({ holder } = await handoverOf(env.files, threadId));
  } catch {
    return undefined; // its own process reports the problem
  }
  if (holder === undefined) return undefined;
  const { owners } = env.store;
  const { pid, processStart, host } = holder;
  const owner = owners.ofRecord({ pid, process_start: processStart, host });
  if (owner && owners.state(owner) !== 'gone') return 'elsewhere';
  return secretsGone(threadId);
}

function holderOf({
  store,
  owner,
}: Pick<Stored, 'store'> & Pick<Process, 'owner'>): NonNullable<Handover['holder']> {
  const { pid, process_start: start, host } = store.owners.columns(owner);
  return { pid: pid ?? 0, processStart: start ?? '', host: host ?? '' };
}

function secretsGone(threadId: string): RyeError {
  return new RyeError(
    'spawn_failed',
    `the secret inputs of ${threadId} are lost: the process that held them has ended`,
    { hint: 'Start the directive again with its secret inputs.' },
  );
}

/** Returns the secret inputs of the thread that this process was started for; ends the thread if they did not arrive. */
export async function secretsOf(
  env: Stored & Process,
  threadId: string,
  handover: Handover,
): Promise<Readonly<Record<string, string>>> {
  if (handover.holder === undefined) return handover.secrets ?? {};
  const secrets = await receiveSecrets();
  if (secrets !== undefined) return secrets;
  const error = secretsGone(threadId);
  await endQueued(env, threadId, error);
  throw error;
}

/** True if this process, whose thread has ended, runs a thread that it has taken. */
function runsHere(
  env: Stored & Process & Launching,
  { thread_id: threadId }: ThreadRecord,
  ended: string,
): boolean {
  // the values of secret inputs are in the memory of another part of this process, for a pipe
  if (heldSecrets.has(holdKey(env, threadId))) return false;
  if (env.runNext?.(threadId, ended) !== true) return false;
  const { pid } = env.store.owners.columns(env.owner);
  noteSharedProcess(env.files.folder(threadId), pid ?? 0, ended);
  return true;
}

/** Starts the process of a thread that this process has taken. */
async function launch(
  env: Stored & Process & Launching,
  { thread_id: threadId }: ThreadRecord,
): Promise<RyeError | undefined> {
  try {
    const runner = await env.runner();
    if (await handToIdle(env, threadId, runner)) return undefined;
    const pid = await launchProcess({
      runner,
      threadId,
      folder: env.files.folder(threadId),
      cwd: env.projectPath,
      secrets: heldSecrets.get(holdKey(env, threadId)),
    });
    heldSecrets.delete(holdKey(env, threadId));
    const { owners, registry } = env.store;
    // a process that has already exited recorded its end in the registry, or recovery finds it
    const gone = { ...owners.columns(env.owner), pid, process_start: 'gone' };
    const owner = owners.ofProcess(pid) ?? owners.ofRecord(gone) ?? null;
    await registry.assign(threadId, owner, isoTime(env.clock.now()));
    return undefined;
  } catch (error) {
    const failure = toRyeError(error, 'spawn_failed');
    await endQueued(env, threadId, failure);
    return failure;
  }
}

/** True if an idle process runs the thread: one that is what this process would start. */
async function handToIdle(
  env: Stored & Process,
  threadId: string,
  runner: RunnerCommand,
): Promise<boolean> {
  // the values of secret inputs go to a new process, by a pipe
  if (heldSecrets.has(holdKey(env, threadId))) return false;
  const idle = takeIdle(env.projectPath, runner, env.projectPath);
  const owner = idle && env.store.owners.ofProcess(idle.pid);
  if (!idle || !owner) return false;
  const isOwned = await env.store.registry.assign(threadId, owner, isoTime(env.clock.now()));
  if (isOwned) noteSharedProcess(env.files.folder(threadId), idle.pid, idle.startedFor);
  idle.give(isOwned ? threadId : undefined);
  // one that is no longer `created` was cancelled meanwhile: no process has to start
  return true;
}

/** Reads a thread's handover; the file stays until the thread is claimed. */
export async function handoverOf(
  files: Pick<ThreadFiles, 'folder'>,
  threadId: string,
): Promise<Handover> {
  const value: unknown = parseJson(await readHandover(files.folder(threadId)));
  if (HANDOVER.fits(value)) return value;
  throw new RyeError('thread_tampered', `the handover of ${threadId} is not one of this version`, {
    hint: 'Start the directive again.',
    details: { thread_id: threadId, member: HANDOVER.fault(value) },
  });
}

const HANDOVER = objectOf<Handover>({
  format: oneOf([1]),
  options: objectOf<RunnerOptions>({
    allow_unsigned: BOOLEAN,
    replay_from: optional(TEXT),
    record_to: optional(TEXT),
  }),
  holder: optional(
    objectOf<NonNullable<Handover['holder']>>({
      pid: NUMBER,
      processStart: TEXT,
      host: TEXT,
    }),
  ),
  secrets: optional(mapOf(TEXT)),
});

/**
 * Takes a launched thread over: claims it, reads the plan that its signed thread.json names, and removes the private
 * file. The budget that its starter reserved is kept, not reserved again.
 */
export async function adoptThread(
  env: Stored & Process & Embedding,
  threadId: string,
): Promise<StartedThread> {
  const record = await env.store.registry.claim(threadId, env.owner, isoTime(env.clock.now()));
  return await endIfFails(env, threadId, async () => {
    await removeHandover(env.files.folder(threadId));
    const prepared = await env.files.readDocument(threadId);
    const plan = await env.files.readPlan(prepared);
    assertProgram(env, plan, threadId);
    const parent = await readParent(env.files, plan);
    const now = isoTime(env.clock.now());
    const document = { ...prepared, status: 'running' as const, updated_at: now };
    // the log, which is made next, syncs the name
    await env.files.writeDocument(document, 'content');
    return { threadId, plan, record, document, parent };
  });
}
