import { expect, test } from 'vitest';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { openLiveExport } from '../../src/kernel/threads/run/live-export.ts';

/** A thread whose export is followed; `pass` lets the moment pass after which the file is opened. */
async function followed() {
  const written: string[] = [];
  let closed = 0;
  let pass: () => void = () => undefined;
  const clock = {
    now: () => 0,
    monotonic: () => 0,
    sleep: async (_: number, signal?: AbortSignal) =>
      await new Promise<void>((resolve) => {
        pass = resolve;
        signal?.addEventListener('abort', () => resolve());
      }),
  };
  const file = { append: (text: string) => void written.push(text), close: () => void closed++ };
  const env = {
    clock,
    renderer: { liveHead: () => 'head\n', entry: () => [] },
    files: { knowledgePath: () => 'x.md', openExport: async () => file },
    store: {},
  } as unknown as Parameters<typeof openLiveExport>[0];
  const started = {
    document: { thread_id: 't' },
    plan: { directive: { id: 'd', description: '' } },
  } as unknown as Parameters<typeof openLiveExport>[1];
  const live = await openLiveExport(env, started, false);
  return { live, written, closed: () => closed, pass: () => pass() };
}

function delta(text: string): LogEvent {
  return { event_type: 'token_delta', payload: { text } } as LogEvent;
}

async function settled(): Promise<void> {
  await new Promise((resolve) => {
    setImmediate(resolve);
  });
}

test('the export of a running thread begins after a moment, with all that came before it', async () => {
  const { live, written, closed, pass } = await followed();
  live.append(delta('one '));
  live.append(delta('two '));
  await settled();
  expect(written).toEqual([]);
  pass();
  await settled();
  live.append(delta('three'));
  expect(written.join('')).toBe('head\n\n## Turn 0\n\none two three');
  live.close();
  live.append(delta('late'));
  expect(written.join('')).not.toContain('late');
  expect(closed()).toBe(1);
});

test('a thread that ends within that moment has no file but its signed entry', async () => {
  const { live, written, closed } = await followed();
  live.append(delta('one'));
  live.close();
  await settled();
  expect([written, closed()]).toEqual([[], 0]);
});

test('each answer has its own heading, also after one that came in pieces', async () => {
  const { live, written, pass } = await followed();
  const answer = { role: 'assistant', content: [{ type: 'text', text: 'said' }] };
  for (const turn of [1, 2]) {
    live.append({ event_type: 'turn_started', payload: { turn } } as LogEvent);
    live.append(delta('said'));
    live.append({
      event_type: 'message',
      payload: { message: answer, turn },
    } as unknown as LogEvent);
  }
  pass();
  await settled();
  expect(written.join('')).toBe('head\n\n## Turn 1\n\nsaid\n\n## Turn 2\n\nsaid\n');
  live.close();
});
