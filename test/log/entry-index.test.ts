import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EntryIndex } from '../../src/kernel/log/tree.ts';

describe('the index of entries', () => {
  it('finds what a map finds, for any ids', () => {
    const id = fc.oneof(
      fc.string({ maxLength: 3 }),
      fc.integer({ min: 0, max: 40 }).map((value) => value.toString(16).padStart(16, '0')),
    );
    fc.assert(
      fc.property(fc.array(id, { maxLength: 80 }), fc.array(id), (added, asked) => {
        const entries: { id: string }[] = [];
        const index = new EntryIndex(entries, added.length);
        const map = new Map<string, number>();
        for (const next of added) {
          expect(index.add(next, entries.length)).toBe(!map.has(next));
          if (map.has(next)) continue;
          map.set(next, entries.length);
          entries.push({ id: next });
        }
        for (const next of [...added, ...asked]) {
          expect(index.positionOf(next)).toBe(map.get(next) ?? -1);
          expect(index.has(next)).toBe(map.has(next));
          expect(index.get(next)?.id).toBe(map.has(next) ? next : undefined);
        }
      }),
      { numRuns: 200, seed: 7 },
    );
  });

  it('holds nothing when nothing is expected', () => {
    expect(new EntryIndex([], 0).get('a')).toBeUndefined();
  });
});
