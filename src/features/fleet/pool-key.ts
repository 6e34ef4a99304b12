import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
} from 'node:crypto';
import { RyeError } from '../../kernel/core/errors.ts';
import { isRecord, parseJson } from '../../kernel/core/json.ts';
import { canonicalJson } from '../../kernel/trust/canonical-json.ts';
import { type KeyLookup, type SigningKey, sha256Hex } from '../../kernel/trust/keys.ts';

/** Keeps what is signed here apart from everything else that the same key signs. */
const DOMAIN = 'rye-pool-key-v1';

/** The public key of a fleet's workers, X25519: what is sealed to it, each of them can open. */
export interface PoolKey {
  /** The first 16 hex of SHA-256 over the raw key. */
  readonly poolId: string;
  readonly key: KeyObject;
}

interface Statement {
  readonly domain: typeof DOMAIN;
  /** The raw key, base64url. */
  readonly key: string;
  readonly root: string;
  /** ISO 8601, UTC. */
  readonly timestamp: string;
}

/** Makes a private key, PKCS #8 in PEM form. */
export function makePoolKey(): string {
  const { privateKey } = generateKeyPairSync('x25519');
  return privateKey.export({ format: 'pem', type: 'pkcs8' }).toString();
}

/** Reads a private key; throws `invalid_input`, never with its text. */
export function readPoolKey(pem: string): PoolKey {
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === 'x25519') return { poolId: idOf(rawKey(key)), key };
  } catch {
    // the same answer as for a key of another kind
  }
  throw new RyeError('invalid_input', 'the pool key of the fleet is damaged', {
    hint: 'Enroll the worker again: rye fleet enroll --label NAME > worker.token',
  });
}

/** Returns the statement of the fleet's root that a key is the one of its workers. */
export function poolStatement(root: SigningKey, { key }: PoolKey, timestamp: string): string {
  const statement: Statement = {
    domain: DOMAIN,
    key: rawKey(key).toString('base64url'),
    root: root.keyId,
    timestamp,
  };
  const signature = root.sign(canonicalJson({ ...statement }));
  return JSON.stringify({ statement, signature });
}

/**
 * Returns the newest public key that a trusted root of a fleet has certified. The server that keeps the statements is a
 * courier: those that do not verify do not count. Throws `key_missing` or `key_untrusted` without one.
 */
export function openPool(statements: readonly string[], keys: KeyLookup): PoolKey {
  const found = statements.flatMap((text) => readStatement(text, keys));
  const trusted = found.filter(({ isTrusted }) => isTrusted);
  const newest = trusted.toSorted((a, b) => (a.timestamp < b.timestamp ? 1 : -1))[0];
  if (newest) return newest;
  if (statements.length === 0)
    throw new RyeError('key_missing', 'the fleet has no key that secret inputs are sealed to', {
      hint: 'Where the fleet was made, run: rye fleet init --database URL. Then enroll its workers again.',
    });
  throw new RyeError(
    'key_untrusted',
    "the fleet's sealing key is not certified by a root that you trust",
    {
      hint: 'Where the fleet was made: rye fleet root > root.pem. Here: rye keys trust root.pem --for certify',
    },
  );
}

interface Found extends PoolKey {
  readonly timestamp: string;
  readonly isTrusted: boolean;
}

function readStatement(text: string, keys: KeyLookup): readonly Found[] {
  const value = parseJson(text);
  const statement = isRecord(value) ? value['statement'] : undefined;
  const signature = isRecord(value) ? value['signature'] : undefined;
  if (!isRecord(statement) || typeof signature !== 'string') return [];
  const { domain, key: raw, root, timestamp } = statement;
  if (domain !== DOMAIN || typeof raw !== 'string' || typeof root !== 'string') return [];
  if (typeof timestamp !== 'string') return [];
  const by = keys.find(root);
  const isRoot = by.status === 'trusted' && by.scope?.purposes.includes('certify') === true;
  const known = { domain: DOMAIN, key: raw, root, timestamp };
  const isTrusted = isRoot && by.key.verify(canonicalJson(known), signature);
  const key = publicKey(Buffer.from(known.key, 'base64url'));
  return key ? [{ poolId: idOf(rawKey(key)), key, timestamp: known.timestamp, isTrusted }] : [];
}

/** Makes a public key of 32 raw bytes. */
export function publicKey(raw: Uint8Array): KeyObject | undefined {
  if (raw.length !== 32) return undefined;
  const jwk = { kty: 'OKP', crv: 'X25519', x: Buffer.from(raw).toString('base64url') };
  return createPublicKey({ key: jwk, format: 'jwk' });
}

/** Returns the raw public key of a private or public one. */
export function rawKey(key: KeyObject): Buffer {
  const { x = '' } = (key.type === 'private' ? createPublicKey(key) : key).export({
    format: 'jwk',
  });
  return Buffer.from(x, 'base64url');
}

function idOf(raw: Uint8Array): string {
  return sha256Hex(raw).slice(0, 16);
}
