import { appendFileSync, copyFileSync, readFileSync, renameSync, truncateSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import { delta, headerFor, userMessage } from '../log/support.ts';
import { openTestStore } from './support.ts';

const store = openTestStore();
const { logs } = store;

async function create(threadId: string): Promise<ReturnType<typeof logs.create>> {
  return await logs.create(headerFor(threadId), store.writer());
}

async function take(
  events: AsyncIterable<LogEvent | UnknownEvent>,
  count: number,
): Promise<readonly number[]> {
  const seqs: number[] = [];
  for await (const { seq } of events) {
    seqs.push(seq);
    if (seqs.length === count) break;
  }
  return seqs;
}

describe('tail', () => {
  it('gives the last events for any count, also over block borders and long lines', async () => {
    const writer = await create('tail/a');
    for (let index = 0; index < 300; index += 1)
      writer.append([userMessage('x'.repeat(index * 7)), delta('y')]);
    writer.append([userMessage('z'.repeat(200_000)), delta('end')]);
    await writer.close();
    // the header has a checkpoint, and each batch of two
    const all = 1 + 3 * 301;
    for (const count of [0, 1, 2, 3, 250, all - 1, all, all + 1, 10_000]) {
      const events = await logs.tail('tail/a', count);
      const length = Math.min(count, all);
      expect(events.map(({ seq }) => seq)).toEqual(
        Array.from({ length }, (_, index) => all - length + 1 + index),
      );
    }
  });

  it('skips a torn last line', async () => {
    const writer = await create('tail/b');
    writer.append([delta('1'), delta('2')]);
    await writer.close();
    appendFileSync(logs.location('tail/b'), '{"seq":5,');
    expect((await logs.tail('tail/b', 2)).map(({ seq }) => seq)).toEqual([3, 4]);
  });
});

describe('follow', () => {
  it('gives what is there after a seq, then what is written', async () => {
    const writer = await create('follow/a');
    writer.append([delta('1'), delta('2'), delta('3')]);
    const stop = new AbortController();
    const following = take(logs.follow('follow/a', { since: 1, signal: stop.signal }), 5);
    for (let index = 4; index <= 6; index += 1) {
      writer.append([delta(String(index))]);
      await new Promise(setImmediate);
    }
    expect(await following).toEqual([2, 3, 4, 5, 6]);
    await writer.close();
  });

  it('waits for a log that comes later and ends when asked to', async () => {
    const stop = new AbortController();
    const following = take(logs.follow('follow/later', { signal: stop.signal }), 2);
    const writer = await create('follow/later');
    writer.append([delta('1'), delta('2')]);
    expect(await following).toEqual([1, 2]);
    const rest = take(logs.follow('follow/later', { since: 2, signal: stop.signal }), 1);
    stop.abort();
    expect(await rest).toEqual([]);
    await writer.close();
  });

  it.each([0, 1, 20])(
    'continues where the log is signed when the next writer takes unsigned lines and %i bytes off',
    async (torn) => {
      const id = `follow/torn-${torn}`;
      const writer = await create(id);
      writer.append([userMessage('1')]);
      writer.append([delta('2'), delta('3'), delta('4')]);
      // what a kill leaves: unsigned deltas
      const path = logs.location(id);
      truncateSync(path, readFileSync(path).length - torn);
      const stop = new AbortController();
      const events = logs.follow(id, { since: 1, signal: stop.signal })[Symbol.asyncIterator]();
      const next = async () => (await events.next()).value?.event_type;
      const seen = [await next(), await next(), await next(), await next()];
      const pending = events.next();
      const again = await logs.reopen(id, store.writer({ epoch: 2 }));
      // the file is longer than before by the time the follower looks
      again.append([userMessage('five'), userMessage('six')]);
      const after = [(await pending).value?.payload, (await events.next()).value?.event_type];
      await again.close();
      stop.abort();
      const types = ['message', 'checkpoint', 'token_delta', 'token_delta'];
      expect(seen).toEqual(types);
      if (torn === 0) expect(after[0]).toEqual({ text: '4' });
      else expect(after).toMatchObject([{ offset: expect.any(Number) }, 'checkpoint']);
    },
  );

  it('follows the copy that replaces a log when a writer takes it over', async () => {
    const writer = await create('follow/moved');
    writer.append([delta('1'), delta('2')]);
    await writer.close();
    const path = logs.location('follow/moved');
    const stop = new AbortController();
    const seqs: number[] = [];
    const following = (async () => {
      for await (const { seq } of logs.follow('follow/moved', { signal: stop.signal })) {
        seqs.push(seq);
        if (seq === 4) {
          copyFileSync(path, `${path}.copy`);
          renameSync(`${path}.copy`, path);
          const next = await logs.reopen('follow/moved', store.writer());
          next.append([delta('3')]);
          await next.close();
        }
        if (seq === 5) break;
      }
    })();
    await following;
    expect(seqs).toEqual([1, 2, 3, 4, 5]);
  });
});
