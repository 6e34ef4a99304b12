import {
  type KeyLookup,
  type KeyStatus,
  readPrivateKey,
  type SigningKey,
} from '../../src/kernel/trust/keys.ts';

/** A signing key that is the same in every run. */
export function testKey(seed: number): SigningKey {
  const der = Buffer.concat([
    Buffer.from('302e020100300506032b657004220420', 'hex'),
    Buffer.alloc(32, seed),
  ]);
  const pem = `-----BEGIN PRIVATE KEY-----\n${der.toString('base64')}\n-----END PRIVATE KEY-----\n`;
  return readPrivateKey(pem, 'a test key');
}

/** A lookup that trusts some keys and knows of revoked ones. */
export function lookup(
  trusted: readonly SigningKey[],
  revoked: readonly SigningKey[] = [],
): KeyLookup {
  const known = new Map<string, KeyStatus>();
  for (const key of trusted) known.set(key.keyId, { status: 'trusted', key });
  for (const { keyId } of revoked) {
    known.set(keyId, { status: 'revoked', revokedAt: '2026-01-02T03:04:05Z' });
  }
  return { find: (keyId) => known.get(keyId) ?? { status: 'unknown' } };
}
