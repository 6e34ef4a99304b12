import { RyeError } from '../../core/errors.ts';
import type { PlanChange } from '../../core/events.ts';
import type { PartialLimits } from '../../core/limits.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { isActive, type ThreadRecord } from '../../core/thread.ts';
import { continuedElsewhere, threadNotFound } from '../../core/thread-errors.ts';
import { isFatalProblem } from '../../log/codec.ts';
import { buildTree, entryByPrefix, type SessionTree } from '../../log/tree.ts';
import type { LogHold, OpenedLog } from '../../storage/store.ts';
import type { Configured, Preparing, Process, Recovering, Stored } from '../ports.ts';
import { planAtLeaf } from '../prepare/plan-at-head.ts';
import { type PlannedThread, planForRun } from '../prepare/plan-for-run.ts';
import { assertProgram } from '../prepare/policy.ts';
import { isTextChanged, refreshPlan } from '../prepare/refreshed-plan.ts';
import type { PrepareRequest } from '../prepare/request.ts';
import type { PlanForRun } from '../prepare/rules-for-run.ts';
import { deathOf } from '../run/liveness.ts';
import { readParent } from '../run/start.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { partOf } from '../verified-log.ts';
import type { RefreshedStart } from './continuation.ts';
import { recoverThread } from './recover.ts';
import { refreshRow } from './stale-row.ts';
import { assertIntact } from './successor.ts';

export interface ResumeRequest {
  readonly threadId: string;
  /** The message to the model; absent: the continuation directive provides it. */
  readonly message?: string | undefined;
  /** Id, or unique prefix, of the entry to continue from; absent: the head. */
  readonly from?: string | undefined;
  /** Amounts granted to this run instead of the rest of the limits: a new total is the amount used and the grant. */
  readonly limits?: PartialLimits | undefined;
  /** True to let `limits` go above what a new run would be granted where no ceiling is configured. */
  readonly raiseLimits?: boolean | undefined;
  /** Values of the secret inputs, which are given again; with `refresh` also of other inputs. */
  readonly secrets: Readonly<Record<string, string>>;
  /** Plans the thread's directive again, as its files are now, and follows that plan from this run on. */
  readonly refresh?: boolean | undefined;
  /** The epoch of the run that it continues: `thread_locked` if the thread has run since. Absent: any. */
  readonly epoch?: number | undefined;
  /** True if a person is there who can decide about what the thread waits for. */
  readonly isAttended?: boolean | undefined;
  /** Risks that the refreshed plan may take. */
  readonly acknowledge?: PrepareRequest['acknowledge'] | undefined;
}

/** A thread with everything that decides how it continues, read and verified. */
export interface Resumable {
  readonly record: ThreadRecord;
  readonly document: ThreadDocument;
  /** The plan that is stored for the next run: that of the last one under the policy in force. */
  readonly planned: ThreadPlan;
  /** The plan under the settings at the leaf. */
  readonly plan: ThreadPlan;
  /** The changes of the plan since the stored one. */
  readonly changes: readonly PlanChange[];
  /** Set if the run follows a refreshed plan. */
  readonly refreshed: RefreshedStart | undefined;
  readonly parent: ThreadDocument | undefined;
  readonly log: OpenedLog;
  readonly tree: SessionTree;
  readonly leafId: string | null;
  /** False if only the part before a change is used: then nothing is appended to the log. */
  readonly isIntact: boolean;
}

/**
 * Reads and verifies the thread that a resume continues, the end of its chain, and holds its log. A crashed one is
 * recovered first. Of two processes that resume one thread, one gets it; the other is refused with `thread_locked`.
 */
export async function holdResumable(
  env: Recovering & Preparing,
  request: ResumeRequest,
): Promise<{ readonly resumable: Resumable; readonly hold: LogHold }> {
  const ignored = await env.guards.check();
  const record = await endOfChain(env, request.threadId);
  const { thread_id: threadId } = record;
  if (request.epoch !== undefined && request.epoch !== record.epoch)
    throw continuedElsewhere(threadId);
  if (threadId !== request.threadId) {
    env.onNotice(`thread ${request.threadId} was handed off; ${threadId} continues it`);
  }
  await env.files.readDocument(threadId);
  await env.files.pull(threadId);
  const hold = await holdEnded(env, threadId, record.epoch);
  try {
    await assertUnchanged(env, record);
    return { resumable: await readResumable(env, record, request, ignored), hold };
  } catch (error) {
    await hold.release();
    throw error;
  }
}

/** Returns the last thread of the chain once no process runs it; a crashed one is recovered. */
async function endOfChain(env: Recovering, threadId: string): Promise<ThreadRecord> {
  const chain = await env.store.registry.chain(threadId);
  const found = chain.at(-1);
  const last = found && (await refreshRow(env, found));
  if (!last) throw threadNotFound(threadId);
  if (!isActive(last.status)) return last;
  const { recovery } = env.config;
  if (!deathOf(env, last, recovery.staleSeconds)) throw stillRuns(last, threadId);
  try {
    await recoverThread(env, last.thread_id);
  } catch (error) {
    // another process was faster: what it made of the thread is seen next
    if (!(error instanceof RyeError) || error.code !== 'illegal_transition') throw error;
  }
  return await endOfChain(env, threadId);
}

function stillRuns({ thread_id, pid, status }: ThreadRecord, asked: string): RyeError {
  const through = thread_id === asked ? '' : `, which continues ${asked},`;
  const how = pid === null ? 'waits for a process' : `is ${status} in process ${pid}`;
  return new RyeError('thread_locked', `thread ${thread_id}${through} ${how}`, {
    hint: `Follow it with \`rye threads logs ${thread_id} --follow\`, or stop it with \`rye threads cancel ${thread_id}\`.`,
    details: { thread_id, pid },
  });
}

async function readResumable(
  env: Preparing,
  record: ThreadRecord,
  request: ResumeRequest,
  ignored: readonly string[],
): Promise<Resumable> {
  const threadId = record.thread_id;
  const { files, store } = env;
  const { document, verdict } = await assertIntact(env, threadId);
  const planned = await files.readPlan(document);
  const parent = await readParent(files, planned);
  const { plan: current, changes } = await nextPlan(
    env,
    planned,
    { threadId, parent },
    request,
    ignored,
  );
  const log = await store.logs.read(threadId, partOf(threadId, verdict));
  const tree = buildTree(log.events, (index) => log.offsets[index] ?? 0);
  const fatal = [...log.problems, ...tree.problems].find(isFatalProblem);
  if (fatal) {
    throw new RyeError(
      'log_malformed',
      `the log of ${threadId} has no sensible order: ${fatal.message} at byte ${fatal.offset}`,
      { hint: 'Branch from an entry before it with --from.' },
    );
  }
  const { from, refresh = false } = request;
  const leafId = from === undefined ? tree.leafId : entryByPrefix(tree, from).id;
  const refreshed = refresh && changes.length > 0 ? startOf(planned, current) : undefined;
  // a model that is new in the directive counts more than one that was set before
  const isSet = (refreshed?.entries.length ?? 0) > 0;
  const plan = isSet ? current : await planAtLeaf(env, current, { tree, leafId });
  if (!refresh) assertSecrets(plan, request.secrets);
  const isIntact = verdict.ok;
  return {
    record,
    document,
    planned: current,
    plan,
    changes,
    refreshed,
    parent,
    log,
    tree,
    leafId,
    isIntact,
  };
}

/** Returns the plan of the next run: that of today if a person asks for it, else the stored one under the stricter policy. */
async function nextPlan(
  env: Preparing,
  planned: ThreadPlan,
  thread: PlannedThread,
  { refresh = false, secrets: inputs, acknowledge = [] }: ResumeRequest,
  ignored: readonly string[],
): Promise<PlanForRun> {
  if (refresh) return await refreshPlan(env, planned, thread, { inputs, acknowledge, ignored });
  if (acknowledge.length > 0) {
    throw new RyeError('usage', 'a risk can only be acknowledged for a refreshed plan', {
      hint: `Run: rye threads resume ${thread.threadId} --refresh --acknowledge ${acknowledge[0]}`,
    });
  }
  assertProgram(env, planned, thread.threadId);
  return await planForRun(env, planned, thread);
}

/** Returns what the model is told about a refreshed plan, and the settings that hold from there. */
function startOf(before: ThreadPlan, after: ThreadPlan): RefreshedStart {
  const isTold = isTextChanged(before, after);
  const { model, thinking } = after;
  if (model.id === before.model.id && model.provider === before.model.provider) {
    return { isTold, entries: [] };
  }
  return {
    isTold,
    entries: [
      { event_type: 'model_change', payload: { provider: model.provider, model: model.id } },
      { event_type: 'thinking_change', payload: { level: thinking } },
    ],
  };
}

/** Secrets are never stored, so a directive that has some needs them again. */
function assertSecrets(
  { secret_inputs: names, directive }: ThreadPlan,
  given: Readonly<Record<string, string>>,
): void {
  const missing = names.filter((name) => !Object.hasOwn(given, name));
  const unknown = Object.keys(given).filter((name) => !names.includes(name));
  if (missing.length === 0 && unknown.length === 0) return;
  const problem =
    missing.length > 0
      ? `the secret inputs ${missing.join(', ')} are not stored and must be given again`
      : `${unknown.join(', ')} is not a secret input of ${directive.id}; the others keep their values`;
  throw new RyeError('invalid_input', problem, {
    hint: missing.length > 0 ? `Add --input ${missing[0]}=@FILE.` : 'Leave it out.',
    details: { missing, unknown },
  });
}

/** Maximum time that the process of an ended thread may still write its export. */
const EXPORT_MS = 5000;
const LOOK_MS = 20;

/** Holds the log of an ended thread once the process that ended it has released it. */
async function holdEnded(
  env: Pick<Stored, 'store'> & Process & Configured,
  threadId: string,
  epoch: number,
): Promise<LogHold> {
  const staleMs = env.config.recovery.staleSeconds * 1000;
  const deadline = env.clock.monotonic() + EXPORT_MS;
  for (;;) {
    try {
      return await env.store.logs.hold(threadId, env.owner, epoch, { staleMs });
    } catch (error) {
      const isHeld = error instanceof RyeError && error.code === 'thread_locked';
      if (!isHeld || env.clock.monotonic() >= deadline) throw error;
      await env.clock.sleep(LOOK_MS);
    }
  }
}

/** Throws `thread_locked` if the previous holder of the log continued the thread. */
async function assertUnchanged(env: Pick<Stored, 'store'>, before: ThreadRecord): Promise<void> {
  const now = await env.store.registry.get(before.thread_id);
  if (now?.status !== before.status || now.epoch !== before.epoch)
    throw continuedElsewhere(before.thread_id);
}
