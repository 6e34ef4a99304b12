import type { LogEvent, UnknownEvent } from '../core/events.ts';
import { compact } from '../core/json.ts';
import { originalCostOf, timeOf } from '../core/original.ts';
import { toMicroUsd, toUsd } from '../core/usage.ts';
import { isKnown } from './tree.ts';

/** The price and the time of one answer of the model. */
export interface TurnFacts {
  /** USD, also of an imported answer, which was paid for before rye had it; absent while it is not known. */
  readonly spend?: number;
  /** Seconds from the entry before it; absent in logs without times. */
  readonly seconds?: number;
}

/** Returns the price and the time of each answer, by the ID of its entry. */
export function turnFacts(
  events: readonly (LogEvent | UnknownEvent)[],
): ReadonlyMap<string, TurnFacts> {
  const facts = new Map<string, TurnFacts>();
  let before = Number.NaN;
  let answer: string | undefined;
  let spent = 0;
  for (const event of events) {
    if (event.event_type === 'run_started') before = globalThis.Date.parse(event.timestamp);
    if (isKnown(event, 'cost')) {
      // a foreign log may have anything for a total
      const { spend } = { ...event.payload.total };
      if (answer !== undefined && Number.isFinite(spend)) {
        const own = toUsd(Math.max(0, toMicroUsd(spend) - toMicroUsd(spent)));
        facts.set(answer, { ...facts.get(answer), spend: own });
      }
      if (Number.isFinite(spend)) spent = spend;
      answer = undefined;
    }
    if (event.id === undefined) continue;
    const now = globalThis.Date.parse(timeOf(event));
    if (isKnown(event, 'message') && event.payload.message.role === 'assistant') {
      answer = event.id;
      const seconds = (now - before) / 1000;
      const spend = originalCostOf(event);
      facts.set(answer, compact({ spend, seconds: seconds >= 0 ? seconds : undefined }));
    }
    before = now;
  }
  return facts;
}
