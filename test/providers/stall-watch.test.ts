import { expect, it } from 'vitest';
import { stallWatch } from '../../src/kernel/providers/stream-guards.ts';
import { manualClock } from '../hooks/helpers.ts';

/** A watch that waits for a server, and a clock that is stepped. */
function watching(firstByteSeconds: number, idleSeconds: number) {
  const clock = manualClock();
  const caller = new AbortController();
  const watch = stallWatch({ clock, firstByteSeconds, idleSeconds, signal: caller.signal });
  const wait = (): void => void watch.wait(new Promise(() => undefined));
  const pass = async (seconds: number): Promise<string> => {
    clock.advance(seconds * 1000);
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
    const { setting } = watch.stalled() ?? {};
    return watch.signal.aborted ? (setting ?? 'ended') : 'waits';
  };
  return { watch, wait, pass, caller };
}

it('the first byte and the bytes after it have separate bounds', async () => {
  const first = watching(300, 120);
  first.wait();
  expect(await first.pass(299)).toBe('waits');
  expect(await first.pass(1)).toBe('retry.first_byte_seconds');
  const later = watching(300, 120);
  later.wait();
  await later.pass(250);
  later.watch.begin();
  later.wait();
  expect(await later.pass(119)).toBe('waits');
  expect(await later.pass(1)).toBe('retry.idle_seconds');
});

it.each([
  [0, 120, 'waits', 'retry.idle_seconds'],
  [300, 0, 'retry.first_byte_seconds', 'waits'],
  [0, 0, 'waits', 'waits'],
])(
  '0 is no bound: %d s for the first byte, %d s between bytes',
  async (first, idle, before, after) => {
    const silent = watching(first, idle);
    silent.wait();
    expect(await silent.pass(10_000)).toBe(before);
    const begun = watching(first, idle);
    begun.watch.begin();
    begun.wait();
    expect(await begun.pass(10_000)).toBe(after);
  },
);

it('time in which no one waits for the server does not count', async () => {
  const { watch, wait, pass } = watching(60, 60);
  expect(await pass(1000)).toBe('waits');
  await watch.wait(Promise.resolve());
  expect(await pass(1000)).toBe('waits');
  wait();
  expect(await pass(59)).toBe('waits');
  expect(await pass(1)).toBe('retry.first_byte_seconds');
});

it('the connection ends with its caller and with its watch, unless its answer was read', async () => {
  const cancelled = watching(60, 60);
  cancelled.caller.abort();
  expect(await cancelled.pass(0)).toBe('ended');
  const over = watching(60, 60);
  over.watch.end();
  expect(await over.pass(0)).toBe('ended');
  const read = watching(60, 60);
  const freed: string[] = [];
  read.watch.settle({ letGo: () => freed.push('free') } as never);
  read.watch.end();
  read.caller.abort();
  expect([await read.pass(1000), freed]).toEqual(['waits', ['free']]);
});
