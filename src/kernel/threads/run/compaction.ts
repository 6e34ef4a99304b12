import type { Clock } from '../../core/clock.ts';
import { RyeError } from '../../core/errors.ts';
import type { EventDraft, EventPayloads, RequestEstimate } from '../../core/events.ts';
import { compact, type JsonObject } from '../../core/json.ts';
import type { Message } from '../../core/message.ts';
import type { PlannedModel, ThreadPlan } from '../../core/plan.ts';
import { type Cost, type MicroUsd, NO_USAGE, type Usage, usageSince } from '../../core/usage.ts';
import type { CompactReport } from '../../hooks/dispatch.ts';
import {
  type CompactionPlan,
  type CompactionSizes,
  fittingSizes,
  planCompaction,
} from '../../log/compaction.ts';
import { foldContext, startedCallIds } from '../../log/context.ts';
import { placeEvent } from '../../log/cursor.ts';
import { filesAsDetails } from '../../log/summary-prompt.ts';
import { buildTree, type SessionTree } from '../../log/tree.ts';
import type { Compaction, CompactionReason, LoopPorts } from '../../loop/ports.ts';
import type { ErrorRule } from '../../policy/error-class.ts';
import type { ModelProvider, ProviderTraits } from '../../providers/provider.ts';
import type { ModelSource, Process, Sources, Stored } from '../ports.ts';
import { readSigned } from '../verified-log.ts';
import { firedDraft, type HookRunner } from './hook-runner.ts';
import { errorRulesOf } from './loop-ports.ts';
import type { Recorder } from './recorder.ts';
import type { StartedThread } from './start.ts';
import { summarizeParts } from './summary-pieces.ts';

/** Asks the `before_compact` hooks; the context is that of the event. */
export type AskBeforeCompact = (context: JsonObject, signal: AbortSignal) => Promise<CompactReport>;

export interface CompactRequest {
  readonly tree: SessionTree;
  readonly threadId: string;
  readonly plan: ThreadPlan;
  readonly model: PlannedModel;
  readonly reason: CompactionReason;
  readonly instructions?: string | undefined;
  /** The context's tokens, if they were counted. */
  readonly tokens?: number | undefined;
  readonly remainingMicroUsd: MicroUsd;
  readonly turn: number;
  readonly cost: Cost;
}

export interface CompactEnv {
  readonly clock: Clock;
  readonly random: () => number;
  readonly errorRules: readonly ErrorRule[];
  readonly traits: (model: PlannedModel) => ProviderTraits;
  readonly provider: () => ModelProvider;
  readonly ask: AskBeforeCompact;
  /** Sets aside what a request for a summary may use at most, before it is sent; false if the budget does not have it. */
  readonly hold: (estimate: RequestEstimate) => Promise<boolean>;
  /** Called before each request for a summary with what it may use at most. */
  readonly onRequest?: (estimate: RequestEstimate) => void | Promise<void>;
  /** Called before each wait for another attempt. */
  readonly onRetry?: (wait: EventPayloads['retry_scheduled']) => void | Promise<void>;
  readonly about?: ModelSource['about'];
  /** Books a request for a piece of the summary that others follow. */
  readonly book: (usage: Usage) => Promise<void>;
}

/** The result of a compaction. `drafts` are written in each case; only with `done` do they change the context. */
export type CompactResult = {
  readonly drafts: readonly EventDraft[];
  /** Usage that is not booked. */
  readonly usage: Usage;
} & (
  | { readonly kind: 'done'; readonly summary: string; readonly plan: CompactionPlan }
  | { readonly kind: 'cancelled'; readonly reason: string }
  | { readonly kind: 'failed'; readonly error: RyeError }
);

const DEFAULT_RESERVE = 16_384;
const DEFAULT_KEEP = 20_000;

/** The sizes that the configuration sets, as far as the model's window has room for them. */
export function compactionSizes(
  { settings }: ThreadPlan,
  { context_window: contextWindow }: PlannedModel,
): CompactionSizes {
  const { reserve_tokens: reserve, keep_recent_tokens: keep } = settings.context_limit;
  return fittingSizes({
    contextWindow,
    reserveTokens: reserve ?? DEFAULT_RESERVE,
    keepRecentTokens: keep ?? DEFAULT_KEEP,
  });
}

/**
 * Plans a compaction, asks the hooks, lets the model summarize, and returns the events to write; writes nothing. Never
 * rejects for a model or a hook. undefined: there is nothing to gain.
 */
export async function compactSession(
  env: CompactEnv,
  request: CompactRequest,
  signal: AbortSignal,
): Promise<CompactResult | undefined> {
  const { tree, plan, model, tokens } = request;
  const sizes = compactionSizes(plan, model);
  const planned = planCompaction(tree, { sizes, tokens });
  if (!planned) return undefined;
  const report = await env.ask(compactContext(request, planned), signal);
  const drafts = [...report.fired.map(firedDraft), ...report.drafts];
  if (report.cancelled !== undefined) {
    return { kind: 'cancelled', reason: report.cancelled, drafts, usage: NO_USAGE };
  }
  const made = afterHooks(report, planned, (firstKept) =>
    planCompaction(tree, { sizes, tokens, firstKept }),
  );
  if (made instanceof RyeError) return { kind: 'failed', error: made, drafts, usage: NO_USAGE };
  const summary = await summaryOf(env, request, { planned: made, sizes, report }, signal);
  return { ...summary, drafts: [...drafts, ...summary.drafts] };
}

/** The planned compaction with the cut that a hook chose; an error for a replacement that can't be used. */
function afterHooks(
  { failed, supplied }: CompactReport,
  planned: CompactionPlan,
  replan: (firstKept: string) => CompactionPlan | undefined,
): CompactionPlan | RyeError {
  if (failed !== undefined) return new RyeError('hook_failed', failed);
  const first = supplied?.first_kept_entry_id;
  if (first === undefined) return planned;
  return (
    replan(first) ??
    new RyeError(
      'hook_failed',
      `hook ${supplied?.hook} chose the first kept entry ${first}, where the context can't be cut`,
      { hint: 'The context of before_compact lists the entries that can be chosen as cut_points.' },
    )
  );
}

interface ChosenCompaction {
  readonly planned: CompactionPlan;
  readonly sizes: CompactionSizes;
  readonly report: CompactReport;
}

/** Returns the summary of a hook, or else of the model. */
async function summaryOf(
  env: CompactEnv,
  request: CompactRequest,
  { planned, sizes, report }: ChosenCompaction,
  signal: AbortSignal,
): Promise<CompactResult> {
  const { model, plan, remainingMicroUsd, reason } = request;
  const { summary, details: own } = report.supplied ?? {};
  const details: JsonObject = { ...filesAsDetails(planned.files), ...own, reason };
  if (summary !== undefined) {
    const { usage: _ofNoModel, ...told } = details;
    const entry = compactionDraft(planned, summary, { ...told, from_hook: true });
    return { kind: 'done', summary, plan: planned, drafts: [entry], usage: NO_USAGE };
  }
  const instructions = [request.instructions, ...report.instructions].filter(
    (text) => text !== undefined,
  );
  const answer = await summarizeParts(
    { ...env, model, sizes, plan, remainingMicroUsd },
    {
      planned,
      instructions: instructions.length === 0 ? undefined : instructions.join('\n\n'),
    },
    signal,
  );
  const usage = usageSince(answer.booked, answer.usage);
  if ('error' in answer) return { kind: 'failed', error: answer.error, drafts: [], usage };
  const entry = compactionDraft(planned, answer.text, {
    ...details,
    ...answer.details,
    usage: { ...answer.usage },
  });
  return { kind: 'done', summary: answer.text, plan: planned, drafts: [entry], usage };
}

function compactionDraft(
  { firstKeptEntryId, protectedIds, tokensBefore }: CompactionPlan,
  summary: string,
  details: JsonObject,
): EventDraft {
  return {
    event_type: 'compaction',
    payload: {
      summary,
      first_kept_entry_id: firstKeptEntryId,
      tokens_before: tokensBefore,
      ...(protectedIds.length === 0 ? {} : { protected_entry_ids: protectedIds }),
      details,
    },
    durable: true,
  };
}

/** The context of `before_compact`. */
export function compactContext(
  request: Omit<CompactRequest, 'tree' | 'plan' | 'remainingMicroUsd'>,
  planned: CompactionPlan,
): JsonObject {
  const { threadId, turn, cost, model, reason, instructions } = request;
  const { context_window: window } = model;
  return compact({
    thread_id: threadId,
    turn,
    cost: { ...cost },
    tokens_before: planned.tokensBefore,
    tokens_limit: window,
    usage_ratio: window > 0 ? Math.round((planned.tokensBefore / window) * 1000) / 1000 : 0,
    reason,
    first_kept_entry_id: planned.firstKeptEntryId,
    cut_points: planned.cutPoints,
    messages: planned.history.length + planned.turnPrefix.length,
    split_turn: planned.turnPrefix.length > 0,
    previous_summaries: planned.previousSummaries,
    files: filesAsDetails(planned.files),
    instructions,
  });
}

/** The first words of the note about a failed compaction. */
export const NOT_COMPACTED = 'the context was not compacted';

/**
 * Compaction for the loop: folds the log that is on the disk, so that the context after it is what a resume
 * would see. It reads the log once per compaction, not per turn.
 */
export function compactPort(
  env: Stored & Process & Pick<Sources, 'models'>,
  { plan, threadId }: StartedThread,
  { hooks, recorder }: { readonly hooks: HookRunner; readonly recorder: Recorder },
  provider: (model: PlannedModel) => ModelProvider,
): NonNullable<LoopPorts['compact']> {
  return async (request, signal): Promise<Compaction | undefined> => {
    recorder.sign();
    const events = await readSigned(env, threadId);
    const tree = buildTree(events);
    const result = await compactSession(
      {
        clock: env.clock,
        random: env.random,
        errorRules: errorRulesOf(plan),
        traits: env.models.traits,
        provider: () => provider(request.model),
        ask: (context, asked) => hooks.beforeCompact(context, asked),
        // on the disk before it is sent: a crash must not forget what it may cost
        onRequest: async (estimate) => {
          const { turn } = request;
          const payload = { turn, purpose: 'summary', request: estimate } as const;
          recorder.record([{ event_type: 'request_started', payload, durable: true }]);
          await recorder.settled();
        },
        onRetry: async (payload) => {
          recorder.record([{ event_type: 'retry_scheduled', payload }]);
          await recorder.settled();
        },
        about: env.models.about,
        hold: request.hold,
        book: request.book,
      },
      { ...request, tree, threadId, plan },
      signal,
    );
    if (!result) return undefined;
    const { usage } = result;
    if (result.kind !== 'done') {
      const why = result.kind === 'failed' ? result.error.message : result.reason;
      const text = `${NOT_COMPACTED}: ${why}`;
      return { drafts: [...result.drafts, { event_type: 'note', payload: { text } }], usage };
    }
    const drafts = result.drafts.map(
      (draft): EventDraft =>
        draft.event_type === 'compaction' ? { ...draft, id: env.ids.entryId() } : draft,
    );
    return { drafts, usage, messages: contextAfter(events, drafts, tree.leafId) };
  };
}

/** The context as a reader of the log will fold it once the drafts are written. */
function contextAfter(
  events: Parameters<typeof buildTree>[0],
  drafts: readonly EventDraft[],
  leafId: string | null,
): readonly Message[] {
  let cursor = { seq: events.at(-1)?.seq ?? 0, leafId };
  let made = 0;
  const added = drafts.map((draft) => {
    const placed = placeEvent(cursor, draft, {
      threadId: '',
      timestamp: '',
      entryId: () => {
        made += 1;
        return `new-${made}`;
      },
    });
    cursor = placed.cursor;
    return placed.event;
  });
  const all = [...events, ...added];
  return foldContext(buildTree(all), { startedCalls: startedCallIds(all) }).messages;
}
