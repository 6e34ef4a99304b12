import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { boundedProgress, HeadBuffer, TailBuffer } from '../../src/kernel/tools/output.ts';

describe('TailBuffer', () => {
  // Requirement: truncation-named
  it('keeps everything that fits and names what was removed', () => {
    const tail = new TailBuffer(5);
    tail.push(Buffer.from('abc'));
    expect(tail.text()).toBe('abc');
    tail.push(Buffer.from('defgh'));
    expect(tail.text()).toBe('…(3 bytes truncated from head)…\ndefgh');
  });

  // Requirement: truncation-named
  it('keeps the tail of any chunking, without splitting a code point', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: 'binary', maxLength: 20 }), { maxLength: 30 }),
        fc.integer({ min: 1, max: 40 }),
        (parts, max) => {
          const tail = new TailBuffer(max);
          const whole = Buffer.from(parts.join(''));
          for (let at = 0; at < whole.length; at += 7) tail.push(whole.subarray(at, at + 7));
          const shown = tail.text().replace(/^…\(\d+ bytes truncated from head\)…\n/, '');
          expect(whole.toString().endsWith(shown)).toBe(true);
          expect(Buffer.byteLength(shown)).toBeLessThanOrEqual(max);
          expect(Buffer.byteLength(shown)).toBeGreaterThan(Math.min(whole.length, max) - 4);
          expect(shown === whole.toString()).toBe(whole.length <= max);
        },
      ),
      { numRuns: 200, seed: 5 },
    );
  });

  it('stays small however many chunks come', () => {
    const tail = new TailBuffer(10);
    for (let index = 0; index < 100_000; index += 1) tail.push(Buffer.from('x'));
    expect(tail.text()).toBe(`…(99990 bytes truncated from head)…\n${'x'.repeat(10)}`);
  });
});

describe('HeadBuffer', () => {
  it('keeps the head and knows that there was more', () => {
    const head = new HeadBuffer(4);
    head.push(Buffer.from('abcd'));
    expect([head.text(), head.overflowed]).toEqual(['abcd', false]);
    head.push(Buffer.from('e'));
    expect([head.text(), head.overflowed]).toEqual(['abcd', true]);
  });
});

describe('boundedProgress', () => {
  it('joins split code points and falls silent at its bound', () => {
    const seen: string[] = [];
    const progress = boundedProgress((text) => seen.push(text), 6);
    const bytes = Buffer.from('é');
    progress(bytes.subarray(0, 1));
    progress(bytes.subarray(1));
    progress(Buffer.from('abcdefgh'));
    progress(Buffer.from('more'));
    expect(seen).toEqual(['é', 'abcd', '\n…(further live output is not shown)…\n']);
  });
});
