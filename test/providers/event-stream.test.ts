import { expect, test } from 'vitest';
import { answerLimits, BodyForm, EventStream } from '../../src/kernel/providers/event-stream.ts';

const TEXT =
  '\ufeffdata: one\n\n: a comment\nevent: x\ndata:two\ndata:  three\n\nid: 4\n\ndata\n\ndata: \u{1f600}\n\n';
const DATA = ['one', 'two\n three', '', '\u{1f600}'];

function read(bytes: Buffer, size: number): readonly string[] {
  const stream = new EventStream(answerLimits(100));
  const data: string[] = [];
  for (let at = 0; at < bytes.length; at += size) {
    data.push(...stream.push(bytes.subarray(at, at + size)));
    stream.check();
  }
  return [...data, ...stream.end()];
}

test.each([
  ['\\n', '\n'],
  ['\\r\\n', '\r\n'],
  ['\\r', '\r'],
])('reads the data of events with lines that end in %s, in pieces of any size', (_name, end) => {
  const bytes = Buffer.from(TEXT.replaceAll('\n', end));
  for (let size = 1; size <= bytes.length; size += 1) expect(read(bytes, size)).toEqual(DATA);
});

test('takes a last event whose line is complete, and no other', () => {
  expect(read(Buffer.from('data: 1\n\ndata: 2\n'), 100)).toEqual(['1', '2']);
  expect(read(Buffer.from('data: 1\n\ndata: 2'), 100)).toEqual(['1']);
});

test('refuses an event and an answer past their limits', () => {
  const stream = new EventStream({ eventBytes: 10, totalBytes: 30 });
  expect(stream.push(Buffer.from('data: 1\n\ndata: 234567'))).toEqual(['1']);
  expect(() => stream.check()).toThrow('an event has more than 10 bytes');
  expect(() => stream.push(Buffer.alloc(20))).toThrow('the answer has more than 30 bytes');
});

test('the form of a body is told from its first letters, however they come', () => {
  const formOf = (isLabeled: boolean, ...pieces: readonly (string | Uint8Array)[]) => {
    const form = new BodyForm(isLabeled);
    for (const piece of pieces) form.take(Buffer.from(piece));
    return form;
  };
  expect(formOf(false, 'd', 'a', 'ta', ':').kind).toBe('events');
  expect(formOf(false, ' \n', 'dat').kind).toBeUndefined();
  expect(formOf(false, 'dates: none').kind).toBe('other');
  expect(formOf(true, 'dates: none').kind).toBe('events');
  const mark = [Uint8Array.of(0xef, 0xbb), Uint8Array.of(0xbf, 0x7b), '"a":1}'];
  expect(formOf(true, ...mark).text()).toBe('{"a":1}');
  // white space is not kept, so that a flood of it costs no more than its bytes
  const flood = Array.from({ length: 20_000 }, () => '\n');
  expect(formOf(false, ...flood, '{}').text()).toBe('{}');
});
