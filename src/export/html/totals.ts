import { toolCallsOf } from '../../core/message.ts';
import { timeOf } from '../../core/original.ts';
import { addUsage, type Cost, NO_COST, type SessionCost } from '../../core/usage.ts';
import { isKnown } from '../../log/tree.ts';
import type { ExportSource } from '../source.ts';

/** What a thread amounts to. */
export interface Totals {
  readonly cost: Cost;
  /** Of people and of the model, on all branches. */
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
  let first = '';
  let last = '';
  for (const entry of tree.entries) {
    const time = timeOf(entry);
    if (/^\d{4}-\d\d-\d\dT/.test(time)) {
      if (first === '' || time < first) first = time;
      if (time > last) last = time;
    }
    if (!isKnown(entry, 'message')) continue;
    const { message } = entry.payload;
    if (message?.role === 'user' || message?.role === 'assistant') messages += 1;
    if (message?.role !== 'assistant') continue;
    models.add(`${message.provider}/${message.model}`);
    toolCalls += Array.isArray(message.content) ? toolCallsOf(message).length : 0;
  }
  const { cost = NO_COST, created_at: createdAt, imported_from: origin } = facts.document;
  return {
    cost: totalOf(cost, origin?.cost),
    messages,
    toolCalls,
    models: [...models],
    from: origin?.started_at ?? (first === '' ? createdAt : first),
    to: last === '' ? facts.finishedAt : last,
  };
}

function totalOf(own: Cost, original: SessionCost | undefined): Cost {
  if (!original) return own;
  const { turns, spend } = original;
  return { ...own, ...addUsage(own, original), turns: own.turns + turns, spend: own.spend + spend };
}
