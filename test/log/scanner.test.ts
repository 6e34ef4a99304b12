import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { MAX_LINE_BYTES } from '../../src/kernel/log/codec.ts';
import { findPosition } from '../../src/kernel/log/position.ts';
import { eventsOf, lastOf, measure, readLog } from '../../src/kernel/log/reader.ts';
import { eachLine, LineScanner, type LineVisitor, scanNow } from '../../src/kernel/log/scanner.ts';
import { LogVerifier } from '../../src/kernel/log/verifier.ts';
import { depth } from '../helpers/sample-of.ts';
import { delta, signedLog, THREAD, testKey, userMessage } from './support.ts';

const { signer, verifier } = testKey();
const RUNS = { numRuns: Number(process.env['RYE_SEEDS'] ?? depth(1, 3)) * 50, seed: 2026 };

/** Cuts bytes into chunks of these lengths, and reuses the memory of each, as a file's reader does. */
function* cut(bytes: Buffer, lengths: readonly number[]): Generator<Buffer, void, undefined> {
  for (let at = 0, count = 0; at < bytes.length; count += 1) {
    const chunk = Buffer.from(bytes.subarray(at, at + (lengths[count % lengths.length] ?? 1)));
    at += chunk.length;
    yield chunk;
    chunk.fill('#');
  }
}

async function* cutLater(bytes: Buffer, lengths: readonly number[]): AsyncGenerator<Buffer> {
  yield* cut(bytes, lengths);
}

/** Returns everything that a visitor is told, with each line on its own. */
function found(chunks: Iterable<Uint8Array>): readonly unknown[] {
  const told: unknown[] = [];
  scanNow(chunks, {
    lines: (run, offset) =>
      eachLine(run, (start, end) => {
        const text = run.toString('latin1', start, end);
        told.push([offset + start, text.length > 99 ? text.length : text]);
        return true;
      }),
    oversized: (offset) => told.push([offset, 'oversized']) > 0,
    torn: (rest, offset) => void told.push([offset, 'torn', rest?.length]),
  });
  return told;
}

async function outcomeOf(action: () => unknown): Promise<unknown> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof RyeError) return [error.code, error.message];
    throw error;
  }
}

/** Returns the result of each reader of a log. */
async function readings(log: Buffer, lengths: readonly number[]): Promise<unknown> {
  const chunks = (end?: number) => cutLater(log.subarray(0, end), lengths);
  const source = { threadId: THREAD, location: 'log', chunks };
  const chain = new LogVerifier({ threadId: THREAD, verifier });
  scanNow(cut(log, lengths), chain);
  const since: number[] = [];
  for await (const { seq } of eventsOf(chunks(), 2)) since.push(seq);
  return {
    verdict: chain.verdict(),
    all: await outcomeOf(async () => await readLog(source, { entriesOnly: false })),
    entries: await outcomeOf(async () => await readLog(source, { entriesOnly: true })),
    since,
    position: await outcomeOf(() => {
      const target = { location: 'log', threadId: THREAD, verifier };
      const place = findPosition(target, cut(log, lengths));
      if (!('position' in place)) return place;
      const { fileHash, ...position } = place.position;
      return { ...position, sha256: fileHash.digest('hex') };
    }),
    size: measure(cut(log, lengths)),
  };
}

const groups = fc.array(
  fc.array(fc.oneof(fc.string().map(delta), fc.string({ unit: 'grapheme' }).map(userMessage)), {
    minLength: 1,
    maxLength: 4,
  }),
  { maxLength: 5 },
);

const defect = fc.record({
  kind: fc.constantFrom('none', 'byte', 'cut', 'remove', 'repeat', 'fuse', 'junk', 'torn'),
  at: fc.nat(),
  byte: fc.nat(255),
});

function damaged(
  lines: readonly string[],
  { kind, at, byte }: { kind: string; at: number; byte: number },
): Buffer {
  const index = at % lines.length;
  const line = lines[index] ?? '';
  const changed: Record<string, readonly string[]> = {
    remove: lines.toSpliced(index, 1),
    repeat: lines.toSpliced(index, 0, line),
    fuse: lines.with(index, line.trimEnd()),
    junk: lines.toSpliced(index, 0, 'junk\n', '\n'),
    torn: [...lines, line.slice(0, byte)],
  };
  const log = Buffer.from((changed[kind] ?? lines).join(''));
  if (kind === 'byte') log[at % log.length] = byte;
  return kind === 'cut' ? log.subarray(0, at % log.length) : log;
}

const lengths = fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 1, maxLength: 8 });

describe('the verdict, the events and the position of a log', () => {
  it('do not depend on how its bytes are cut, with any defects', async () => {
    await fc.assert(
      fc.asyncProperty(
        groups,
        fc.array(defect, { maxLength: 2 }),
        lengths,
        async (drafts, defects, cuts) => {
          let lines = signedLog(drafts, signer);
          let log: Buffer = Buffer.from(lines.join(''));
          for (const one of defects) {
            log = damaged(lines, one);
            lines = log
              .toString('latin1')
              .split(/(?<=\n)/)
              .map((line) => Buffer.from(line, 'latin1').toString());
          }
          const whole = await readings(log, [Math.max(1, log.length)]);
          expect(await readings(log, cuts)).toEqual(whole);
          expect(await readings(log, [1])).toEqual(whole);
        },
      ),
      RUNS,
    );
  });
});

describe('a scanner', () => {
  it('finds the lines of any bytes, however they are cut', () => {
    const bytes = fc.array(fc.constantFrom('a', 'bc', '\n', '\n\n', 'ö'), { maxLength: 40 });
    fc.assert(
      fc.property(
        bytes,
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }),
        (parts, cuts) => {
          const log = Buffer.from(parts.join(''));
          const expected: unknown[] = [];
          let offset = 0;
          for (const line of log.toString('latin1').split(/(?<=\n)/)) {
            if (line.endsWith('\n')) expected.push([offset, line]);
            else if (line !== '') expected.push([offset, 'torn', line.length]);
            offset += line.length;
          }
          expect(found(cut(log, cuts))).toEqual(expected);
        },
      ),
      RUNS,
    );
  });

  it.each([
    ['as long as allowed', MAX_LINE_BYTES, 3, MAX_LINE_BYTES],
    ['one byte longer', MAX_LINE_BYTES + 1, 3, 'oversized'],
    ['much longer', 2 * MAX_LINE_BYTES, 3, 'oversized'],
  ])('passes or skips a line that is %s, however it is cut', (_, length, start, expected) => {
    const line = Buffer.alloc(length, 'x');
    line[length - 1] = 0x0a;
    const log = Buffer.concat([Buffer.from('ab\n'), line, Buffer.from('cd\nef')]);
    for (const chunk of [
      65_536,
      MAX_LINE_BYTES - 1,
      MAX_LINE_BYTES,
      MAX_LINE_BYTES + 1,
      log.length,
    ]) {
      expect(found(cut(log, [chunk]))).toEqual([
        [0, 'ab\n'],
        [start, expected],
        [start + length, 'cd\n'],
        [start + length + 3, 'torn', 2],
      ]);
    }
  });

  it('tells of a torn line over the limit that it is too long and torn', () => {
    const log = Buffer.alloc(MAX_LINE_BYTES + 1, 'x');
    for (const chunk of [1 << 20, log.length]) {
      expect(found(cut(log, [chunk]))).toEqual([
        [0, 'oversized'],
        [0, 'torn', undefined],
      ]);
    }
    expect(found(cut(log.subarray(1), [1 << 20]))).toEqual([[0, 'torn', MAX_LINE_BYTES]]);
  });

  it('serves several visitors in one pass, until one has enough', () => {
    const seen: string[] = [];
    const visitor = (name: string, enough: number): LineVisitor => ({
      lines: (run, offset) => {
        seen.push(`${name} ${offset} ${run.toString().trim()}`);
        return offset < enough;
      },
      oversized: () => true,
    });
    const scanner = new LineScanner([visitor('one', 99), visitor('two', 2)], 0);
    expect(scanner.push(Buffer.from('a\nb'))).toBe(true);
    expect(scanner.offset).toBe(2);
    expect(scanner.push(Buffer.from('\nc\n'))).toBe(false);
    expect(scanner.push(Buffer.from('d\n'))).toBe(false);
    expect(seen).toEqual(['one 0 a', 'two 0 a', 'one 2 b', 'two 2 b']);
  });
});

it.each([0, 1, 2, 3, 10])('the last %i of a stream are what is at its end', async (count) => {
  for (let length = 0; length < 10; length += 1) {
    const all = Array.from({ length }, (_, at) => at);
    const items = (async function* each() {
      yield* all;
    })();
    expect(await lastOf(items, count)).toEqual(count === 0 ? [] : all.slice(-count));
  }
});
