import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { encodeEvent, encodeHeader } from '../../src/kernel/log/codec.ts';
import { headerFor } from '../log/support.ts';
import { openTestStore } from './support.ts';

const { logs } = openTestStore();
const EVENTS = 60_000;
/** Maximum bytes read to find the end of a log or a place in it: some blocks, for any size of log. */
const FEW_BYTES = 2 * 1024 * 1024;

/** Writes a log of many events; `size` returns the length of each text. */
function writeLog(threadId: string, count: number, size: (seq: number) => number): number {
  const path = logs.location(threadId);
  mkdirSync(dirname(path), { recursive: true });
  const lines = [encodeHeader(headerFor(threadId))];
  for (let seq = 1; seq <= count; seq += 1) {
    lines.push(
      encodeEvent({
        seq,
        timestamp: '2026-02-17T10:00:56.123Z',
        thread_id: threadId,
        event_type: 'token_delta',
        payload: { text: 'x'.repeat(size(seq)) },
      }),
    );
  }
  const text = lines.join('');
  writeFileSync(path, text);
  return text.length;
}

/** Bytes that this process has read through system calls so far. */
function bytesRead(): number {
  return Number(/rchar: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]);
}

async function cost<T>(action: () => Promise<T>): Promise<{ value: T; bytes: number }> {
  const before = bytesRead();
  const value = await action();
  return { value, bytes: bytesRead() - before };
}

async function seqsOf(events: AsyncIterable<{ seq: number }>): Promise<readonly number[]> {
  const seqs: number[] = [];
  for await (const { seq } of events) seqs.push(seq);
  return seqs;
}

function range(from: number, to: number): readonly number[] {
  return Array.from({ length: Math.max(0, to - from + 1) }, (_, index) => from + index);
}

describe('a large log', () => {
  let size = 0;
  beforeAll(() => {
    size = writeLog('seek/large', EVENTS, () => 400);
  });

  it('is large against what a look into it may cost', () => {
    expect(size).toBeGreaterThan(10 * FEW_BYTES);
  });

  it('gives its tail without being read whole', async () => {
    const { value, bytes } = await cost(async () => await logs.tail('seek/large', 20));
    expect(value.map(({ seq }) => seq)).toEqual(range(EVENTS - 19, EVENTS));
    expect(bytes).toBeLessThan(FEW_BYTES);
  });

  it('returns the events after a seq without reading the whole log', async () => {
    const { value, bytes } = await cost(
      async () => await seqsOf(logs.since('seek/large', EVENTS - 50)),
    );
    expect(value).toEqual(range(EVENTS - 49, EVENTS));
    expect(bytes).toBeLessThan(FEW_BYTES);
  });

  it('is followed from a seq without being read whole', async () => {
    const stop = new AbortController();
    const { value, bytes } = await cost(async () => {
      const seqs: number[] = [];
      const options = { since: EVENTS - 3, signal: stop.signal };
      for await (const { seq } of logs.follow('seek/large', options)) {
        seqs.push(seq);
        if (seqs.length === 3) break;
      }
      return seqs;
    });
    expect(value).toEqual(range(EVENTS - 2, EVENTS));
    expect(bytes).toBeLessThan(FEW_BYTES);
  });
});

describe('since', () => {
  it('finds every place, also between lines that are longer than a look', async () => {
    writeLog('seek/mixed', 60, (seq) => (seq % 7 === 0 ? 200_000 : 30 * seq));
    for (const since of [0, 1, 6, 7, 8, 13, 14, 30, 49, 59, 60, 1000]) {
      expect(await seqsOf(logs.since('seek/mixed', since))).toEqual(range(since + 1, 60));
    }
  });

  it('skips lines that are no events', async () => {
    writeLog('seek/damaged', 3000, () => 60);
    const path = logs.location('seek/damaged');
    const lines = readFileSync(path, 'utf8').split('\n');
    lines.splice(1500, 0, ...Array.from({ length: 900 }, () => `rubbish ${'#'.repeat(200)}`));
    writeFileSync(path, lines.join('\n'));
    expect(await seqsOf(logs.since('seek/damaged', 1400))).toEqual(range(1401, 3000));
    expect(await seqsOf(logs.since('seek/damaged', 2990))).toEqual(range(2991, 3000));
  });

  it('reads an archived log too, and its tail', async () => {
    writeLog('seek/archived', 400, () => 10);
    await logs.archive('seek/archived');
    expect(await seqsOf(logs.since('seek/archived', 396))).toEqual([397, 398, 399, 400]);
    for (const count of [0, 1, 3, 399, 1000]) {
      const tail = await logs.tail('seek/archived', count);
      expect(tail.map(({ seq }) => seq)).toEqual(range(Math.max(1, 401 - count), 400));
    }
  });

  it('refuses a thread without a log', async () => {
    await expect(seqsOf(logs.since('seek/none', 4))).rejects.toMatchObject({
      code: 'thread_not_found',
    });
  });
});
