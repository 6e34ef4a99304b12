import { expect, it } from 'vitest';
import { parse } from 'yaml';
import { generateKeyPair, readPublicKey } from '../../src/kernel/trust/keys.ts';

it('the id of a new key is a text in YAML without quotes', () => {
  const ids = Array.from(
    { length: 5000 },
    () => readPublicKey(generateKeyPair().publicPem, 'a new key').keyId,
  );
  // of 5,000 ids of any kind, six or seven look like numbers
  expect(ids.filter((id) => parse(`key: ${id}`).key !== id)).toEqual([]);
});
