import { createHash, verify } from 'node:crypto';
import canonicalize from 'canonicalize';
import { describe, expect, it } from 'vitest';
import type { ApprovalDecision, SignedDecision } from '../../src/kernel/core/approval.ts';
import {
  canonicalSha256,
  decisionFault,
  decisionStatement,
  recordedFault,
  signatureFault,
  signDecision,
} from '../../src/kernel/trust/approval.ts';
import { generateKeyPair, type KeyStatus, readPrivateKey } from '../../src/kernel/trust/keys.ts';

const key = readPrivateKey(generateKeyPair().privatePem, 'a key');
const other = readPrivateKey(generateKeyPair().privatePem, 'another key');
const DECISION: Omit<ApprovalDecision, 'key_id'> = {
  format: 1,
  approval_id: 'apr-1',
  thread_id: 't-1',
  request_sha256: 'f'.repeat(64),
  decision: 'approve',
  scope: 'once',
  constraints: {},
  comment: 'é',
  decided_at: '2026-01-02T00:00:00.000Z',
};
const signed = signDecision(DECISION, key);
const trusting = (status: KeyStatus) => ({ find: () => status });
const trusted: KeyStatus = { status: 'trusted', key };

it('hashes the canonical form, in any order of the members', () => {
  expect(canonicalSha256({ b: 1, a: ['é'] })).toBe(canonicalSha256({ a: ['é'], b: 1 }));
  const hash = createHash('sha256').update('{"a":["é"],"b":1}').digest('hex');
  expect(canonicalSha256({ b: 1, a: ['é'] })).toBe(hash);
});

it('is verified by any Ed25519 over the domain and the canonical decision', () => {
  const message = Buffer.from(`rye-approval-v1\n${canonicalize(signed.decision)}`);
  expect(decisionStatement(signed.decision)).toBe(message.toString());
  const signature = Buffer.from(signed.signature, 'base64url');
  expect(verify(null, message, signed.public_key, signature)).toBe(true);
});

const ABOUT = { item: { id: 'rye/bash', sha256: '0' }, capability: 'rye.execute.tool.rye.bash' };

describe('decisionFault', () => {
  it.each<readonly [string, SignedDecision]>([
    ['a changed comment', { ...signed, decision: { ...signed.decision, comment: 'x' } }],
    ['a wider scope', { ...signed, decision: { ...signed.decision, scope: 'tool' } }],
    [
      'another key in the decision',
      { ...signed, decision: { ...signed.decision, key_id: other.keyId } },
    ],
    ['another public key', { ...signed, public_key: other.pem }],
    ['no key at all', { ...signed, public_key: '' }],
    ['another signature', { ...signed, signature: signDecision(DECISION, other).signature }],
    [
      'the same decision for another request',
      { ...signed, decision: { ...signed.decision, request_sha256: '0' } },
    ],
  ])('%s: signature_invalid', (_what, forged) => {
    expect(signatureFault(forged)).toBe('signature_invalid');
    expect(decisionFault(forged, ABOUT, trusting(trusted))).toBe('signature_invalid');
  });

  it.each<readonly [KeyStatus, string | undefined]>([
    [trusted, undefined],
    [{ ...trusted, scope: { purposes: ['approve'] } }, undefined],
    [{ ...trusted, scope: { purposes: ['sign', 'approve'] } }, undefined],
    [{ ...trusted, scope: { purposes: ['sign'] } }, 'wrong_purpose'],
    [{ ...trusted, scope: { purposes: ['approve'], ids: ['rye/*'], types: ['tool'] } }, undefined],
    [{ ...trusted, scope: { purposes: ['approve'], ids: ['reports/*'] } }, 'out_of_scope'],
    [{ ...trusted, scope: { purposes: ['approve'], types: ['directive'] } }, 'out_of_scope'],
    [{ status: 'revoked', revokedAt: null }, 'key_revoked'],
    [{ status: 'unknown' }, 'key_untrusted'],
  ])('%o: %s', (status, fault) => {
    expect(decisionFault(signed, ABOUT, trusting(status))).toBe(fault);
  });

  it.each<readonly [revoked: string, decided: string, counts: boolean]>([
    ['2026-11-27T09:00:00+09:00', '2026-11-27T05:00:00.000Z', false],
    ['2026-11-27T02:00:00Z', '2026-11-27T02:00:00.500Z', false],
    ['2026-11-26T23:30:00-05:00', '2026-11-27T04:00:00.000Z', true],
    ['2026-11-27T02:00:00Z', '2026-11-27T01:59:59.999Z', true],
  ])('a key that was revoked at %s decided at %s: %s', (revokedAt, at, counts) => {
    const one = signDecision({ ...DECISION, decided_at: at }, key);
    const status = { ...trusted, status: 'revoked', revokedAt } as KeyStatus;
    expect(recordedFault(one, ABOUT, trusting(status))).toBe(counts ? undefined : 'key_revoked');
  });
});
