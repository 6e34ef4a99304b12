import { getEventListeners } from 'node:events';
import { expect, it } from 'vitest';
import { linkedTo, Stop } from '../../src/kernel/loop/stop.ts';
import { answers, play, toolOf, VirtualClock } from './scripted.ts';

const listeners = (signal: AbortSignal): number => getEventListeners(signal, 'abort').length;

it('the signal of the end is one for all calls, until a hook extends a passed deadline', async () => {
  const clock = new VirtualClock({ auto: false });
  const outer = new AbortController();
  const stop = new Stop(clock, outer.signal);
  const before = stop.endingSignal;
  expect(stop.endingSignal).toBe(before);
  stop.arm(10);
  clock.advance(10);
  await Promise.resolve();
  expect([before.aborted, stop.signal.aborted, stop.cause]).toEqual([true, true, 'duration']);
  stop.arm(10);
  expect([stop.endingSignal.aborted, stop.signal.aborted]).toEqual([false, false]);
  stop.endAfterBatch({ control: 'abort' });
  expect([stop.endingSignal.aborted, stop.signal.aborted]).toEqual([true, false]);
  // what a hook decided stays decided
  clock.advance(20);
  await Promise.resolve();
  stop.arm(10);
  expect(stop.endingSignal.aborted).toBe(true);
  outer.abort();
  expect(stop.cause).toBe('cancelled');
  stop.close();
  expect(listeners(outer.signal)).toBe(0);
});

it('a linked controller aborts with its signal, and leaves nothing at it once it is unlinked', () => {
  const signal = new AbortController();
  const [one, other] = [linkedTo(signal.signal), linkedTo(signal.signal)];
  one.unlink();
  expect(listeners(signal.signal)).toBe(1);
  signal.abort('why');
  expect([one.controller.signal.aborted, other.controller.signal.reason]).toEqual([false, 'why']);
  expect(linkedTo(signal.signal).controller.signal.reason).toBe('why');
});

it('handlers and tools of a run leave nothing at its signals, and theirs abort when they are over', async () => {
  const seen: AbortSignal[] = [];
  const note = (_: unknown, signal: AbortSignal): object => {
    seen.push(signal);
    return {};
  };
  const cancel = new AbortController();
  const during: number[] = [];
  const { outcome } = await play({
    signal: cancel.signal,
    tools: { rye_ls: toolOf('rye/ls') },
    turns: [
      ...Array.from({ length: 12 }, (_, at) =>
        answers('Look.', [{ id: `c${at}`, name: 'rye_ls', input: { at } }]),
      ),
      answers('Done.'),
    ],
    ports: { handlers: () => ({ tool_gate: [note], tool_transform: [note] }) },
    onEvent: ({ event_type: type }) => {
      if (type === 'turn_started') during.push(listeners(cancel.signal));
    },
  });
  expect(outcome.kind).toBe('completed');
  expect(seen).toHaveLength(24);
  expect(seen.every(({ aborted }) => aborted)).toBe(true);
  expect(new Set(during).size).toBe(1);
  expect(listeners(cancel.signal)).toBe(0);
});
