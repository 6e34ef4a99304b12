import { describe, expect, it } from 'vitest';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { LinePicker } from '../../src/kernel/log/lines.ts';
import { LineScanner } from '../../src/kernel/log/scanner.ts';

/** Picks from the bytes in pieces of `size` through one buffer, as a store gives them. */
function picked(bytes: Buffer, size: number, types: readonly LogEvent['event_type'][] = []) {
  const events: unknown[] = [];
  const lines: string[] = [];
  const picker = new LinePicker({
    threadId: 't',
    types,
    event: ({ seq, event_type: type }) => {
      events.push([seq, type]);
    },
    text: {
      of: '"wanted"',
      take: (line) => {
        lines.push(line);
      },
    },
  });
  const scanner = new LineScanner([picker]);
  const buffer = Buffer.alloc(size);
  for (let at = 0; at < bytes.length; at += size) {
    const count = bytes.copy(buffer, 0, at, at + size);
    scanner.push(buffer.subarray(0, count));
  }
  scanner.end();
  return { events, lines };
}

const event = (seq: number, type: string) =>
  `{"seq":${seq},"timestamp":"2026-01-01T00:00:00.000Z","thread_id":"t","event_type":"${type}","payload":{"text":"é"}}`;

describe('the lines of a log that contain a text', () => {
  it.each([1, 7, 64, 100_000])('are found in chunks of %i bytes that are reused', (size) => {
    const lines = ['{"a":1}', '{"wanted":"é"}', '', '{"b":2}', '{"wanted":2}'];
    const bytes = Buffer.from(`${lines.join('\n')}\n{"wanted":"torn"`);
    expect(picked(bytes, size).lines).toEqual([lines[1], lines[4]]);
  });

  it('skip one over 16 MiB, and what follows is found', () => {
    const long = Buffer.concat([
      Buffer.from('{"wanted":"'),
      Buffer.alloc(17 * 1024 * 1024, 'x'),
      Buffer.from('"}\n{"wanted":1}\n'),
    ]);
    expect(picked(long, 256 * 1024).lines).toEqual(['{"wanted":1}']);
  });
});

describe('the events of some types', () => {
  it.each([1, 50, 100_000])(
    'are parsed in order in chunks of %i bytes, in lines of any form',
    (size) => {
      const inText = event(1, 'message').replace('é', '\\"event_type\\":\\"plan_changed\\"');
      const log = [
        inText,
        `${event(2, 'message').slice(0, 40)}${event(2, 'tool_call_start')}`,
        event(3, 'plan_changed'),
        '"event_type":"plan_changed"',
        event(5, 'plan_changed_later'),
        ` ${event(6, 'plan_changed')}`,
        event(7, 'tool_call_start'),
      ];
      const bytes = Buffer.from(`${log.join('\n')}\n`);
      expect(picked(bytes, size, ['plan_changed', 'tool_call_start']).events).toEqual([
        [2, 'tool_call_start'],
        [3, 'plan_changed'],
        [6, 'plan_changed'],
        [7, 'tool_call_start'],
      ]);
    },
  );
});
