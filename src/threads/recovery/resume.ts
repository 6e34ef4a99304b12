import { isoTime } from '../../core/clock.ts';
import { RyeError } from '../../core/errors.ts';
import type { PlanChange } from '../../core/events.ts';
import type { PartialLimits } from '../../core/limits.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { isActive, type RunReason, type ThreadRecord } from '../../core/thread.ts';
import { NO_COST, toMicroUsd, toUsd } from '../../core/usage.ts';
import { isFatalProblem } from '../../log/codec.ts';
import { carryPath, continuePath, isCopyable } from '../../log/continuation.ts';
import { runsOf } from '../../log/runs.ts';
import { buildTree, entryByPrefix, isKnown, type SessionTree } from '../../log/tree.ts';
import { limitsOfRun } from '../../policy/run-limits.ts';
import type { LogHold, OpenedLog } from '../../storage/store.ts';
import type {
  Embedding,
  Exporting,
  Preparation,
  Preparing,
  Process,
  Recovering,
  Sources,
  Stored,
} from '../ports.ts';
import { planAtLeaf } from '../prepare/plan-at-head.ts';
import { planForRun } from '../prepare/plan-for-run.ts';
import { assertProgram } from '../prepare/policy.ts';
import { reexport } from '../run/finalize.ts';
import { deathOf } from '../run/liveness.ts';
import { createThread, readParent } from '../run/start.ts';
import { planHash, planText } from '../stored-plan.ts';
import { nextDocument, type ThreadDocument } from '../thread-document.ts';
import { partOf } from '../verified-log.ts';
import { recordingChanges } from './changed-plan.ts';
import { continuationMessage, continuedConversation } from './continuation.ts';
import { bookedCost } from './crashed-log.ts';
import { recoverThread } from './recover.ts';
import {
  assertIntact,
  assertSomethingLeft,
  heirAbove,
  overrideLimits,
  payingAncestor,
  remainingLimits,
  type Successor,
} from './successor.ts';

export interface ResumeRequest {
  readonly threadId: string;
  /** The message to the model; absent: the continuation directive provides it. */
  readonly message?: string | undefined;
  /** Id, or unique prefix, of the entry to continue from; absent: the head. */
  readonly from?: string | undefined;
  /** Limits of the continuation, instead of the remaining ones. */
  readonly limits?: PartialLimits | undefined;
  /** Names of the secret inputs that are given again. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** A thread with everything that decides how it continues, read and verified. */
interface Resumable {
  readonly record: ThreadRecord;
  readonly document: ThreadDocument;
  /** The plan that is stored for the next run: that of the last one under the policy in force. */
  readonly planned: ThreadPlan;
  /** The plan under the settings at the leaf. */
  readonly plan: ThreadPlan;
  /** The changes of the plan since the stored one. */
  readonly changes: readonly PlanChange[];
  readonly parent: ThreadDocument | undefined;
  readonly log: OpenedLog;
  readonly tree: SessionTree;
  readonly leafId: string | null;
  /** False if only the part before a change is used: then nothing is appended to the log. */
  readonly isIntact: boolean;
}

/**
 * Prepares the next run of a thread under its own id. A crashed one is recovered first; the end of a handed-off one is
 * continued. Only a thread whose log must not grow, because it is archived or was changed, gets a successor, which is linked
 * once it holds the whole context. Its thread.json, plan and log are verified before use, and no other process writes the
 * log meanwhile: of two that resume one thread, one gets it, the other is refused with `thread_locked`.
 */
export async function prepareResume(
  env: Recovering & Sources & Preparation & Embedding,
  request: ResumeRequest,
): Promise<Successor> {
  await env.guards.check();
  const record = await endOfChain(env, request.threadId);
  const { thread_id: threadId } = record;
  if (threadId !== request.threadId) {
    env.onNotice(`thread ${request.threadId} was handed off; ${threadId} continues it`);
  }
  await env.files.readDocument(threadId);
  const hold = await holdEnded(env, threadId, record.epoch);
  try {
    await assertUnchanged(env, record);
    const resumable = await readResumable(env, record, request);
    assertSecrets(resumable.plan, request.secrets);
    const { changes, document, isIntact } = resumable;
    const next =
      isIntact && !(await env.store.logs.isArchived(threadId))
        ? await runAgain(env, resumable, request, hold)
        : await succeed(env, resumable, request, hold);
    return recordingChanges(next, { changes, before: document.plan_sha256 ?? '' });
  } catch (error) {
    await hold.release();
    throw error;
  }
}

/** Returns the last thread of the chain once no process runs it; a crashed one is recovered. */
async function endOfChain(env: Recovering, threadId: string): Promise<ThreadRecord> {
  const chain = await env.store.registry.chain(threadId);
  const last = chain.at(-1);
  if (!last) throw new RyeError('thread_not_found', `thread not found: ${threadId}`);
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
  { from }: ResumeRequest,
): Promise<Resumable> {
  const threadId = record.thread_id;
  const { files, store } = env;
  const { document, verdict } = await assertIntact(env, threadId);
  const planned = await files.readPlan(document);
  assertProgram(env, planned, threadId);
  const { plan: current, changes } = await planForRun(env, planned, threadId);
  const parent = await readParent(files, planned);
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
  const leafId = from === undefined ? tree.leafId : entryByPrefix(tree, from).id;
  const plan = await planAtLeaf(env, current, { tree, leafId });
  const isIntact = verdict.ok;
  return {
    record,
    document,
    planned: current,
    plan,
    changes,
    parent,
    log,
    tree,
    leafId,
    isIntact,
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

/** Begins the next run of a thread in its own log. */
async function runAgain(
  env: Recovering & Sources & Preparation,
  resumable: Resumable,
  { message, from, limits: grants = {} }: ResumeRequest,
  hold: LogHold,
): Promise<Successor> {
  const { record, document, planned, parent, log, tree, leafId } = resumable;
  const { registry, ledger } = env.store;
  const threadId = record.thread_id;
  const spent = bookedCost(log.events);
  const used = {
    cost: spent,
    subtreeSpend: toUsd(await ledger.committed(threadId)),
    spawns: record.spawn_count,
  };
  const { total, run: left } = limitsOfRun(planned.limits, used, grants, parent?.limits);
  assertSomethingLeft(threadId, left, planned.limits);
  const stored = { ...planned, limits: total };
  const plan = { ...resumable.plan, limits: total };
  const context = continuePath({ tree, events: log.events, leafId });
  const hasMoved = from !== undefined || wasMoved(log.events);
  const isAnswered = context.messages.at(-1)?.role === 'assistant';
  const isSeeded = isAnswered || (record.status !== 'suspended' && !hasMoved);
  const seed = message ?? (isSeeded ? await seedOf(env, plan, record) : undefined);
  const reason = await reasonOfRun(env, resumable, { message, hasMoved });
  const sha256 = planHash(planText(stored));
  const now = isoTime(env.clock.now());
  const earlier = runsOf(log.header, log.events);
  const { id: model, provider } = plan.model;
  const begun = {
    run: earlier.length + 1,
    reason,
    from_entry: leafId,
    limits: total,
    provider,
    model,
  };
  const runs = [
    ...earlier,
    { ...begun, started_at: now, cost: NO_COST, status: 'running' as const },
  ];
  const next = nextDocument(document, plan, { now, sha256, runs });
  const claimed = await registry.resume(record, env.owner, now);
  try {
    const heir = await heirAbove(env, record.parent_id);
    await ledger.reopen(threadId, toMicroUsd(left.spend), { epoch: claimed.epoch, heir });
    if (sha256 !== document.plan_sha256) await env.files.writePlan(threadId, stored, runs.length);
    await env.files.writeDocument(next);
  } catch (error) {
    await ledger.release(threadId, claimed.epoch);
    await registry.revert(record, claimed.epoch);
    throw error;
  }
  return {
    started: { threadId, plan, record: claimed, document: next, parent },
    release: async () => await hold.release(),
    conversation: continuedConversation({
      hold,
      spent,
      begin: [{ event_type: 'run_started', payload: { ...begun, plan_sha256: sha256 } }],
      previousThreadId: threadId,
      traits: env.models.traits,
      messages: isCopyable(tree, leafId) ? context.messages : [],
      carry: (rerun) => continuePath({ tree, events: log.events, leafId, rerun }),
      message: seed,
    }),
  };
}

/** True if a person moved the head, or added to the conversation, after the last run. */
function wasMoved(events: Resumable['log']['events']): boolean {
  const end = events.findLast((event) => isKnown(event, 'thread_finished'))?.seq ?? 0;
  return events.some(({ seq, event_type: type }) => seq > end && MOVES.has(type));
}

const MOVES: ReadonlySet<string> = new Set(['leaf', 'message', 'custom_message', 'branch_summary']);

async function reasonOfRun(
  { store }: Pick<Stored, 'store'>,
  { record }: Resumable,
  { message, hasMoved }: { readonly message: string | undefined; readonly hasMoved: boolean },
): Promise<RunReason> {
  if (hasMoved) return 'branched';
  if (record.error?.code === 'thread_crashed') return 'recovered';
  const isAsked = message === undefined;
  if (isAsked && (await store.deliveries.isAnyWaiting(record.thread_id))) return 'answered';
  return record.status === 'error' ? 'retried' : 'resumed';
}

/** Continues a thread whose log must not grow in a successor. */
async function succeed(
  env: Recovering & Sources & Preparation,
  resumable: Resumable,
  { message, limits: overrides = {} }: ResumeRequest,
  hold: LogHold,
): Promise<Successor> {
  const { record, plan: before, parent, log, tree, leafId } = resumable;
  const threadId = record.thread_id;
  const { ledger, registry } = env.store;
  const left = remainingLimits(before.limits, {
    cost: record.cost,
    subtreeSpend: toUsd(await ledger.subtreeSpend(threadId)),
    spawns: record.spawn_count,
  });
  const limits = overrideLimits(left, overrides, parent);
  assertSomethingLeft(threadId, limits, before.limits);
  const plan = { ...before, limits };
  const payer = await payingAncestor(env, plan.parent_thread_id);
  const seed = message ?? (await seedOf(env, plan, record));
  const request = { parent, continuationOf: threadId };
  const started = await createThread(env, plan, request, async (id) => {
    const amount = toMicroUsd(limits.spend);
    if (payer === undefined) await ledger.register(id, amount);
    else await ledger.reserve(id, amount, payer);
  });
  const carry = (rerun: ReadonlySet<string>) =>
    carryPath({ tree, events: log.events, leafId, rerun });
  return {
    started,
    release: async () => await hold.release(),
    conversation: continuedConversation({
      previousThreadId: threadId,
      traits: env.models.traits,
      messages: carry(new Set()).messages,
      carry,
      message: seed,
      onCarried: async () => {
        await registry.linkContinuation(threadId, started.threadId, isoTime(env.clock.now()));
        await hold.release();
        await noteSuccessor(env, resumable, started.threadId);
      },
    }),
  };
}

/** Maximum time that the process of an ended thread may still write its export. */
const EXPORT_MS = 5000;
const LOOK_MS = 20;

/** Holds the log of an ended thread once the process that ended it has released it. */
async function holdEnded(
  env: Pick<Stored, 'store'> & Process,
  threadId: string,
  epoch: number,
): Promise<LogHold> {
  const deadline = env.clock.monotonic() + EXPORT_MS;
  for (;;) {
    try {
      return await env.store.logs.hold(threadId, env.owner, epoch);
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
  if (now?.status === before.status && now.epoch === before.epoch) return;
  throw new RyeError(
    'thread_locked',
    `thread ${before.thread_id} was continued by another process just now`,
    { hint: `See: rye threads show ${before.thread_id}`, details: { thread_id: before.thread_id } },
  );
}

/** thread.json and the export of the predecessor name the successor; the chain itself is in the registry. */
async function noteSuccessor(
  env: Stored & Pick<Process, 'onNotice'> & Exporting,
  { document, plan, isIntact }: Resumable,
  successorId: string,
): Promise<void> {
  const linked = { ...document, status: 'continued' as const, continuation_thread_id: successorId };
  await env.files.writeDocument(linked);
  // an export is signed: it takes nothing from a log that was changed
  if (isIntact) await reexport(env, plan, linked);
}

async function seedOf(env: Preparing, plan: ThreadPlan, record: ThreadRecord): Promise<string> {
  return await continuationMessage(env, {
    plan,
    previousThreadId: record.thread_id,
    reason: reasonOf(record),
  });
}

function reasonOf({ status, error }: ThreadRecord): string {
  const because = error ? `: ${error.message}` : '';
  switch (status) {
    case 'completed':
      return 'The previous thread had completed. Continue from there.';
    case 'cancelled':
      return `The previous thread stopped early${because}. Continue where it stopped.`;
    case 'suspended':
      return 'The thread was suspended. Continue where it stopped.';
    case 'created':
    case 'running':
    case 'error':
    case 'continued':
      break;
  }
  return `The previous thread ended with an error${because}. Continue where it stopped.`;
}
