import { expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import type { LogWriter } from '../../src/kernel/storage/store.ts';
import { Recorder } from '../../src/kernel/threads/run/recorder.ts';
import { headerFor, testKey } from '../log/support.ts';
import { VirtualClock } from '../loop/scripted.ts';
import { countingIds } from '../storage/support.ts';

const TURN: EventDraft = { event_type: 'turn_started', payload: { turn: 1 }, durable: true };

function piece(text: string): EventDraft {
  return { event_type: 'token_delta', payload: { text } };
}

it('signs the first text of an answer at once, and the rest within a second though nothing follows', async () => {
  const clock = new VirtualClock({ auto: false });
  const { logs, owners } = openMemoryStore({ clock, ids: countingIds() });
  const owner = { owner: owners.self(), epoch: 1 };
  const { signer } = testKey();
  const writer = await logs.create(headerFor('t-1'), { signer, durability: 'turn', ...owner });
  const recorder = new Recorder({ writer, clock, deltas: 'every' });
  for (const answer of [1, 2]) {
    recorder.record([TURN]);
    recorder.record([{ event_type: 'thinking_delta', payload: { text: 'hm' } }]);
    expect(writer.isSigned, `thought ${answer}`).toBe(false);
    recorder.record([piece('One ')]);
    expect(writer.isSigned, `first text ${answer}`).toBe(true);
    recorder.record([piece('two ')]);
    recorder.record([piece('three ')]);
    expect(writer.isSigned, `more text ${answer}`).toBe(false);
    clock.advance(1000);
    await new Promise(setImmediate);
    expect(writer.isSigned, `a second later ${answer}`).toBe(true);
  }
  await writer.close();
});

function answerOf(stop: 'end' | 'aborted'): EventDraft {
  const content = [{ type: 'text', text: 'One two' }] as const;
  const origin = { provider: 'p', model: 'm', usage: NO_USAGE };
  return {
    event_type: 'message',
    payload: { turn: 1, message: { role: 'assistant', content, stop_reason: stop, ...origin } },
  };
}

it.each(['end', 'aborted'] as const)(
  'subscribers hear all pieces before an answer that came at once: %s',
  async (stop) => {
    const clock = new VirtualClock({ auto: false });
    const { logs, owners } = openMemoryStore({ clock, ids: countingIds() });
    const owner = { owner: owners.self(), epoch: 1 };
    const { signer } = testKey();
    const writer = await logs.create(headerFor('t-1'), { signer, durability: 'turn', ...owner });
    const shown: EventDraft['event_type'][] = [];
    const onEvent = ({ event_type: type }: { event_type: EventDraft['event_type'] }) =>
      shown.push(type);
    const recorder = new Recorder({ writer, clock, deltas: 'coalesced', onEvent });
    recorder.record([piece('One '), piece('two')]);
    recorder.record([{ event_type: 'toolcall_delta', payload: { call_id: 'c', json: '{}' } }]);
    recorder.record([answerOf(stop)]);
    // nothing of it comes later
    clock.advance(50);
    await new Promise(setImmediate);
    recorder.flush();
    expect(shown.filter((type) => type !== 'checkpoint')).toEqual([
      'token_delta',
      'toolcall_delta',
      'message',
    ]);
    await writer.close();
  },
);

/** The disk is full once `how` is set: this method of the writer fails from then on. */
interface Fault {
  how?: 'append' | 'checkpoint' | 'sync' | 'late sync' | undefined;
}

function withFault(writer: LogWriter, fault: Fault): LogWriter {
  const full = new Error('no space left on device');
  return new Proxy(writer, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name, target);
      if (typeof found !== 'function') return found;
      return (...args: readonly unknown[]): unknown => {
        if (name === fault.how) throw full;
        if (name === 'sync' && fault.how === 'late sync') return Promise.reject(full);
        return Reflect.apply(found, target, args);
      };
    },
  });
}

const FAULTS: readonly (readonly [string, Fault['how'], (recorder: Recorder) => void, number])[] = [
  ['a held piece is written by its timer', 'append', (to) => to.record([piece('One')]), 50],
  [
    'an event is signed once others are written',
    'checkpoint',
    (to) => to.record([answerOf('end')]),
    0,
  ],
  ['text is signed a second later', 'checkpoint', (to) => to.record([piece('more')]), 1000],
  ['a log is synced with what comes soon', 'sync', (to) => to.checkpointSoon(), 0],
  ['a slow disk ends a sync', 'late sync', (to) => to.checkpointSoon(), 0],
];

it.each(FAULTS)('a failure while %s is told to the next who writes', async (_, how, begin, ms) => {
  const clock = new VirtualClock({ auto: false });
  const { logs, owners } = openMemoryStore({ clock, ids: countingIds() });
  const owner = { owner: owners.self(), epoch: 1 };
  const { signer } = testKey();
  const fault: Fault = {};
  const opened = await logs.create(headerFor('t-1'), { signer, durability: 'turn', ...owner });
  const writer = withFault(opened, fault);
  const shown: string[] = [];
  const recorder = new Recorder({
    writer,
    clock,
    deltas: ms === 1000 ? 'every' : 'coalesced',
    onEvent: ({ event_type: type }) => shown.push(type),
  });
  recorder.record([TURN]);
  if (ms === 1000) recorder.record([piece('first')]);
  await recorder.settled();
  begin(recorder);
  fault.how = how;
  const before = shown.length;
  clock.advance(ms);
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  fault.how = undefined;
  expect(() => recorder.record([TURN])).toThrow('no space left');
  await expect(recorder.settled()).rejects.toThrow('no space left');
  // subscribers see nothing that may not be durable
  expect(shown.slice(before)).toEqual([]);
  await opened.close();
});
