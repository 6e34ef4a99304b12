import { expect, it } from 'vitest';
import {
  makePoolKey,
  openPool,
  poolStatement,
  readPoolKey,
} from '../../src/features/fleet/pool-key.ts';
import {
  openSecrets,
  type SealedFor,
  sealSecrets,
} from '../../src/features/fleet/sealed-secrets.ts';
import { generateKeyPair, type KeyLookup, readPrivateKey } from '../../src/kernel/trust/keys.ts';

const PEM = makePoolKey();
const FOR: SealedFor = {
  threadId: 'job-1',
  fleet: { submitter: 'a'.repeat(16), bundle: 'b'.repeat(64), bundle_plan: 'c'.repeat(64) },
  names: ['token', 'other'],
};
const SECRETS = { token: 'hunter2', other: 'ünïcode "quoted"\n' };

it('values come back to a worker with the key, in a text that differs each time', () => {
  const sealed = sealSecrets(SECRETS, readPoolKey(PEM), FOR);
  expect(openSecrets(sealed, [makePoolKey(), PEM], FOR)).toEqual(SECRETS);
  expect(sealed).not.toContain('hunter2');
  expect(sealSecrets(SECRETS, readPoolKey(PEM), FOR)).not.toBe(sealed);
  // the order of the names does not matter
  expect(openSecrets(sealed, [PEM], { ...FOR, names: ['other', 'token'] })).toEqual(SECRETS);
});

it('a worker without the key learns nothing, and is not told that the values were changed', () => {
  const sealed = sealSecrets(SECRETS, readPoolKey(PEM), FOR);
  expect(openSecrets(sealed, [makePoolKey()], FOR)).toBeUndefined();
  expect(openSecrets(sealed, [], FOR)).toBeUndefined();
});

it('the length of the sealed text does not tell that of a short value', () => {
  const long = sealSecrets({ token: 'x'.repeat(150) }, readPoolKey(PEM), FOR);
  expect(sealSecrets({ token: 'x' }, readPoolKey(PEM), FOR)).toHaveLength(long.length);
});

it.each([
  ['the thread', { ...FOR, threadId: 'job-2' }],
  ['the submitter', { ...FOR, fleet: { ...FOR.fleet, submitter: 'd'.repeat(16) } }],
  ['the bundle', { ...FOR, fleet: { ...FOR.fleet, bundle: 'd'.repeat(64) } }],
  ['the plan', { ...FOR, fleet: { ...FOR.fleet, bundle_plan: 'd'.repeat(64) } }],
  ['the names', { ...FOR, names: ['token'] }],
])('values are refused if %s is another one', (_what, other) => {
  const sealed = sealSecrets(SECRETS, readPoolKey(PEM), FOR);
  expect(() => openSecrets(sealed, [PEM], other)).toThrow(
    expect.objectContaining({ code: 'thread_tampered' }),
  );
});

it('each changed byte is found, and garbage is refused', () => {
  const sealed = JSON.parse(sealSecrets(SECRETS, readPoolKey(PEM), FOR)) as Record<string, string>;
  const flipped = (text: string): string => (text.startsWith('A') ? 'B' : 'A') + text.slice(1);
  for (const member of ['ephemeral', 'nonce', 'data'])
    expect(() =>
      openSecrets(
        JSON.stringify({ ...sealed, [member]: flipped(sealed[member] ?? '') }),
        [PEM],
        FOR,
      ),
    ).toThrow(expect.objectContaining({ code: 'thread_tampered' }));
  for (const text of [
    '',
    '{',
    '{}',
    'null',
    JSON.stringify({ ...sealed, data: '' }),
    JSON.stringify({ ...sealed, ephemeral: '' }),
  ])
    expect(() => openSecrets(text, [PEM], FOR)).toThrow(
      expect.objectContaining({ code: 'thread_tampered' }),
    );
});

it('only the newest statement of a trusted root counts', () => {
  const root = readPrivateKey(generateKeyPair().privatePem, 'x');
  const other = readPrivateKey(generateKeyPair().privatePem, 'x');
  const trusting = (purposes: readonly string[]): KeyLookup => ({
    find: (keyId) =>
      keyId === root.keyId
        ? { status: 'trusted', key: root, scope: { purposes } as never }
        : { status: 'unknown' },
  });
  const [first, second, third] = [makePoolKey(), makePoolKey(), makePoolKey()].map(readPoolKey);
  if (!first || !second || !third) throw new Error('three keys');
  const statements = [
    poolStatement(root, second, '2026-02-01T00:00:00.000Z'),
    poolStatement(root, first, '2026-01-01T00:00:00.000Z'),
    poolStatement(other, third, '2026-03-01T00:00:00.000Z'),
    '{}',
    'null',
    '{"statement":{"domain":"rye-pool-key-v1","key":"","root":"","timestamp":""},"signature":""}',
  ];
  expect(openPool(statements, trusting(['certify'])).poolId).toBe(second.poolId);
  // a key that may sign items does not certify
  expect(() => openPool(statements, trusting(['sign']))).toThrow(
    expect.objectContaining({ code: 'key_untrusted' }),
  );
  expect(() => openPool([], trusting(['certify']))).toThrow(
    expect.objectContaining({ code: 'key_missing' }),
  );
});
