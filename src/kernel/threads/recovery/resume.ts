import { isoTime } from '../../core/clock.ts';
import { RyeError } from '../../core/errors.ts';
import type { EventDraft } from '../../core/events.ts';
import {
  completeLimits,
  eachLimit,
  LIMIT_NAMES,
  type Limits,
  type PartialLimits,
} from '../../core/limits.ts';
import type { Message } from '../../core/message.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { RunReason, ThreadRecord } from '../../core/thread.ts';
import { type Cost, type MicroUsd, NO_COST, toMicroUsd, toUsd } from '../../core/usage.ts';
import { openingText } from '../../log/context.ts';
import { carryPath, continuePath, isCopyable } from '../../log/continuation.ts';
import { type AwaitedCall, awaitedCalls } from '../../log/open-calls.ts';
import { raisedLimits, runsOf } from '../../log/runs.ts';
import { isKnown } from '../../log/tree.ts';
import { checkRaises } from '../../policy/limit-grant.ts';
import { limitsOfRun, type RunLimits, type UsedLimits } from '../../policy/run-limits.ts';
import type { LogHold } from '../../storage/store.ts';
import type { ApprovalEnv } from '../approval-port.ts';
import { chainEnd, isDescendant } from '../family/children.ts';
import { recoverDeliveries } from '../family/delivery-log.ts';
import type {
  Configured,
  Embedding,
  Exporting,
  Preparation,
  Process,
  Recovering,
  Sources,
  Stored,
} from '../ports.ts';
import { ApprovalHistory } from '../run/approval-history.ts';
import { asksOthers } from '../run/approval-subject.ts';
import { exportThread } from '../run/export-thread.ts';
import { createThread } from '../run/start.ts';
import { awaitedApprovals, awaitedThreads, isPaused, isWaiting } from '../run/waiting.ts';
import { planHash, planText } from '../stored-plan.ts';
import { nextDocument } from '../thread-document.ts';
import {
  type ContinuationFacts,
  type ContinuedConversation,
  continuationOf,
  continuedConversation,
  interruptedText,
} from './continuation.ts';
import { bookedCost, recordedEnd } from './crashed-log.ts';
import { ratesOf } from './last-words.ts';
import { costOfLost, lostUsage, withLost } from './lost-usage.ts';
import { holdResumable, type Resumable, type ResumeRequest } from './resumable.ts';
import {
  assertSomethingLeft,
  heirAbove,
  leftByRoot,
  overrideLimits,
  payingAncestor,
  remainingLimits,
  type Successor,
} from './successor.ts';

/**
 * Prepares the next run of a thread under its own id. Only a thread whose log must not grow, because it is archived or was
 * changed, gets a successor, which is linked once it holds the whole context. No other process writes the log meanwhile.
 */
export async function prepareResume(
  env: Recovering & Sources & Preparation & Embedding & ApprovalEnv,
  request: ResumeRequest,
): Promise<Successor> {
  const { resumable, hold } = await holdResumable(env, request);
  const { record, isIntact, plan } = resumable;
  try {
    await env.models.assertReady?.(plan.model);
    if (mayOnlyWait(request)) await assertDecided(env, record, plan);
    await closeOpenRun(env, record);
    return isIntact && !(await env.store.logs.isArchived(record.thread_id))
      ? await runAgain(env, resumable, request, hold)
      : await succeed(env, resumable, request, hold);
  } catch (error) {
    await hold.release();
    throw error;
  }
}

/** Closes a run that its owner could not: the store had room for the end of the thread, but not for that of the run. */
async function closeOpenRun(
  env: Stored & Pick<Process, 'clock'>,
  { thread_id: threadId, epoch }: ThreadRecord,
): Promise<void> {
  const open = await env.store.deliveries.activeTurn(threadId);
  if (open) await recoverDeliveries(env, threadId, epoch);
}

/** A message is refused also with a person there: it would take the calls back that they were asked about. */
function mayOnlyWait({ from, refresh, isAttended, message }: ResumeRequest): boolean {
  return from === undefined && refresh !== true && (isAttended !== true || message !== undefined);
}

/** Refuses a run of a thread that still waits for people: it would only wait again, unless others have to decide now. */
async function assertDecided(
  env: Pick<Stored, 'store'> & Process & Configured & ApprovalEnv,
  record: ThreadRecord,
  plan: ThreadPlan,
): Promise<void> {
  const { store, clock } = env;
  const { thread_id: threadId, error } = record;
  if (!error || !isWaiting(record)) return;
  for (const id of awaitedThreads(record)) {
    const thread = await chainEnd(store.registry, id);
    if (!thread || !isWaiting(thread)) return;
  }
  const now = isoTime(clock.now());
  for (const id of awaitedApprovals(record)) {
    const stored = await store.approvals.get(id);
    const isOpen = stored?.state === 'pending' && stored.decisions.length === 0;
    if (!isOpen || now >= stored.request.expires_at) return;
    if (await asksOthers(env, plan, stored)) return;
  }
  const { message, hint, details } = error;
  throw new RyeError('approval_pending', `thread ${threadId} waits: ${message}`, { hint, details });
}

/** Returns what a thread has spent, with the event that books what its log could not take when the store failed. */
async function spentBy(
  { store, models }: Recovering & Sources,
  { record, log, planned }: Resumable,
): Promise<{ readonly spent: Cost; readonly booking: readonly EventDraft[] }> {
  const booked = bookedCost(log.events);
  const isCutOff = record.status === 'error' && recordedEnd(log.events) === undefined;
  if (!isCutOff) return { spent: booked, booking: [] };
  // its process ended the calls before it gave up the thread
  const lost = lostUsage(log.events, planned, {
    traits: models.traits(planned.model),
    endMs: Date.parse(record.updated_at),
    rateOf: await ratesOf({ models }, planned),
  });
  const [row] = await store.ledger.rows({ thread_id: record.thread_id });
  const spent = withLost(booked, row?.actual ?? 0, lost);
  return { spent, booking: lost ? [costOfLost(lost, spent)] : [] };
}

/** Begins the next run of a thread in its own log. */
async function runAgain(
  env: Recovering & Sources & Preparation,
  resumable: Resumable,
  { message, from, limits: grants = {}, raiseLimits }: ResumeRequest,
  hold: LogHold,
): Promise<Successor> {
  const { record, document, planned, parent, log, tree, leafId } = resumable;
  const { registry } = env.store;
  const threadId = record.thread_id;
  const { spent, booking } = await spentBy(env, resumable);
  const grant = checkedGrant(env, resumable, grants, raiseLimits);
  const next = await nextLimits(env, resumable, { cost: spent, grants });
  const { total, run: left, planned: limits } = next;
  // what it waits for may be the raise of the limit itself
  if (!isPaused(record)) assertSomethingLeft(threadId, left, planned);
  const origins = { ...planned.origins, ...originsOf(grants) };
  const stored = { ...planned, ...grant.kept, limits, origins };
  const plan = { ...resumable.plan, ...grant.kept, limits: total, origins };
  const context = continuePath({ tree, events: log.events, leafId });
  const hasMoved = from !== undefined || wasMoved(log.events);
  const last = context.messages.at(-1);
  const reason = await reasonOfRun(env, resumable, { message, hasMoved });
  const isAnswer = answersOnly(reason, last);
  const seed = await seedOf(env, resumable, { message, plan, last, hasMoved, isAnswer });
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
  const begins = nextDocument(document, plan, { now, sha256, runs });
  const claimed = await registry.resume(record, env.owner, now);
  const { epoch } = claimed;
  let undo: (() => Promise<void>) | undefined;
  try {
    undo = await fundNextRun(env, record, { spend: left.spend, epoch });
    if (sha256 !== document.plan_sha256) await env.files.writePlan(threadId, stored, runs.length);
    await env.files.writeDocument(begins);
  } catch (error) {
    await undo?.();
    await registry.revert(record, epoch);
    throw error;
  }
  return {
    started: { threadId, plan, record: claimed, document: begins, parent },
    release: async () => await hold.release(),
    conversation: continuedConversation({
      hold,
      spent,
      approvals: new ApprovalHistory(log.events),
      awaited: await awaitedBelow(env, threadId, log.events),
      begin: [
        ...booking,
        { event_type: 'run_started', payload: { ...begun, ...grant.raised, plan_sha256: sha256 } },
        ...changesDraft(resumable, sha256),
      ],
      refreshed: resumable.refreshed,
      previousThreadId: threadId,
      traits: env.models.traits,
      messages: isCopyable(tree, leafId) ? context.messages : [],
      carry: (rerun) => continuePath({ tree, events: log.events, leafId, rerun }),
      ...seed,
    }),
  };
}

/**
 * Checks the limits that a person grants to the next run of a root: a new run gets no more either. Returns what the plan
 * keeps of it, and what this run raised. A child is bounded by its parent.
 */
export function checkedGrant(
  { config }: Configured,
  { planned, parent }: Pick<Resumable, 'planned' | 'parent'>,
  wanted: PartialLimits,
  mayRaise = false,
): {
  readonly kept: Pick<ThreadPlan, 'granted_limits' | 'raised_limits'>;
  readonly raised: Pick<ThreadPlan, 'raised_limits'>;
} {
  if (parent || Object.keys(wanted).length === 0) return { kept: {}, raised: {} };
  const granted = completeLimits(planned.granted_limits ?? planned.limits);
  const directiveId = planned.directive.id;
  const origins = eachLimit((name) => planned.origins[`limits.${name}`] ?? 'the plan');
  const ceiling = config.limitCeiling;
  const found = checkRaises({ directiveId, granted, origins, wanted, ceiling, mayRaise });
  const raised = Object.keys(found).length === 0 ? {} : { raised_limits: found };
  const all = { ...planned.raised_limits, ...found };
  const kept = Object.keys(all).length === 0 ? {} : { raised_limits: all };
  return { kept: { granted_limits: granted, ...kept }, raised };
}

/** Limits that a person granted are no defaults any more. */
function originsOf(grants: PartialLimits): ThreadPlan['origins'] {
  return Object.fromEntries(Object.keys(grants).map((name) => [`limits.${name}`, '--limit']));
}

/** Returns `plan_changed`; nothing if the run follows the plan of the run before. */
function changesDraft({ changes, document }: Resumable, after: string): readonly EventDraft[] {
  if (changes.length === 0) return [];
  const before = document.plan_sha256 ?? '';
  return [
    {
      event_type: 'plan_changed',
      payload: { changes, before_sha256: before, after_sha256: after },
    },
  ];
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

/** Returns the calls that wait for threads of this family: a fork has the calls, but not the threads. */
async function awaitedBelow(
  { store: { registry } }: Pick<Stored, 'store'>,
  threadId: string,
  events: Resumable['log']['events'],
): Promise<ReadonlyMap<string, AwaitedCall>> {
  const found = new Map<string, AwaitedCall>();
  for (const [callId, call] of awaitedCalls(events)) {
    const below = await Promise.all(
      call.threads.map(async (id) => await isDescendant(registry, threadId, id)),
    );
    if (below.every(Boolean)) found.set(callId, call);
  }
  return found;
}

/** True if messages that wait are the next thing that the model gets, so that nothing else has to make it continue. */
function answersOnly(reason: RunReason, last: Message | undefined): boolean {
  return reason === 'answered' && last !== undefined;
}

/** Continues a thread whose log must not grow in a successor. */
async function succeed(
  env: Recovering & Sources & Preparation,
  resumable: Resumable,
  { message, limits: overrides = {}, raiseLimits }: ResumeRequest,
  hold: LogHold,
): Promise<Successor> {
  const { record, plan: before, parent, log, tree, leafId } = resumable;
  const threadId = record.thread_id;
  const { ledger, registry } = env.store;
  const left = remainingLimits(limitsNow({ planned: before, log }), {
    cost: record.cost,
    subtreeSpend: toUsd(await ledger.subtreeSpend(threadId)),
    spawns: record.spawn_count,
  });
  const grant = checkedGrant(env, resumable, overrides, raiseLimits);
  const limits = overrideLimits(left, overrides, parent);
  assertSomethingLeft(threadId, limits, before);
  const plan = { ...before, ...grant.kept, limits };
  const payer = await payingAncestor(env, plan.parent_thread_id);
  const request = { parent, continuationOf: threadId };
  const started = await createThread(env, plan, request, async (id) => {
    const amount = toMicroUsd(limits.spend);
    if (payer === undefined) await ledger.register(id, amount);
    else await ledger.reserve(id, amount, payer);
  });
  const carry = (rerun: ReadonlySet<string>) =>
    carryPath({ tree, events: log.events, leafId, rerun });
  const { messages } = carry(new Set());
  const cutText = interruptedText(tree, leafId);
  const seed: Seed =
    message === undefined
      ? await continuationOf(env, seedFacts(plan, record), { cutText, last: messages.at(-1) })
      : { message };
  return {
    started,
    release: async () => await hold.release(),
    conversation: continuedConversation({
      awaited: await awaitedBelow(env, threadId, log.events),
      continued: changesDraft(resumable, planHash(planText(plan))),
      refreshed: resumable.refreshed,
      previousThreadId: threadId,
      traits: env.models.traits,
      messages,
      carry,
      ...seed,
      onCarried: async () => {
        await registry.linkContinuation(threadId, started.threadId, isoTime(env.clock.now()));
        await hold.release();
        await noteSuccessor(env, resumable, started.threadId);
      },
    }),
  };
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
  if (isIntact) await exportThread(env, plan, linked);
}

type Seed = Pick<ContinuedConversation, 'message' | 'cutText'>;

/** Returns the message with which the next run of a thread begins, or the text that it continues. */
async function seedOf(
  env: Parameters<typeof continuationOf>[0],
  { record, tree, leafId }: Resumable,
  facts: {
    readonly message: string | undefined;
    readonly plan: ThreadPlan;
    readonly last: Message | undefined;
    readonly hasMoved: boolean;
    readonly isAnswer: boolean;
  },
): Promise<Seed> {
  const { message, plan, last, hasMoved, isAnswer } = facts;
  if (message !== undefined) return { message };
  const opening = last ? undefined : openingText(tree);
  const cutText = interruptedText(tree, leafId);
  const isSeeded = last?.role === 'assistant' || (record.status !== 'suspended' && !hasMoved);
  const isOpen = isSeeded || opening === '' || cutText !== undefined;
  if (isAnswer || !isOpen) return { message: opening };
  return await continuationOf(env, seedFacts(plan, record), { cutText, last });
}

function seedFacts(plan: ThreadPlan, record: ThreadRecord): ContinuationFacts {
  return { plan, previousThreadId: record.thread_id, reason: reasonOf(record) };
}

function reasonOf({ status, error }: ThreadRecord): string {
  const because = error ? `: ${error.message}` : '';
  switch (status) {
    case 'completed':
      return 'The thread had completed. Continue from there.';
    case 'cancelled':
      return `The thread stopped early${because}. Continue where it stopped.`;
    case 'suspended':
      return 'The thread was suspended. Continue where it stopped.';
    case 'created':
    case 'running':
    case 'error':
    case 'continued':
      break;
  }
  return `The thread ended with an error${because}. Continue where it stopped.`;
}

/** The limits of a thread's next run. */
interface NextLimits extends RunLimits {
  /** The limits of the plan that is stored for it. */
  readonly planned: Limits;
}

/** Returns the limits of the next run of a thread that has used `cost`. */
async function nextLimits(
  env: Stored & Pick<Process, 'onNotice'>,
  resumable: Resumable,
  { cost, grants }: { readonly cost: Cost; readonly grants: PartialLimits },
): Promise<NextLimits> {
  const { record, planned } = resumable;
  const { ledger } = env.store;
  const subtreeSpend = toUsd(await ledger.committed(record.thread_id));
  const limits = limitsNow(resumable);
  const used = { cost, subtreeSpend, spawns: record.spawn_count };
  const allowed = withinParent(env, resumable, { limits, used, grants });
  const next = within(allowed, await mostSpend(env, record, grants));
  // a raise is in the log: with another plan, no decision about the calls that wait would count
  const isAsNow = LIMIT_NAMES.every((name) => next.total[name] === limits[name]);
  return { ...next, planned: isAsNow ? planned.limits : next.total };
}

/** Returns a thread's limits: the plan's limits, and what was raised since. */
function limitsNow({ planned, log }: Pick<Resumable, 'planned' | 'log'>): Limits {
  return { ...planned.limits, ...raisedLimits(log.events) };
}

/** Tells a person what the parent takes from the limits. */
function withinParent(
  { onNotice }: Pick<Process, 'onNotice'>,
  { parent }: Resumable,
  {
    limits,
    used,
    grants,
  }: { readonly limits: Limits; readonly used: UsedLimits; readonly grants: PartialLimits },
): RunLimits {
  const next = limitsOfRun(limits, used, grants, parent?.limits);
  if (!parent) return next;
  const { run: wanted } = limitsOfRun(limits, used, grants);
  for (const name of LIMIT_NAMES) {
    const allowed = next.run[name];
    if (allowed === wanted[name]) continue;
    onNotice(
      `the limit ${name} of this run is ${allowed} instead of ${wanted[name]}: its parent ${parent.thread_id} allows no more`,
    );
  }
  return next;
}

/** Returns the most that a run may spend without a grant of a person; undefined: its limits and the ledger decide. */
async function mostSpend(
  env: Stored,
  { thread_id: threadId, parent_id: parentId }: ThreadRecord,
  grants: PartialLimits,
): Promise<MicroUsd | undefined> {
  if (grants.spend !== undefined) return undefined;
  const [row] = await env.store.ledger.rows({ thread_id: threadId });
  // one that waits has kept its money
  return row?.status === 'active' ? undefined : await leftByRoot(env, parentId);
}

/** Returns limits with no more spend in the next run than `most`. */
function within({ total, run }: RunLimits, most: MicroUsd | undefined): RunLimits {
  const less = most === undefined ? 0 : Math.max(0, toMicroUsd(run.spend) - most);
  const lowered = (limits: Limits): Limits => {
    return { ...limits, spend: toUsd(toMicroUsd(limits.spend) - less) };
  };
  return { total: lowered(total), run: lowered(run) };
}

/** Opens the budget of a thread for its next run. Returns how to take that back. */
async function fundNextRun(
  env: Stored,
  { thread_id: threadId, parent_id: parentId }: ThreadRecord,
  { spend, epoch }: { readonly spend: number; readonly epoch: number },
): Promise<() => Promise<void>> {
  const { ledger } = env.store;
  const [before] = await ledger.rows({ thread_id: threadId });
  const held = await ledger.remaining(threadId);
  const heir = await heirAbove(env, parentId);
  await ledger.reopen(threadId, toMicroUsd(spend), { epoch, heir });
  // one that waits holds as much as before, an ended one nothing
  return async () =>
    before?.status === 'active'
      ? await ledger.reopen(threadId, held, { epoch })
      : await ledger.release(threadId, epoch);
}
