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

/** A summary that a hook supplies in the place of the model's. */
export interface SuppliedSummary {
  readonly summary: string;
  readonly details?: JsonObject;
}

/** What the `before_compact` hooks came to: at most one of a cancellation and a supplied summary. */
export interface CompactReport extends DispatchReport {
  /** Why there is to be no compaction now. */
  readonly cancelled?: string;
  readonly supplied?: SuppliedSummary;
  /** What the summary is to attend to, in the order of the hooks. */
  readonly instructions: readonly string[];
}

/**
 * `before_compact`: every matching hook runs in order until one decides. A control action `compact` adds its
 * instructions, any other cancels; an item whose structured output is `{compaction: {summary, details?}}` supplies the
 * summary; texts are instructions. A failing hook is recorded and passed over, unless it says `on_error: fail`.
 */
export async function dispatchBeforeCompact(
  hooks: readonly HookDeclaration[],
  call: HookCall,
  options: DispatchOptions,
): Promise<CompactReport> {
  const fired: Fired[] = [];
  const drafts: DispatchReport['drafts'][number][] = [];
  const instructions: string[] = [];
  let decided: Pick<CompactReport, 'cancelled' | 'supplied'> | undefined;
  for (const hook of hooksOf(hooks, call.event)) {
    if (decided !== undefined && !isInfra(hook)) continue;
    let supplied: SuppliedSummary | undefined;
    const ran = await runHook(hook, call, {
      ...options,
      runAction: async (...action): Promise<ActionOutcome> => {
        const outcome = await options.runAction(...action);
        const found = suppliedBy(outcome);
        if (found === undefined) return outcome;
        supplied = found;
        // the summary is no instruction as well
        const { content: _summary, ...rest } = outcome;
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
      decided = { supplied };
    }
  }
  return { ...decided, fired, drafts, instructions };
}

function suppliedBy({ data }: ActionOutcome): SuppliedSummary | undefined {
  const compaction = isRecord(data) ? data['compaction'] : undefined;
  if (!isRecord(compaction)) return undefined;
  const { summary, details } = compaction;
  if (typeof summary !== 'string' || summary.trim() === '') return undefined;
  return { summary, ...(isJsonObject(details) ? { details } : {}) };
}
