import { expect, it } from 'vitest';
import { wholeBytes } from '../../src/kernel/tools/files.ts';

it.each(['', 'abc', 'é', 'aé', '☃', 'a☃', '😀', 'a😀', 'é☃😀', '😀😀'])(
  'of %j, cut at any byte, the whole characters are kept',
  (text) => {
    const bytes = Buffer.from(text);
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      let whole = 0;
      for (const character of text) {
        const length = Buffer.byteLength(character);
        if (whole + length > cut) break;
        whole += length;
      }
      expect([cut, wholeBytes(bytes.subarray(0, cut))]).toEqual([cut, whole]);
    }
  },
);

it('bytes that are no text are kept, but for a start of a character at the end', () => {
  expect(wholeBytes(Buffer.from([0xff]))).toBe(0);
  expect(wholeBytes(Buffer.from([0x80, 0x80, 0x80, 0x80, 0x80]))).toBe(5);
  expect(wholeBytes(Buffer.from([0x61, 0xc3]))).toBe(1);
});
