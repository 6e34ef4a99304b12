import type { EventPayloads, EventType, LogEvent } from '../../src/kernel/core/events.ts';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';

/** Returns an event of the log of thread `hello-1`. */
export function event<T extends EventType>(type: T, payload: EventPayloads[T], seq = 0): LogEvent {
  const envelope = { seq, timestamp: '2026-11-21T08:00:00.000Z', thread_id: 'hello-1' };
  return { ...envelope, event_type: type, payload } as LogEvent;
}

export const STARTED = event('thread_started', {
  directive: 'hello',
  model: 'large',
  provider: 'acme',
  limits: { turns: 25, tokens: 1_000_000, spend: 5 },
  integrity: 'verified',
  inputs: {},
});

/** Returns a complete message of the model. */
export function assistantMessage(text: string): LogEvent {
  const usage = { input_tokens: 1, output_tokens: 1, cache_read_tokens: 0, cache_write_tokens: 0 };
  return event('message', {
    message: {
      role: 'assistant',
      content: [{ type: 'text', text }],
      provider: 'acme',
      model: 'large',
      stop_reason: 'end',
      usage,
    },
  });
}

export const COMPLETED: ThreadResult = {
  success: true,
  thread_id: 'hello-1',
  directive: 'hello',
  status: 'completed',
  result: 'Hello, Ada.',
  cost: {
    ...NO_COST,
    turns: 1,
    input_tokens: 900,
    spend: 0.0125,
    elapsed_seconds: 1.5,
    own: { spend: 0.0125, tokens: 900, turns: 1 },
    total: { spend: 0.0125, tokens: 900, turns: 1 },
  },
  model: 'large',
  children: [],
  paths: { thread: '/p/t', transcript: '/p/t/transcript.jsonl', knowledge: '/p/k.md' },
};

export const LIMITED: ThreadResult = {
  ...COMPLETED,
  success: false,
  status: 'error',
  result: '',
  error: { code: 'limit_turns', message: 'all 25 turns are used', hint: 'Raise --limit turns.' },
};
