import { describe, expect, it } from 'vitest';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { Recorder } from '../../src/kernel/threads/run/recorder.ts';
import { describeStore } from '../../testing/conformance/store.ts';
import { headerFor, testKey, userMessage } from '../log/support.ts';
import { countingIds, stoppedClock } from './support.ts';

function open(onSync?: () => Promise<void>): Store {
  const options = { clock: stoppedClock, ids: countingIds() };
  return openMemoryStore(onSync ? { ...options, onSync } : options);
}

describeStore('memory', openMemoryStore);
describeStore('memory with an asynchronous sync', async () => open(() => Promise.resolve()));

/** A sync that waits until the test lets it finish. */
function gate() {
  const waiting: { resolve: () => void; reject: (error: Error) => void }[] = [];
  const sync = (): Promise<void> =>
    new Promise((resolve, reject) => {
      waiting.push({ resolve, reject });
    });
  return { waiting, sync };
}

async function recording(sync: () => Promise<void>) {
  const { logs, owners } = open(sync);
  const { signer } = testKey();
  const options = { signer, durability: 'turn', owner: owners.self(), epoch: 1 } as const;
  const writer = await logs.create(headerFor('t-1'), options);
  const shown: string[] = [];
  const recorder = new Recorder({
    writer,
    clock: stoppedClock,
    deltas: 'off',
    onEvent: ({ event_type }: LogEvent) => shown.push(event_type),
  });
  return { logs, recorder, shown };
}

const START = {
  event_type: 'tool_call_start',
  payload: { call_id: 'c', tool: 't', name: 't', input: {}, turn: 1 },
  durable: true,
} as const;

describe('an asynchronous sync', () => {
  it('shows a durable event, and all later ones, only after it has finished', async () => {
    const { waiting, sync } = gate();
    const { logs, recorder, shown } = await recording(sync);
    recorder.record([START]);
    recorder.record([userMessage('later')]);
    let isSettled = false;
    const settled = recorder.settled().then(() => {
      isSettled = true;
      return undefined;
    });
    // in the log, but not visible
    expect((await logs.read('t-1')).events.map(({ event_type }) => event_type)).toContain(
      'tool_call_start',
    );
    expect(shown).toEqual([]);
    expect(isSettled).toBe(false);
    for (const { resolve } of waiting.splice(0)) resolve();
    await settled;
    expect(shown).toEqual(['tool_call_start', 'checkpoint', 'message', 'checkpoint']);
  });

  it('returns the end of the log from a checkpoint only after it has finished', async () => {
    const { waiting, sync } = gate();
    const { recorder, shown } = await recording(sync);
    recorder.record([userMessage('one')]);
    expect(shown).toEqual(['message', 'checkpoint']);
    let head: unknown;
    const done = recorder.checkpoint().then((found) => {
      head = found;
      return undefined;
    });
    await Promise.resolve();
    expect(head).toBeUndefined();
    for (const { resolve } of waiting.splice(0)) resolve();
    await done;
    expect(head).toMatchObject({ seq: 3 });
  });

  it('fails the recorder, and shows nothing, when it rejects', async () => {
    const { waiting, sync } = gate();
    const { recorder, shown } = await recording(sync);
    recorder.record([START]);
    for (const { reject } of waiting.splice(0)) reject(new Error('connection lost'));
    await expect(recorder.settled()).rejects.toMatchObject({ code: 'log_write_failed' });
    expect(() => recorder.record([userMessage('more')])).toThrow('connection lost');
    expect(shown).toEqual([]);
  });

  it('keeps the log open until each sync that has begun is over', async () => {
    const { waiting, sync } = gate();
    const { logs, owners } = open(sync);
    const { signer } = testKey();
    const options = { signer, durability: 'turn', owner: owners.self(), epoch: 1 } as const;
    const writer = await logs.create(headerFor('t-1'), options);
    const first = writer.sync();
    writer.append([userMessage('one')]);
    const second = writer.sync();
    const closed = writer.close();
    expect(waiting).toHaveLength(2);
    waiting[1]?.resolve();
    await Promise.resolve();
    expect(await logs.holder('t-1')).toBeDefined();
    waiting[0]?.resolve();
    await Promise.all([first, second, closed]);
    expect(await logs.holder('t-1')).toBeUndefined();
  });
});
