import { expect, it } from 'vitest';
import { isCertified, plainLabels, workerProof } from '../../src/features/fleet/worker-proof.ts';
import { certificateText, parseCertificate } from '../../src/kernel/trust/certificates.ts';
import { generateKeyPair, type KeyStatus, readPrivateKey } from '../../src/kernel/trust/keys.ts';

const NOW = Date.UTC(2026, 0, 2);
const DAY = 86_400_000;
const newKey = (source: string) => readPrivateKey(generateKeyPair().privatePem, source);
const root = newKey('the root');
const worker = newKey('the worker');
const ROW = { worker_id: 'eu-1', labels: ['eu', workerProof(worker, 'eu-1')] };
const CERTIFIES = { status: 'trusted', key: root, scope: { purposes: ['certify'] } } as const;
const UNKNOWN = { status: 'unknown' } as const;

interface Facts {
  readonly row?: typeof ROW;
  readonly now?: number;
  readonly ofRoot?: KeyStatus;
  readonly ofWorker?: KeyStatus;
}

function certified({ row = ROW, now = NOW, ofRoot = CERTIFIES, ofWorker = UNKNOWN }: Facts = {}) {
  const facts = { key: worker, labels: ['eu'], notAfter: NOW + DAY, now: NOW };
  const certificates = new Map([[worker.keyId, certificateText(root, facts)]]);
  const keys = { find: (id: string) => (id === root.keyId ? ofRoot : ofWorker) };
  return isCertified(row, { certificates, keys, now });
}

it.each<[string, Facts, boolean]>([
  ['with a certificate of a root that may certify', {}, true],
  ['whose key was revoked', { ofWorker: { status: 'revoked', revokedAt: null } }, false],
  ['whose certificate has expired', { now: NOW + 2 * DAY }, false],
  ['that has the proof of another one', { row: { ...ROW, worker_id: 'eu-2' } }, false],
  ['without a proof', { row: { ...ROW, labels: ['eu'] } }, false],
  ['whose root is not trusted', { ofRoot: UNKNOWN }, false],
  [
    'whose root is trusted for records',
    { ofRoot: { ...CERTIFIES, scope: { purposes: ['sign'] } } },
    false,
  ],
])('a worker %s', (_name, facts, expected) => {
  expect(certified(facts)).toBe(expected);
  expect(plainLabels(ROW)).toEqual(['eu']);
});

it('no key certifies itself', () => {
  const facts = { key: worker, labels: [], notAfter: NOW + DAY, now: NOW };
  const own = certificateText(worker, facts);
  expect(() => parseCertificate(own, 'own.toml')).toThrow('own.toml is not the certificate');
  expect(parseCertificate(certificateText(root, facts), 'x').root).toBe(root.keyId);
});
