import type { TomlTable } from 'smol-toml';
import { RyeError } from '../core/errors.ts';
import { parseToml, tomlString } from './key-files.ts';
import { isKeyId, readPublicKey, type SigningKey, type VerifyingKey } from './keys.ts';
import { checkText, signText } from './signature.ts';
import type { SignedSubject } from './signature-line.ts';

/** A statement of an old key that another key takes its place, as it is in `rotated/<old key>.toml`. */
export interface Rotation {
  /** Fingerprint of the old key. */
  readonly keyId: string;
  readonly successor: VerifyingKey;
  /** Signature of the new key: its owner agrees. */
  readonly proof: string;
}

/** A statement that a key no longer counts, as it is in `revoked/<key>.toml`. */
export interface Revocation {
  readonly keyId: string;
  /** ISO 8601 UTC. What the key signed from then on counts for nothing. */
  readonly revokedAt: string;
  readonly reason: string;
  /** The only key that takes its place, if its owner named one. */
  readonly successor?: string;
}

/** Returns the subject of the signature of a revocation. */
export function revocationSubject(keyId: string): SignedSubject {
  return { kind: 'revocation', id: keyId };
}

function rotationSubject(keyId: string): SignedSubject {
  return { kind: 'rotation', id: keyId };
}

/** Returns the signed file with which `old` names its successor. `now` is in milliseconds since the epoch. */
export function rotationText(old: SigningKey, next: SigningKey, now: number): string {
  const text = [
    'version = "1.0.0"',
    'category = "keys/rotated"',
    `fingerprint = ${tomlString(old.keyId)}`,
    `successor = ${tomlString(next.keyId)}`,
    '# The new key counts wherever the old one counts, and for no more.',
    'scope = "inherited"',
    `proof = ${tomlString(next.sign(agreement(old.keyId, next.keyId)))}`,
    '',
    '[public_key]',
    'pem = """',
    `${next.pem}"""`,
    '',
  ].join('\n');
  return signText({ text, style: 'hash', subject: rotationSubject(old.keyId), key: old, now });
}

/** The text that the new key signs, which nothing else that rye signs can equal. */
function agreement(old: string, next: string): string {
  return `rye-rotation-v1\nold ${old}\nnew ${next}\n`;
}

/** Parses a rotation and checks its form, not yet who signed it. Throws `invalid_input`. */
export function parseRotation(text: string, path: string): Rotation {
  const values = parseToml(text, path);
  const { public_key: table, fingerprint, successor, proof, scope } = values;
  const pem = typeof table === 'object' && 'pem' in table ? table['pem'] : undefined;
  const key = readPublicKey(typeof pem === 'string' ? pem : '', path);
  const isWhole =
    typeof fingerprint === 'string' &&
    isKeyId(fingerprint) &&
    typeof proof === 'string' &&
    successor === key.keyId &&
    successor !== fingerprint &&
    scope === 'inherited';
  if (!isWhole) throw malformed('rotation', path);
  return { keyId: fingerprint, successor: key, proof };
}

/** Returns the time of signing of a rotation if both keys signed it; undefined otherwise. */
export function rotationTime(text: string, rotation: Rotation, old: VerifyingKey) {
  const { keyId, successor, proof } = rotation;
  const isAgreed = successor.verify(agreement(keyId, successor.keyId), proof);
  const verdict = checkText({
    text,
    style: 'hash',
    subject: rotationSubject(keyId),
    keys: only(old),
  });
  return isAgreed && verdict.ok && verdict.by === 'key' ? verdict.signedAt : undefined;
}

/** Returns the unsigned file of a revocation. */
export function renderRevocation({ keyId, revokedAt, reason, successor }: Revocation): string {
  return [
    'version = "1.0.0"',
    'category = "keys/revoked"',
    `fingerprint = ${tomlString(keyId)}`,
    `revoked_at = ${tomlString(revokedAt)}`,
    `reason = ${tomlString(reason)}`,
    ...(successor === undefined ? [] : [`successor = ${tomlString(successor)}`]),
    '',
  ].join('\n');
}

/** Parses a revocation and checks its form, not yet who signed it. Throws `invalid_input`. */
export function parseRevocation(text: string, path: string): Revocation {
  const { fingerprint, revoked_at: at, reason, successor } = parseToml(text, path);
  const isWhole =
    typeof fingerprint === 'string' &&
    isKeyId(fingerprint) &&
    typeof at === 'string' &&
    !Number.isNaN(Date.parse(at)) &&
    HAS_ZONE.test(at) &&
    (successor === undefined || (typeof successor === 'string' && isKeyId(successor)));
  if (!isWhole) throw malformed('revocation', path);
  return {
    keyId: fingerprint,
    revokedAt: at,
    reason: textOf(reason),
    ...(successor === undefined ? {} : { successor: textOf(successor) }),
  };
}

/** Without a zone, a time is another one on each machine; a date alone is in UTC. */
const HAS_ZONE = /^\d{4}-\d\d-\d\d$|(?:Z|[+-]\d\d:?\d\d)$/;

/** True if `key` signed the revocation in this file. */
export function isRevokedBy(text: string, keyId: string, key: VerifyingKey): boolean {
  const subject = revocationSubject(keyId);
  return checkText({ text, style: 'hash', subject, keys: only(key) }).ok;
}

/** A lookup that knows one key. */
function only(key: VerifyingKey) {
  return {
    find: (keyId: string) =>
      keyId === key.keyId
        ? ({ status: 'trusted', key } as const)
        : ({ status: 'unknown' } as const),
  };
}

function textOf(value: TomlTable[string] | undefined): string {
  return typeof value === 'string' ? value : '';
}

function malformed(what: string, path: string): RyeError {
  return new RyeError('invalid_input', `this is not a ${what} of a key`, {
    location: { path },
    hint: 'Get the file from its owner again; see docs/trust.md.',
  });
}
