import { isoSeconds } from '../core/clock.ts';
import { RyeError } from '../core/errors.ts';
import { parseToml, tomlString } from './key-files.ts';
import { isKeyId, readPublicKey, type SigningKey, type VerifyingKey } from './keys.ts';
import { checkText, signText } from './signature.ts';
import type { SignedSubject } from './signature-line.ts';

/** The statement of a fleet's root that a key is the one of a worker, as it is in `certified/<worker>.toml`. */
export interface Certificate {
  readonly key: VerifyingKey;
  /** Fingerprint of the root. */
  readonly root: string;
  readonly labels: readonly string[];
  /** ISO 8601 UTC. Records that the worker signs from then on do not count. */
  readonly notAfter: string;
}

export interface CertifiedWorker {
  readonly key: VerifyingKey;
  readonly labels: readonly string[];
  /** Milliseconds since the epoch. */
  readonly notAfter: number;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

function certificateSubject(keyId: string): SignedSubject {
  return { kind: 'certificate', id: keyId };
}

/** Returns the signed file with which a fleet's root certifies a worker. */
export function certificateText(root: SigningKey, worker: CertifiedWorker): string {
  const { key, labels, notAfter, now } = worker;
  const text = [
    'version = "1.0.0"',
    'category = "keys/certified"',
    `fingerprint = ${tomlString(key.keyId)}`,
    `root = ${tomlString(root.keyId)}`,
    `labels = [${labels.map(tomlString).join(', ')}]`,
    `not_after = ${tomlString(isoSeconds(notAfter))}`,
    '',
    '[public_key]',
    'pem = """',
    `${key.pem}"""`,
    '',
  ].join('\n');
  return signText({ text, style: 'hash', subject: certificateSubject(key.keyId), key: root, now });
}

/** Parses a certificate and checks its form, not yet who signed it. Throws `invalid_input`. */
export function parseCertificate(text: string, path: string): Certificate {
  const { public_key: table, fingerprint, root, labels, not_after: end } = parseToml(text, path);
  const pem = typeof table === 'object' && 'pem' in table ? table['pem'] : undefined;
  const key = readPublicKey(typeof pem === 'string' ? pem : '', path);
  const isWhole =
    fingerprint === key.keyId &&
    typeof root === 'string' &&
    isKeyId(root) &&
    root !== fingerprint &&
    Array.isArray(labels) &&
    typeof end === 'string' &&
    !Number.isNaN(Date.parse(end));
  if (!isWhole) {
    throw new RyeError('invalid_input', `${path} is not the certificate of a worker`, {
      location: { path },
      hint: 'Enroll the worker again: rye fleet enroll --label NAME',
    });
  }
  return { key, root, labels: labels.map(String), notAfter: end };
}

/** True if this root signed the certificate. */
export function certificateOf(text: string, { key, root }: Certificate, by: VerifyingKey): boolean {
  const keys = {
    find: (keyId: string) =>
      keyId === by.keyId && keyId === root
        ? ({ status: 'trusted', key: by } as const)
        : ({ status: 'unknown' } as const),
  };
  const subject = certificateSubject(key.keyId);
  const verdict = checkText({ text, style: 'hash', subject, keys });
  return verdict.ok && verdict.by === 'key';
}
