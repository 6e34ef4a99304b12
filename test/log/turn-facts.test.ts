import { expect, it } from 'vitest';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { NO_COST, NO_USAGE } from '../../src/kernel/core/usage.ts';
import { turnFacts } from '../../src/kernel/log/turn-facts.ts';

let seq = 0;
function event(type: string, second: number, payload: object, id?: string): LogEvent {
  seq += 1;
  const timestamp = new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
  const place = id === undefined ? {} : { id, parent_id: null };
  return { seq, timestamp, thread_id: 't', event_type: type, payload, ...place } as LogEvent;
}
const said = (id: string, second: number, role = 'assistant') =>
  event('message', second, { message: { role, content: [] } }, id);
const cost = (spend: number) =>
  event('cost', 0, { turn: 1, usage: NO_USAGE, total: { ...NO_COST, spend } });

it('gives each answer its own price, and its time since the entry before it', () => {
  const facts = turnFacts([
    said('q', 1, 'user'),
    said('a', 3),
    cost(0.01),
    said('r', 10, 'tool_result'),
    said('b', 14),
    cost(0.03),
    event('run_started', 60, { run: 2 }),
    said('c', 61),
  ]);
  expect([...facts]).toEqual([
    ['a', { seconds: 2, spend: 0.01 }],
    ['b', { seconds: 4, spend: 0.02 }],
    ['c', { seconds: 1 }],
  ]);
});

it('omits times that are unknown or run backwards', () => {
  expect([...turnFacts([said('a', 5), said('b', 1)])]).toEqual([
    ['a', {}],
    ['b', {}],
  ]);
});
