import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { headChars } from '../../src/kernel/core/text.ts';

it('a cut splits no code point, and omits no more than half of one', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), fc.nat(20), (text, max) => {
      const head = headChars(text, max);
      expect(text.startsWith(head)).toBe(true);
      expect(() => encodeURIComponent(head)).not.toThrow();
      expect(Math.min(max, text.length) - head.length).toBeLessThanOrEqual(1);
    }),
  );
});
