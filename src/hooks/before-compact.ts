import type { HookDeclaration } from '../core/hook.ts';
import { isJsonObject, isRecord, type JsonObject } from '../core/json.ts';
import type { DispatchReport } from './dispatch.ts';
import {
  type ActionOutcome,
  type DispatchOptions,
  type Fired,
  type HookCall,
  hooksOf,
  isInfra,
  runHook,
} from './run-hook.ts';

/** What a hook puts in the place of the planned compaction: a summary, a cut, or both. */
export interface SuppliedCompaction {
  /** The hook that gave it. */
  readonly hook: string;
  /** Absent: the model summarises. */
  readonly summary?: string;
  readonly details?: JsonObject;
  /** The first entry that stays in full, not yet checked; absent: the planned one. */
  readonly first_kept_entry_id?: string;
}

/** What the `before_compact` hooks came to: at most one of a cancellation, a failure and a replacement. */
export interface CompactReport extends DispatchReport {
  /** Why there is to be no compaction now. */
  readonly cancelled?: string;
  /** Why what a hook gave can't be used; there is no compaction then either. */
  readonly failed?: string;
  readonly supplied?: SuppliedCompaction;
  /** What the summary is to attend to, in the order of the hooks. */
  readonly instructions: readonly string[];
}

/**
 * `before_compact`: every matching hook runs in order until one decides. A control action `compact` adds its
 * instructions, any other cancels; an item whose structured output is `{compaction: {summary?, details?,
 * first_kept_entry_id?}}` replaces the planned one; texts are instructions. A failing hook is recorded and passed over,
 * unless it says `on_error: fail`; one that took the decision and gave something malformed stops the compaction.
 */
export async function dispatchBeforeCompact(
  hooks: readonly HookDeclaration[],
  call: HookCall,
  options: DispatchOptions,
): Promise<CompactReport> {
  const fired: Fired[] = [];
  const drafts: DispatchReport['drafts'][number][] = [];
  const instructions: string[] = [];
  let decided: Decision | undefined;
  for (const hook of hooksOf(hooks, call.event)) {
    if (decided !== undefined && !isInfra(hook)) continue;
    let supplied: Decision | undefined;
    const ran = await runHook(hook, call, {
      ...options,
      runAction: async (...action): Promise<ActionOutcome> => {
        const outcome = await options.runAction(...action);
        const found = suppliedBy(hook.id, outcome);
        if (found === undefined) return outcome;
        supplied = found;
        // what replaces the compaction is no instruction as well
        const { content: _replacement, ...rest } = outcome;
        return rest;
      },
    });
    fired.push(ran.fired);
    drafts.push(...ran.drafts);
    if (options.signal.aborted) break;
    if (ran.failure !== undefined) {
      if (hook.on_error === 'fail') {
        decided ??= { cancelled: `hook ${hook.id} failed: ${ran.failure.message}` };
      }
      continue;
    }
    instructions.push(...ran.contents.map(({ content }) => content));
    if (isInfra(hook)) continue;
    if (ran.control?.control === 'compact') {
      if (ran.control.instructions !== undefined) instructions.push(ran.control.instructions);
    } else if (ran.control !== undefined) {
      decided = { cancelled: `hook ${hook.id} decided ${ran.control.control}` };
    } else if (supplied !== undefined) {
      decided = supplied;
    }
  }
  return { ...decided, fired, drafts, instructions };
}

type Decision = Pick<CompactReport, 'cancelled' | 'failed' | 'supplied'>;

function suppliedBy(hook: string, { data }: ActionOutcome): Decision | undefined {
  if (!isRecord(data) || !Object.hasOwn(data, 'compaction')) return undefined;
  const problem = compactionProblem(data['compaction']);
  if (problem !== undefined) return { failed: `hook ${hook} gave a compaction that ${problem}` };
  return { supplied: { ...(data['compaction'] as Omit<SuppliedCompaction, 'hook'>), hook } };
}

const MEMBERS: ReadonlySet<string> = new Set(['summary', 'details', 'first_kept_entry_id']);

function compactionProblem(given: unknown): string | undefined {
  if (!isRecord(given)) return 'is no object';
  const unknown = Object.keys(given).find((name) => !MEMBERS.has(name));
  if (unknown !== undefined) return `has an unknown member "${unknown}"`;
  const { summary, details, first_kept_entry_id: first } = given;
  if (summary === undefined && first === undefined) {
    return 'has neither a summary nor a first_kept_entry_id';
  }
  if (summary !== undefined && !isText(summary)) return 'has a summary that is no text';
  if (first !== undefined && !isText(first)) return 'has a first_kept_entry_id that is no entry id';
  if (details !== undefined && !isJsonObject(details)) return 'has details that are no object';
  return undefined;
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value.trim() !== '';
}
