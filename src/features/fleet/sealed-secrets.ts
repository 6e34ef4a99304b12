import {
  createCipheriv,
  createDecipheriv,
  diffieHellman,
  generateKeyPairSync,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import { RyeError } from '../../kernel/core/errors.ts';
import { isRecord, parseJson } from '../../kernel/core/json.ts';
import type { PlannedFleet } from '../../kernel/core/plan.ts';
import { mapOf, objectOf, oneOf, TEXT } from '../../kernel/core/shape.ts';
import { canonicalJson } from '../../kernel/trust/canonical-json.ts';
import { type PoolKey, publicKey, rawKey, readPoolKey } from './pool-key.ts';

/** Keeps the keys that are derived here apart from others. */
const DOMAIN = 'rye-secret-inputs-v1';
const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** Bytes to which the length is rounded up, so that it tells little of the values. */
const BLOCK_BYTES = 256;

/** The thread that sealed values are for: no other one can open them. */
export interface SealedFor {
  readonly threadId: string;
  readonly fleet: Pick<PlannedFleet, 'submitter' | 'bundle' | 'bundle_plan'>;
  /** Names of the secret inputs. */
  readonly names: readonly string[];
}

type Secrets = Readonly<Record<string, string>>;

interface Sealed {
  readonly format: 1;
  /** ID of the pool key. */
  readonly pool: string;
  readonly ephemeral: string;
  readonly nonce: string;
  /** Ciphertext and tag. */
  readonly data: string;
}

const SEALED = objectOf<Sealed>({
  format: oneOf([1]),
  pool: TEXT,
  ephemeral: TEXT,
  nonce: TEXT,
  data: TEXT,
});
const VALUES = mapOf(TEXT);

/** Seals values to the workers of a fleet: X25519, HKDF-SHA-256, AES-256-GCM. */
export function sealSecrets(secrets: Secrets, pool: PoolKey, given: SealedFor): string {
  const ephemeral = generateKeyPairSync('x25519');
  const nonce = randomBytes(NONCE_BYTES);
  const key = sharedKey(ephemeral.privateKey, pool.key, {
    ephemeral: rawKey(ephemeral.publicKey),
    pool: rawKey(pool.key),
  });
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(boundTo(given, pool.poolId));
  const text = Buffer.from(JSON.stringify(secrets));
  const padding = Buffer.alloc(BLOCK_BYTES - (text.length % BLOCK_BYTES), ' ');
  const data = Buffer.concat([
    cipher.update(text),
    cipher.update(padding),
    cipher.final(),
    cipher.getAuthTag(),
  ]);
  const sealed: Sealed = {
    format: 1,
    pool: pool.poolId,
    ephemeral: rawKey(ephemeral.publicKey).toString('base64url'),
    nonce: nonce.toString('base64url'),
    data: data.toString('base64url'),
  };
  return JSON.stringify(sealed);
}

/**
 * Opens sealed values with one of the pool keys of a worker. Returns undefined if it has not the key that they are sealed to;
 * throws `thread_tampered` if they were changed or belong to another thread.
 */
export function openSecrets(
  text: string,
  pems: readonly string[],
  given: SealedFor,
): Secrets | undefined {
  const sealed: unknown = parseJson(text);
  if (!SEALED.fits(sealed)) throw changed(given.threadId);
  const pool = pems.map(readPoolKey).find(({ poolId }) => poolId === sealed.pool);
  if (!pool) return undefined;
  const values = opened(sealed, pool, given);
  if (values && Object.keys(values).every((name) => given.names.includes(name))) return values;
  throw changed(given.threadId);
}

function opened(sealed: Sealed, pool: PoolKey, given: SealedFor): Secrets | undefined {
  try {
    const ephemeral = Buffer.from(sealed.ephemeral, 'base64url');
    const data = Buffer.from(sealed.data, 'base64url');
    const sender = publicKey(ephemeral);
    if (!sender) return undefined;
    const key = sharedKey(pool.key, sender, { ephemeral, pool: rawKey(pool.key) });
    const nonce = Buffer.from(sealed.nonce, 'base64url');
    const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(boundTo(given, sealed.pool));
    decipher.setAuthTag(data.subarray(-TAG_BYTES));
    const clear = Buffer.concat([decipher.update(data.subarray(0, -TAG_BYTES)), decipher.final()]);
    const value: unknown = parseJson(clear.toString('utf8'));
    return isRecord(value) && VALUES.fits(value) ? value : undefined;
  } catch {
    return undefined; // the tag does not match; the error may tell more than a reader should know
  }
}

function sharedKey(
  privateKey: KeyObject,
  other: KeyObject,
  { ephemeral, pool }: { readonly ephemeral: Buffer; readonly pool: Buffer },
): Buffer {
  const shared = diffieHellman({ privateKey, publicKey: other });
  return Buffer.from(hkdfSync('sha256', shared, Buffer.concat([ephemeral, pool]), DOMAIN, 32));
}

function boundTo({ threadId, fleet, names }: SealedFor, poolId: string): Buffer {
  const { submitter, bundle, bundle_plan } = fleet;
  return Buffer.from(
    canonicalJson({
      domain: DOMAIN,
      pool: poolId,
      thread_id: threadId,
      submitter,
      bundle,
      bundle_plan,
      names: names.toSorted(),
    }),
  );
}

function changed(threadId: string): RyeError {
  return new RyeError('thread_tampered', `the sealed secret inputs of ${threadId} do not verify`, {
    hint: 'They were changed in the database, or belong to another thread. Start the thread again.',
    details: { thread_id: threadId },
  });
}
