import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { UnknownEvent } from '../../src/kernel/core/events.ts';
import {
  decodeHeader,
  decodeLine,
  encodeEvent,
  encodeHeader,
  eventBytes,
  MAX_LINE_BYTES,
} from '../../src/kernel/log/codec.ts';
import { delta, headerFor, place, userMessage } from './support.ts';

const [first, second] = place([userMessage('one'), delta('two')]).map((event) =>
  encodeEvent(event).trimEnd(),
);

describe('events', () => {
  it('are one line each, members in the order of the format', () => {
    expect(first).toBe(
      '{"seq":1,"timestamp":"2026-02-17T10:00:56.000Z","thread_id":"demo/count-1771322456",' +
        '"event_type":"message","payload":{"message":{"role":"user","content":[{"type":"text","text":"one"}]}},' +
        '"id":"e1","parent_id":null}',
    );
  });

  it('come back as they were, unknown types too', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.string(), fc.jsonValue()),
        fc.option(fc.string({ minLength: 1 })),
        (payload, id) => {
          const event: UnknownEvent = {
            seq: 3,
            timestamp: '2026-02-17T10:00:56.000Z',
            thread_id: 't',
            event_type: 'from_the_future',
            payload: JSON.parse(JSON.stringify(payload)),
            ...(id === null ? {} : { id, parent_id: null }),
          };
          const line = encodeEvent(event);
          expect(line.indexOf('\n')).toBe(line.length - 1);
          expect(decodeLine(line.trimEnd())).toEqual([{ start: 0, event }]);
        },
      ),
      { numRuns: 200, seed: 3 },
    );
  });

  it.each([
    ['', 'it is not a JSON object'],
    ['{', 'it is not a JSON object'],
    ['[]', 'it is not a JSON object'],
    ['null', 'it is not a JSON object'],
    ['{"seq":0}', 'its seq is not a positive integer'],
    ['{"seq":1}', 'it has no timestamp'],
    ['{"seq":1,"timestamp":""}', 'it has no thread_id'],
    ['{"seq":1,"timestamp":"","thread_id":""}', 'it has no event_type'],
    ['{"seq":1,"timestamp":"","thread_id":"","event_type":"x"}', 'its payload is not an object'],
    [
      '{"seq":1,"timestamp":"","thread_id":"","event_type":"x","payload":{},"id":1}',
      'its id is not a string',
    ],
    [
      '{"seq":1,"timestamp":"","thread_id":"","event_type":"x","payload":{},"id":"a","parent_id":{}}',
      'its parent_id is neither a string nor null',
    ],
    [
      '{"seq":1,"timestamp":"","thread_id":"","event_type":"message","payload":{"message":{"role":"user"}}}',
      "its message's content is not a list of known blocks",
    ],
    [
      '{"seq":1,"timestamp":"","thread_id":"","event_type":"leaf","payload":{"target_id":7}}',
      "its payload's target_id is neither a string nor null",
    ],
    [
      '{"seq":1,"timestamp":"","thread_id":"","event_type":"context_edit","payload":{"target_id":"a","action":"replace"}}',
      'its context edit neither omits nor replaces with a text',
    ],
  ])('refuses %s', (line, problem) => {
    expect(decodeLine(line)).toEqual([{ start: 0, problem }]);
  });
});

describe('records that ran together', () => {
  it('are split', () => {
    const pieces = decodeLine(`${first}${second}`);
    expect(pieces.map((piece) => 'event' in piece && piece.event.seq)).toEqual([1, 2]);
    expect(pieces[1]?.start).toBe(first?.length);
  });

  it('give up the torn one only', () => {
    const torn = (first ?? '').slice(0, 60);
    expect(decodeLine(`${torn}${second}`)).toMatchObject([
      { start: 0, problem: 'it is not a JSON object' },
      { start: 60, event: { seq: 2 } },
    ]);
  });

  it('are not looked for without bound', () => {
    const hostile = '{"seq":'.repeat(100_000);
    expect(decodeLine(hostile)).toEqual([{ start: 0, problem: 'it is not a JSON object' }]);
  });
});

describe('headers', () => {
  it('come back, with where the thread comes from', () => {
    const header = {
      ...headerFor(),
      continuation_of: 'demo/count-1',
      branched_from: { thread_id: 'a', entry_id: 'b' },
    };
    expect(decodeHeader(encodeHeader(header).trimEnd())).toEqual({ header });
    expect(encodeHeader(headerFor())).not.toContain('continuation_of');
  });

  it.each([
    ['# notes', 'its first line is not a JSON object'],
    ['{"event_type":"message"}', 'its first line is not a thread header'],
    [
      '{"event_type":"thread","version":2}',
      'its format version 2 is not known; a newer rye wrote it',
    ],
    ['{"event_type":"thread","version":1,"thread_id":"t"}', 'its header has no directive'],
  ])('refuses %s', (line, problem) => {
    expect(decodeHeader(line)).toEqual({ problem });
  });
});

const NOTE = {
  seq: 1,
  timestamp: '2026-11-21T00:00:00.000Z',
  thread_id: 't',
  event_type: 'note',
} as const;

describe('the line bound', () => {
  it('counts bytes, not characters', () => {
    const noted = (text: string) => eventBytes({ ...NOTE, payload: { text } });
    const room = MAX_LINE_BYTES - (noted('')?.length ?? 0);
    const full = '€'.repeat(room / 3).padEnd(Math.floor(room / 3) + (room % 3), 'a');
    expect(noted(full)?.length).toBe(MAX_LINE_BYTES);
    expect(noted(`${full}a`)).toBeUndefined();
  });

  it.each(['', 'plain', '€ and 😀', '\ud83d alone', '\n'])(
    'makes the bytes of the line of %j',
    (text) => {
      const event = { ...NOTE, payload: { text } };
      expect(eventBytes(event)?.toString('utf8')).toBe(encodeEvent(event));
    },
  );
});
