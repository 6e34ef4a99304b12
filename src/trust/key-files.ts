import { RyeError } from '../core/errors.ts';
import { parseToml, type TomlValue, tomlString } from './key-toml.ts';
import { isKeyId, type KeyLookup, readPublicKey, type VerifyingKey } from './keys.ts';
import { checkText, type Verdict } from './signature.ts';
import type { SignedSubject } from './signature-line.ts';

/** What `trusted/<fingerprint>.toml` says. */
export interface TrustedKeyFile {
  readonly key: VerifyingKey;
  readonly owner: string;
  /** Projects that the key counts for, as real paths; absent: everywhere. */
  readonly projects?: readonly string[];
}

/** What `revoked/<fingerprint>.toml` says. */
export interface RevocationFile {
  readonly keyId: string;
  /** ISO 8601 UTC. */
  readonly revokedAt: string;
  readonly reason: string;
}

/** What rye signs the file of a trusted key as. */
export function trustedKeySubject(keyId: string): SignedSubject {
  return { kind: 'trusted-key', id: keyId };
}

/** What rye signs a revocation as. */
export function revocationSubject(keyId: string): SignedSubject {
  return { kind: 'revocation', id: keyId };
}

/**
 * Checks the signature of a trusted key's file. The older form is enough, because its text states the fingerprint and an
 * unsigned one counts too.
 */
export function checkTrustedKey(text: string, keyId: string, keys: KeyLookup): Verdict {
  return checkText({ text, style: 'hash', keys, subject: trustedKeySubject(keyId) });
}

/** Reads a trusted key; throws `invalid_input` when the PEM does not have the fingerprint that the file states. */
export function parseTrustedKey(text: string, path: string): TrustedKeyFile {
  const values = parseToml(text, path);
  const key = readPublicKey(textOf(values, 'public_key.pem') ?? '', path);
  const stated = textOf(values, 'fingerprint');
  if (stated !== key.keyId) {
    throw new RyeError(
      'invalid_input',
      `the key's fingerprint is ${key.keyId}, but the file says ${stated ?? 'none'}`,
      {
        location: { path },
      },
    );
  }
  const projects = values.get('projects');
  return {
    key,
    owner: textOf(values, 'owner') ?? 'unknown',
    ...(typeof projects === 'object' ? { projects } : {}),
  };
}

/**
 * Reads what a person was given to trust: a public key PEM or a trusted-key file. Who signed the file does not
 * matter, the user vouches for the key now; an edited file or a broken or revoked signature is refused with its
 * code, a private key with `invalid_input`.
 */
export function readOfferedKey(
  text: string,
  owner: string | undefined,
  keys: KeyLookup,
): TrustedKeyFile {
  if (text.includes('PRIVATE KEY-----')) {
    throw new RyeError('invalid_input', 'this is a private key; only its owner may have it', {
      hint: 'Trust the public key, as "rye keys export" prints it.',
    });
  }
  const source = 'the key to trust';
  if (text.trimStart().startsWith('-----BEGIN')) {
    return { key: readPublicKey(text, source), owner: owner ?? 'unknown' };
  }
  const file = parseTrustedKey(text, source);
  const verdict = checkTrustedKey(text, file.key.keyId, {
    find: (keyId) =>
      keyId === file.key.keyId ? { status: 'trusted', key: file.key } : keys.find(keyId),
  });
  if (!verdict.ok && verdict.code !== 'unsigned' && verdict.code !== 'key_untrusted') {
    throw new RyeError(verdict.code, `the key file of ${file.key.keyId} does not verify`, {
      hint: 'Get the key from its owner again, and compare its fingerprint with them.',
    });
  }
  return { key: file.key, owner: owner ?? file.owner };
}

/** The file of a trusted key, unsigned; the format is the one that older installations read. */
export function renderTrustedKey({ key, owner, projects }: TrustedKeyFile): string {
  return [
    'version = "1.0.0"',
    'category = "keys/trusted"',
    `fingerprint = ${tomlString(key.keyId)}`,
    `owner = ${tomlString(owner)}`,
    ...(projects === undefined ? [] : [`projects = [${projects.map(tomlString).join(', ')}]`]),
    'attestation = ""',
    '',
    '[public_key]',
    'pem = """',
    `${key.pem}"""`,
    '',
  ].join('\n');
}

/** Reads the date of a revocation; null when the file does not say. */
export function parseRevokedAt(text: string, path: string): string | null {
  return textOf(parseToml(text, path), 'revoked_at') ?? null;
}

/** The file of a revocation, unsigned. */
export function renderRevocation({ keyId, revokedAt, reason }: RevocationFile): string {
  return [
    'version = "1.0.0"',
    'category = "keys/revoked"',
    `fingerprint = ${tomlString(keyId)}`,
    `revoked_at = ${tomlString(revokedAt)}`,
    `reason = ${tomlString(reason)}`,
    '',
  ].join('\n');
}

/** Refuses what is no fingerprint before it becomes part of a path. */
export function assertKeyId(keyId: string): void {
  if (isKeyId(keyId)) return;
  throw new RyeError(
    'invalid_input',
    `${JSON.stringify(keyId)} is not a key id: it is not 16 hexadecimal characters`,
    {
      hint: 'Run: rye keys list',
    },
  );
}

function textOf(values: ReadonlyMap<string, TomlValue>, name: string): string | undefined {
  const value = values.get(name);
  return typeof value === 'string' ? value : undefined;
}
