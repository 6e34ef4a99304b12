import { type AssistantMessage, toolCallsOf } from '../../core/message.ts';
import { timeOf } from '../../core/original.ts';
import {
  addUsage,
  type Cost,
  NO_COST,
  NO_USAGE,
  type SessionCost,
  totalTokens,
  type Usage,
} from '../../core/usage.ts';
import { isKnown } from '../../log/tree.ts';
import type { ExportSource } from '../source.ts';
import { numberOr } from './annotations.ts';

/** The sums of a thread. */
export interface Totals {
  readonly cost: Cost;
  /** Number of messages of people and of the model, on all branches. */
  readonly messages: number;
  readonly toolCalls: number;
  /** `provider/model` in order of first use. */
  readonly models: readonly string[];
  /** Times of the first and the last entry. */
  readonly from: string;
  readonly to: string;
}

/** Sums up a thread; the cost of an imported one includes that of its session. */
export function totalsOf({ tree, facts }: ExportSource): Totals {
  const models = new Set<string>();
  let messages = 0;
  let toolCalls = 0;
  let turns = 0;
  let counted: Usage = NO_USAGE;
  for (const entry of tree.entries) {
    const message = isKnown(entry, 'message') ? entry.payload.message : undefined;
    if (message?.role === 'user') messages += 1;
    if (message?.role !== 'assistant') continue;
    messages += 1;
    turns += 1;
    counted = addUsage(counted, soundUsage(message));
    models.add(`${message.provider}/${message.model}`);
    toolCalls += Array.isArray(message.content) ? toolCallsOf(message).length : 0;
  }
  const { cost = NO_COST, created_at: createdAt, imported_from: origin } = facts.document;
  const total = totalOf(cost, origin?.cost);
  const times = tree.entries.map(timeOf).filter((time) => /^\d{4}-\d\d-\d\dT/.test(time));
  const least = times.reduce((first, time) => (time < first ? time : first), times[0] ?? createdAt);
  return {
    // older imports and damaged threads have no totals
    cost: totalTokens(total) === 0 ? { ...total, ...counted, turns } : total,
    messages,
    toolCalls,
    models: [...models],
    from: origin?.started_at ?? least,
    to: times.reduce((last, time) => (time > last ? time : last), times[0] ?? facts.finishedAt),
  };
}

/** The usage of an answer; a foreign log may have anything. */
function soundUsage({ usage }: AssistantMessage): Usage {
  return {
    input_tokens: numberOr(usage?.input_tokens),
    output_tokens: numberOr(usage?.output_tokens),
    cache_read_tokens: numberOr(usage?.cache_read_tokens),
    cache_write_tokens: numberOr(usage?.cache_write_tokens),
  };
}

function totalOf(own: Cost, original: SessionCost | undefined): Cost {
  if (!original) return own;
  const { turns, spend } = original;
  return { ...own, ...addUsage(own, original), turns: own.turns + turns, spend: own.spend + spend };
}
