import { isoTime } from '../core/clock.ts';
import { RyeError, toRyeError } from '../core/errors.ts';
import { isJsonObject, parseJson } from '../core/json.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { leaveHandover, readHandover, removeHandover } from './handover-fs.ts';
import { launchProcess } from './launch-fs.ts';
import type { LaunchedThread, ThreadEnv } from './ports.ts';
import type { PreparedThread } from './prepare.ts';
import { assertProgram, assertTravels } from './program.ts';
import { endUnstarted, registerThread, reserveBudget, type StartedThread } from './start.ts';
import { startDocument } from './thread-document.ts';

/** What the process of a thread cannot find in its plan. */
export interface RunnerOptions {
  readonly allow_unsigned: boolean;
  readonly replay_from?: string;
  readonly record_to?: string;
}

/** The content of the private file that a thread's process is handed over, beside the plan. */
export interface Handover {
  readonly format: 1;
  /** Values of secret inputs, by name. */
  readonly secrets: Readonly<Record<string, string>>;
  readonly options: RunnerOptions;
}

export interface LaunchRequest {
  readonly prepared: PreparedThread;
  readonly threadId?: string | undefined;
  readonly options: RunnerOptions;
}

/**
 * Registers a prepared thread, reserves its budget, writes its thread.json and hands it to a process of its own, now
 * or when a slot is free. What fails after the registration ends the thread as `error` and frees what was reserved.
 */
export async function launchThread(
  env: ThreadEnv,
  { prepared, threadId: wanted, options }: LaunchRequest,
): Promise<LaunchedThread> {
  const { plan, secrets, parent } = prepared;
  assertTravels(env, plan);
  const registered = await registerThread(env, plan, { threadId: wanted, parent });
  const threadId = registered.thread_id;
  try {
    await reserveBudget(env, plan, threadId);
    const handover: Handover = { format: 1, secrets, options };
    const now = isoTime(env.clock.now());
    await env.files.writeDocument({
      ...startDocument(plan, { threadId, now }),
      status: 'created',
    });
    await env.files.writePlan(threadId, plan);
    leaveHandover(env.files.folder(threadId), JSON.stringify(handover));
    await env.store.registry.assign(threadId, null, now);
  } catch (error) {
    await endUnstarted(env, threadId, { status: 'error', error: toRyeError(error).toJSON() });
    await removeHandover(env.files.folder(threadId));
    throw error;
  }
  const failure = (await startQueued(env)).get(threadId);
  if (failure) throw failure;
  const record = await env.store.registry.get(threadId);
  const isQueued = record?.status === 'created' && record.pid === null;
  return {
    thread_id: threadId,
    directive: plan.directive.id,
    status: isQueued ? 'created' : 'running',
    pid: record?.pid ?? null,
  };
}

/**
 * Starts the threads that wait for a slot, oldest first, as far as slots are free. Nobody supervises the queue:
 * whoever adds to it, ends a thread or waits for one calls this. Resolves to the threads that could not be started.
 */
export async function startQueued(env: ThreadEnv): Promise<ReadonlyMap<string, RyeError>> {
  const failures = new Map<string, RyeError>();
  const created = await env.store.registry.list({ status: 'created' });
  const queued = created.filter(({ pid }) => pid === null).toReversed();
  if (queued.length === 0) return failures;
  const { coordination } = await env.config();
  const full = new Set<string | null>();
  for (const record of queued) {
    if (full.has(record.parent_id)) continue;
    const now = isoTime(env.clock.now());
    const { registry } = env.store;
    if (!(await registry.takeLaunch(record.thread_id, env.owner, coordination, now))) {
      full.add(record.parent_id);
      continue;
    }
    const failure = await launch(env, record);
    if (failure) failures.set(record.thread_id, failure);
  }
  return failures;
}

/** Starts the process of a thread that this process has taken. */
async function launch(
  env: ThreadEnv,
  { thread_id: threadId }: ThreadRecord,
): Promise<RyeError | undefined> {
  const folder = env.files.folder(threadId);
  try {
    const pid = await launchProcess({
      runner: await env.runner(),
      threadId,
      folder,
      cwd: env.projectPath,
    });
    const owner = env.store.processes.identify(pid);
    // one that is gone already has said in the registry how it ended, or is found dead like any other
    const known = owner ?? { ...env.owner, pid, processStart: 'gone' };
    await env.store.registry.assign(threadId, known, isoTime(env.clock.now()));
    return undefined;
  } catch (error) {
    const failure = toRyeError(error, 'spawn_failed');
    await endUnstarted(env, threadId, { status: 'error', error: failure.toJSON() });
    await removeHandover(folder);
    return failure;
  }
}

/** Reads what this process was started to run; the file stays until the thread is claimed. */
export async function handoverOf(env: ThreadEnv, threadId: string): Promise<Handover> {
  const value = parseJson(await readHandover(env.files.folder(threadId)));
  if (isJsonObject(value) && value['format'] === 1) return value as unknown as Handover;
  throw new RyeError('thread_tampered', `the handover of ${threadId} is not one of this version`);
}

/**
 * Takes a launched thread over: claims it, reads the plan that its signed thread.json names, and removes the private
 * file. The budget that its starter reserved is kept, not reserved again.
 */
export async function adoptThread(env: ThreadEnv, threadId: string): Promise<StartedThread> {
  const record = await env.store.registry.claim(threadId, env.owner, isoTime(env.clock.now()));
  try {
    await removeHandover(env.files.folder(threadId));
    const prepared = await env.files.readDocument(threadId);
    const plan = await env.files.readPlan(prepared);
    assertProgram(env, plan, threadId);
    const parentId = plan.parent_thread_id;
    const parent = parentId === null ? undefined : await env.files.readDocument(parentId);
    const now = isoTime(env.clock.now());
    const document = { ...prepared, status: 'running' as const, updated_at: now };
    await env.files.writeDocument(document);
    return { threadId, plan, record, document, parent };
  } catch (error) {
    await endUnstarted(env, threadId, { status: 'error', error: toRyeError(error).toJSON() });
    throw error;
  }
}
