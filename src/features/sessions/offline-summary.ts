import type { ManualCompaction } from '../../kernel/app/api/trees.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { EventDraft, LogEvent } from '../../kernel/core/events.ts';
import type { ThreadPlan } from '../../kernel/core/plan.ts';
import {
  addUsage,
  type Cost,
  type MicroUsd,
  priceMicroUsd,
  toMicroUsd,
  totalTokens,
  toUsd,
  type Usage,
  usageSince,
} from '../../kernel/core/usage.ts';
import { foldContext } from '../../kernel/log/context.ts';
import { branchWithSummaryDrafts } from '../../kernel/log/continuation.ts';
import {
  filesAsDetails,
  filesOfDetails,
  filesTouched,
  mergeFiles,
  NO_FILES,
  summaryText,
} from '../../kernel/log/summary-prompt.ts';
import { isKnown, pathTo, type SessionTree, type TreeEntry } from '../../kernel/log/tree.ts';
import type { ApprovalEnv } from '../../kernel/threads/approval-port.ts';
import { entryAt } from '../../kernel/threads/open-session.ts';
import type { Configured, Process, Sources, Stored } from '../../kernel/threads/ports.ts';
import { planAtLeaf } from '../../kernel/threads/prepare/plan-at-head.ts';
import {
  type AskBeforeCompact,
  type CompactEnv,
  type CompactResult,
  compactionSizes,
  compactSession,
} from '../../kernel/threads/run/compaction.ts';
import { errorRulesOf } from '../../kernel/threads/run/loop-ports.ts';
import { Recorder } from '../../kernel/threads/run/recorder.ts';
import { summarizeMessages } from '../../kernel/threads/run/summary-pieces.ts';
import { openTooling } from '../../kernel/threads/run/tooling.ts';
import { costOf, editLog, firstDrafts, type LogEdit, type OpenEdit } from './edit.ts';
import { NO_CHILDREN } from './replay-world.ts';

/** The surroundings of the hooks and the model of an idle thread. */
type OfflineEnv = Stored & Process & Sources & Configured & ApprovalEnv;

/** Compacts the active branch of a thread that does not run, with its own model, hooks and budget. */
export async function compactThread(
  env: OfflineEnv,
  threadId: string,
  {
    instructions,
    signal,
  }: { readonly instructions?: string | undefined; readonly signal: AbortSignal },
): Promise<ManualCompaction> {
  let result: CompactResult | undefined;
  const written = await editLog(env, threadId, async (open): Promise<LogEdit> => {
    const plan = await planInForce(env, open);
    const bill = new Bill(open, plan);
    const { cost } = bill;
    result = await compactSession(
      {
        ...compactEnv(env, plan, offlineHooks(env, { open, plan })),
        hold: open.hold,
        book: bill.book,
      },
      {
        tree: open.tree,
        threadId,
        plan,
        model: plan.model,
        reason: 'manual',
        instructions,
        remainingMicroUsd: await remainingOf(env, open, plan),
        turn: cost.turns,
        cost,
      },
      signal,
    );
    if (!result) return { drafts: [] };
    return bill.edit(result.drafts, result.usage);
  });
  return outcomeOf(result, written);
}

function outcomeOf(
  result: CompactResult | undefined,
  written: readonly LogEvent[],
): ManualCompaction {
  switch (result?.kind) {
    case undefined:
      return { compacted: false, reason: 'the conversation is too short to gain anything' };
    case 'failed':
      throw result.error;
    case 'cancelled':
      return { compacted: false, reason: result.reason };
    case 'done': {
      const { summary, plan } = result;
      const entry_id = written.find((event) => event.event_type === 'compaction')?.id ?? '';
      return { compacted: true, entry_id, tokens_before: plan.tokensBefore, summary };
    }
  }
}

export interface SummarizedBranch {
  readonly at: string;
  readonly instructions?: string | undefined;
  /** A message that the new branch begins with. */
  readonly message?: string | undefined;
  readonly signal: AbortSignal;
}

/**
 * Moves the head and lets the thread's model summarize the abandoned branch, back to the common entry. A summary
 * that fails moves nothing; what it cost is booked.
 */
export async function branchWithModelSummary(
  env: OfflineEnv,
  threadId: string,
  { at, instructions, message, signal }: SummarizedBranch,
): Promise<readonly LogEvent[]> {
  let failure: RyeError | undefined;
  const written = await editLog(env, threadId, async (open): Promise<LogEdit> => {
    const { tree } = open;
    const target = entryAt(tree, at);
    const left = abandoned(tree, target);
    const plan = await planInForce(env, open);
    const ids = new Set(left.map(({ id }) => id));
    const context = foldContext(tree);
    const messages = context.messages.filter((_, index) => ids.has(context.sources[index] ?? ''));
    if (messages.length === 0) {
      throw new RyeError('usage', 'the branch to abandon has no conversation', {
        hint: 'Branch without a summary.',
      });
    }
    const { model } = plan;
    const bill = new Bill(open, plan);
    const answer = await summarizeMessages(
      {
        ...compactEnv(env, plan, offlineHooks(env, { open, plan })),
        hold: open.hold,
        book: bill.book,
        model,
        plan,
        sizes: compactionSizes(plan, model),
        remainingMicroUsd: await remainingOf(env, open, plan),
      },
      { kind: 'branch', messages, share: BRANCH_SHARE, instructions },
      signal,
    );
    const unbooked = usageSince(answer.booked, answer.usage);
    if ('error' in answer) {
      failure = answer.error;
      return bill.edit([], unbooked);
    }
    const files = left
      .map((entry) =>
        isKnown(entry, 'branch_summary') ? filesOfDetails(entry.payload.details) : NO_FILES,
      )
      .reduce(mergeFiles, filesTouched(messages));
    const drafts = branchWithSummaryDrafts(tree, target, {
      summary: summaryText({ history: answer.text }, files),
      details: { ...filesAsDetails(files), ...answer.details, usage: { ...answer.usage } },
    });
    const first = firstDrafts(tree, plan, { at, message });
    return bill.edit([...drafts, ...first], unbooked);
  });
  if (failure) throw failure;
  return written;
}

const BRANCH_SHARE = 0.5;

/** Returns the thread's plan with the model that the active branch set last. */
export async function planInForce(
  env: Pick<Stored, 'files'> & Pick<Sources, 'models' | 'rules'>,
  { document, tree }: Pick<OpenEdit, 'document' | 'tree'>,
): Promise<ThreadPlan> {
  const plan = await env.files.readPlan(document);
  return await planAtLeaf(env, plan, { tree, leafId: tree.leafId });
}

/** Returns the entries from the fork of the two paths to the head. */
function abandoned(tree: SessionTree, target: string | null): readonly TreeEntry[] {
  const kept = new Set(pathTo(tree, target).map(({ id }) => id));
  return pathTo(tree, tree.leafId).filter(({ id }) => !kept.has(id));
}

function compactEnv(
  env: Process & Pick<Sources, 'models'>,
  plan: ThreadPlan,
  ask: AskBeforeCompact,
): Omit<CompactEnv, 'book' | 'hold'> {
  return {
    clock: env.clock,
    random: env.random,
    errorRules: errorRulesOf(plan),
    traits: env.models.traits,
    provider: () => {
      if (env.models.traits(plan.model).replayable) throw noModel();
      return env.models.open(plan.model, plan);
    },
    about: env.models.about,
    ask,
  };
}

function noModel(): RyeError {
  return new RyeError(
    'literal_unsupported',
    'the thread ran without a model that could summarize',
    {
      hint: 'Give the text yourself: --summary TEXT, or a before_compact hook.',
    },
  );
}

/** Returns the remaining budget. The limit and budget of the thread and of its parent apply to model calls after its end too. */
async function remainingOf(
  env: Pick<Stored, 'store'>,
  { document }: OpenEdit,
  plan: ThreadPlan,
): Promise<MicroUsd> {
  const { ledger } = env.store;
  const { thread_id: id, parent_thread_id: parent } = document;
  const own = toMicroUsd(plan.limits.spend) - toMicroUsd(costOf(document).spend);
  return Math.min(
    own,
    await ledger.remaining(id),
    parent === null ? own : await ledger.remaining(parent),
  );
}

/** The thread's whole cost while an edit calls its model. */
class Bill {
  readonly #open: OpenEdit;
  readonly #plan: ThreadPlan;
  #cost: Cost;

  constructor(open: OpenEdit, plan: ThreadPlan) {
    this.#open = open;
    this.#plan = plan;
    this.#cost = costOf(open.document);
  }

  get cost(): Cost {
    return this.#cost;
  }

  readonly book = async (usage: Usage): Promise<void> => {
    await this.#open.book(this.edit([], usage));
  };

  /** Records the cost of an edit in the log too. */
  edit(drafts: readonly EventDraft[], usage: Usage): LogEdit {
    if (totalTokens(usage) === 0) return { drafts };
    const { pricing } = this.#plan.model;
    const price = pricing ? priceMicroUsd(usage, pricing) : 0;
    const total: Cost = {
      ...this.#cost,
      ...addUsage(this.#cost, usage),
      spend: toUsd(toMicroUsd(this.#cost.spend) + price),
    };
    this.#cost = total;
    const payload = { turn: total.turns, usage, total };
    return { drafts: [...drafts, { event_type: 'cost', payload }], cost: total };
  }
}

/**
 * Asks the `before_compact` hooks of an idle thread. Its tools are opened only if it has such hooks; what they run is
 * logged as in a running thread. They start no threads.
 */
function offlineHooks(
  env: OfflineEnv,
  { open, plan }: { readonly open: OpenEdit; readonly plan: ThreadPlan },
): AskBeforeCompact {
  return async (context, signal) => {
    const isAsked = plan.hooks.some(({ event, enabled }) => event === 'before_compact' && enabled);
    if (!isAsked) return { fired: [], drafts: [], instructions: [] };
    const { document, record, writer, begin } = open;
    const threadId = document.thread_id;
    await begin();
    const recorder = new Recorder({ writer, clock: env.clock, deltas: 'off' });
    const ended = { threadId, plan, record, document, parent: undefined };
    // the log grows with each edit that has hooks: two of them do not begin at one place
    const callPrefix = `hook-at-${writer.head.seq}-`;
    const { hooks, tools } = await openTooling(env, ended, recorder, {
      starter: NO_CHILDREN,
      approvals: env,
      callPrefix,
    });
    try {
      return await hooks.beforeCompact(context, signal);
    } finally {
      await tools.close();
    }
  };
}
