import { expect, test } from 'vitest';
import {
  BatchedEvents,
  type Batches,
  DeferredStream,
} from '../../src/kernel/providers/event-batches.ts';
import type { ModelEvent } from '../../src/kernel/providers/provider.ts';

const text = (part: string): ModelEvent => ({ type: 'text_delta', text: part });

/** Batches; `told` holds what their reader told about each. */
async function* batches(told: unknown[], ...all: readonly (readonly ModelEvent[])[]): Batches {
  for (const batch of all) told.push(yield batch);
}

test('events that come together are ready one by one after the first, and no event of a later batch is', async () => {
  const stream = new BatchedEvents(
    batches([], [], [text('a'), text('b')], [text('c')]),
    new AbortController().signal,
  );
  expect(stream.ready()).toBeUndefined();
  expect(await stream.next()).toEqual({ value: text('a'), done: false });
  expect(stream.ready()).toEqual(text('b'));
  expect(stream.ready()).toBeUndefined();
  expect(await stream.next()).toEqual({ value: text('c'), done: false });
  expect(await stream.next()).toEqual({ value: undefined, done: true });
});

test('an abort drops what remains of a batch and tells the source', async () => {
  const told: unknown[] = [];
  const abort = new AbortController();
  const source = batches(told, [text('a')], [text('b'), text('c')], [text('end')]);
  const stream = new BatchedEvents(source, abort.signal);
  await stream.next();
  await stream.next();
  abort.abort();
  expect(stream.ready()).toBeUndefined();
  expect(await stream.next()).toEqual({ value: text('end'), done: false });
  expect(told).toEqual([false, true]);
});

test('a stream that is left before it was opened asks for nothing', async () => {
  const asked: string[] = [];
  const stream = new DeferredStream(async () => {
    await Promise.resolve();
    asked.push('opened');
    return (async function* () {
      asked.push('read');
      yield text('a');
    })();
  });
  const first = stream.next();
  await stream.return();
  expect(await first).toEqual({ value: undefined, done: true });
  expect(asked).toEqual(['opened']);
});
