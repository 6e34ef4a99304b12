import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ed25519, naclEd25519, platformEd25519 } from '../../src/kernel/trust/ed25519.ts';

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const bytes = (text: string): Uint8Array => Buffer.from(text, 'hex');

/** RFC 8032 section 7.1: tests 1, 2, 3 and SHA(abc); seed, public key, message, signature. */
const VECTORS = [
  [
    '9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60',
    'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a',
    '',
    'e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b',
  ],
  [
    '4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb',
    '3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c',
    '72',
    '92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00',
  ],
  [
    'c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7',
    'fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025',
    'af82',
    '6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a',
  ],
  [
    '833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42',
    'ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf',
    'ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f',
    'dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704',
  ],
] as const;

describe.each([platformEd25519, naclEd25519])('Ed25519 by $name', (implementation) => {
  test.each(VECTORS)('reproduces RFC 8032 (seed %s)', (seed, publicKey, message, signature) => {
    expect(hex(implementation.publicKeyOf(bytes(seed)))).toBe(publicKey);
    expect(hex(implementation.signer(bytes(seed))(bytes(message)))).toBe(signature);
    expect(implementation.verifier(bytes(publicKey))(bytes(message), bytes(signature))).toBe(true);
  });

  test('refuses the malleable twin S + L of a good signature', () => {
    const [, publicKey, message, signature] = VECTORS[1];
    const twin = withScalarPlusOrder(bytes(signature));
    expect(implementation.verifier(bytes(publicKey))(bytes(message), twin)).toBe(false);
  });

  test('refuses signatures of a wrong length', () => {
    const [, publicKey, message, signature] = VECTORS[1];
    const verify = implementation.verifier(bytes(publicKey));
    expect(verify(bytes(message), bytes(signature).subarray(1))).toBe(false);
    expect(verify(bytes(message), new Uint8Array(0))).toBe(false);
  });

  test('refuses any flipped bit', () => {
    const [, publicKey, message, signature] = VECTORS[2];
    const verify = implementation.verifier(bytes(publicKey));
    fc.assert(
      fc.property(fc.nat(64 * 8 - 1), (bit) => {
        const forged = Buffer.from(signature, 'hex');
        const index = bit >> 3;
        forged[index] = (forged[index] ?? 0) ^ (1 << (bit & 7));
        expect(verify(bytes(message), forged)).toBe(false);
      }),
      { seed: 2, numRuns: 20 },
    );
  });
});

test('both implementations make and accept the same signatures', () => {
  const seed = fc.uint8Array({ minLength: 32, maxLength: 32 });
  fc.assert(
    fc.property(seed, fc.uint8Array({ maxLength: 300 }), (secret, message) => {
      const publicKey = platformEd25519.publicKeyOf(secret);
      expect(hex(naclEd25519.publicKeyOf(secret))).toBe(hex(publicKey));
      const one = platformEd25519.signer(secret)(message);
      expect(hex(naclEd25519.signer(secret)(message))).toBe(hex(one));
      expect(naclEd25519.verifier(publicKey)(message, one)).toBe(true);
      expect(platformEd25519.verifier(publicKey)(message, one)).toBe(true);
    }),
    { seed: 3, numRuns: 10 },
  );
});

test("the platform's implementation is chosen where it works", () => {
  expect(ed25519()).toBe(platformEd25519);
});

function withScalarPlusOrder(signature: Uint8Array): Uint8Array {
  const order = (1n << 252n) + 27742317777372353535851937790883648493n;
  const scalar = BigInt(`0x${hex(signature.slice(32).toReversed())}`) + order;
  const bigEndian = Buffer.from(scalar.toString(16).padStart(64, '0'), 'hex');
  return Buffer.concat([signature.subarray(0, 32), bigEndian.toReversed()]);
}
