import { describe, expect, it } from 'vitest';
import { eventsWith, linesWith } from '../../src/kernel/log/lines.ts';

/** The bytes in pieces of `size` through one buffer, as a store gives them. */
async function* through(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  const buffer = Buffer.alloc(size);
  for (let at = 0; at < bytes.length; at += size) {
    const count = bytes.copy(buffer, 0, at, at + size);
    yield buffer.subarray(0, count);
  }
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

const event = (seq: number, type: string) =>
  `{"seq":${seq},"timestamp":"2026-01-01T00:00:00.000Z","thread_id":"t","event_type":"${type}","payload":{"text":"é"}}`;

describe('the lines of a log that contain a text', () => {
  it.each([1, 7, 64, 100_000])('are found in chunks of %i bytes that are reused', async (size) => {
    const lines = ['{"a":1}', '{"wanted":"é"}', '', '{"b":2}', '{"wanted":2}'];
    const bytes = Buffer.from(`${lines.join('\n')}\n{"wanted":"torn"`);
    expect(await all(linesWith(through(bytes, size), ['"wanted"']))).toEqual([lines[1], lines[4]]);
  });

  it('skip one over 16 MiB, and what follows is found', async () => {
    const long = Buffer.concat([
      Buffer.from('{"wanted":"'),
      Buffer.alloc(17 * 1024 * 1024, 'x'),
      Buffer.from('"}\n{"wanted":1}\n'),
    ]);
    expect(await all(linesWith(through(long, 256 * 1024), ['"wanted"']))).toEqual(['{"wanted":1}']);
  });
});

describe('the events of some types', () => {
  it('are parsed in order, also where two records are on one line', async () => {
    const log = [
      event(1, 'message'),
      `${event(2, 'message').slice(0, 40)}${event(2, 'tool_call_start')}`,
      event(3, 'plan_changed'),
      '"event_type":"plan_changed"',
    ];
    const bytes = Buffer.from(`${log.join('\n')}\n`);
    const found = await all(eventsWith(through(bytes, 50), ['plan_changed', 'tool_call_start']));
    expect(found.map(({ seq, event_type: type }) => [seq, type])).toEqual([
      [2, 'tool_call_start'],
      [3, 'plan_changed'],
    ]);
  });
});
