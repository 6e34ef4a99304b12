import { createHash, randomBytes } from 'node:crypto';
import { RyeError } from '../core/errors.ts';
import { LruMap } from '../core/lru.ts';
import type { PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import { type Ed25519, ed25519, KEY_BYTES, PKCS8_PREFIX, SPKI_PREFIX } from './ed25519.ts';

/** A public key that signatures are checked with. */
export interface VerifyingKey {
  /** Fingerprint: the first 16 hex of SHA-256 over `pem`. */
  readonly keyId: string;
  /** SPKI PEM with its final newline. */
  readonly pem: string;
  verify(message: string, signature: string): boolean;
}

/** A private key; its seed stays inside. Signatures are base64url without padding. */
export interface SigningKey extends VerifyingKey {
  sign(message: string): string;
}

/** What a keyring knows about a fingerprint. `reason` says why a known key does not count. */
export type KeyStatus =
  | { readonly status: 'trusted'; readonly key: VerifyingKey }
  | { readonly status: 'revoked'; readonly revokedAt: string | null }
  | { readonly status: 'unknown'; readonly reason?: string };

/** Looks keys up by fingerprint; the only thing that checking a signature needs of a keyring. */
export interface KeyLookup {
  find(keyId: string): KeyStatus;
}

const KEY_ID = /^[0-9a-f]{16}$/;

/** True for a fingerprint: 16 lower-case hexadecimal characters. */
export function isKeyId(text: string): boolean {
  return KEY_ID.test(text);
}

/** SHA-256 as 64 lower-case hexadecimal characters; text is read as UTF-8. */
export function sha256Hex(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

/** The first 16 hex of SHA-256 over a public key's PEM text, header, footer and final newline included. */
export function fingerprint(pem: string): string {
  return sha256Hex(pem).slice(0, 16);
}

/** A new random key as PEM texts: PKCS #8 private, SPKI public. */
export function generateKeyPair(): { readonly privatePem: string; readonly publicPem: string } {
  const seed = randomBytes(KEY_BYTES);
  return {
    privatePem: toPem('PRIVATE KEY', Buffer.concat([PKCS8_PREFIX, seed])),
    publicPem: publicPem(ed25519().publicKeyOf(seed)),
  };
}

/** Reads an SPKI PEM; throws `invalid_input` naming `source` when it is not an Ed25519 public key. */
export function readPublicKey(
  pem: string,
  source: string,
  crypto: Ed25519 = ed25519(),
): VerifyingKey {
  return verifyingKey(derOf(pem, 'PUBLIC KEY', SPKI_PREFIX, source), crypto);
}

/** Reads a PKCS #8 PEM; throws `invalid_input` naming `source`, never its content. */
export function readPrivateKey(
  pem: string,
  source: string,
  crypto: Ed25519 = ed25519(),
): SigningKey {
  const seed = derOf(pem, 'PRIVATE KEY', PKCS8_PREFIX, source);
  const sign = crypto.signer(seed);
  return {
    ...verifyingKey(crypto.publicKeyOf(seed), crypto),
    sign: (message) => Buffer.from(sign(Buffer.from(message, 'utf8'))).toString('base64url'),
  };
}

/** The statement of a file's signature is short. One that was good stays good, and checking it is slow. */
const REMEMBERED_LENGTH = 512;

function verifyingKey(raw: Uint8Array, crypto: Ed25519): VerifyingKey {
  const pem = publicPem(raw);
  const verify = crypto.verifier(raw);
  const good = new LruMap<string, true>(1024);
  return {
    keyId: fingerprint(pem),
    pem,
    verify: (message, signature) => {
      const pair = `${signature} ${message}`;
      if (good.get(pair) === true) return true;
      const bytes = signatureBytes(signature);
      const isGood = bytes !== undefined && verify(Buffer.from(message, 'utf8'), bytes);
      if (isGood && message.length <= REMEMBERED_LENGTH) good.set(pair, true);
      return isGood;
    },
  };
}

/**
 * Decodes base64url, with or without padding. Exactly one text stands for a signature: stray bits in the last
 * character are refused, so that no edit of a signed line goes unnoticed.
 */
function signatureBytes(text: string): Uint8Array | undefined {
  const bare = text.replace(/={1,2}$/, '');
  const bytes = Buffer.from(bare, 'base64url');
  return bytes.toString('base64url') === bare ? bytes : undefined;
}

function publicPem(raw: Uint8Array): string {
  return toPem('PUBLIC KEY', Buffer.concat([SPKI_PREFIX, raw]));
}

function toPem(label: string, der: Uint8Array): string {
  return `-----BEGIN ${label}-----\n${Buffer.from(der).toString('base64')}\n-----END ${label}-----\n`;
}

function derOf(pem: string, label: string, prefix: Buffer, source: string): Uint8Array {
  const lines = pem.trim().split(/\r?\n/);
  const framed =
    lines[0] === `-----BEGIN ${label}-----` && lines.at(-1) === `-----END ${label}-----`;
  const der = framed ? Buffer.from(lines.slice(1, -1).join(''), 'base64') : Buffer.alloc(0);
  if (der.length !== prefix.length + KEY_BYTES || !der.subarray(0, prefix.length).equals(prefix)) {
    throw new RyeError(
      'invalid_input',
      `${source} is not an Ed25519 ${label.toLowerCase()} in PEM form`,
      {
        hint: `It has one block from "-----BEGIN ${label}-----" to "-----END ${label}-----".`,
      },
    );
  }
  return der.subarray(prefix.length);
}

/** One key as `rye keys list` shows it. */
export interface KeyInfo {
  readonly key_id: string;
  readonly owner: string;
  readonly source: 'own' | 'user' | 'project';
  readonly trusted: boolean;
  readonly revoked: boolean;
  readonly revoked_at?: string;
  readonly path: string;
  /** Why a key file does not count. */
  readonly problem?: string;
}

/**
 * The user's signing key and the keys that they trust. Opening reads nothing. Lookups read single files when they
 * are needed and notice changes that other processes made, a revocation above all.
 */
export interface Keyring extends KeyLookup {
  /** The signing key; throws `key_missing`, `key_unsafe`, or `key_revoked`. */
  signer(): SigningKey;
  payloadSigner(): PayloadSigner;
  readonly payloadVerifier: PayloadVerifier;
  /** Creates the signing key; throws `already_exists` when there is one. */
  init(): Promise<KeyInfo>;
  list(): readonly KeyInfo[];
  export(): { readonly key_id: string; readonly pem: string };
  /** What {@link trust} would write, and the projects that it would count for; absent: everywhere. */
  inspect(
    text: string,
    options?: { readonly owner?: string },
  ): { readonly key_id: string; readonly owner: string; readonly projects?: readonly string[] };
  /** Trusts a PEM or a trusted-key TOML. A key that the project carries is confirmed for that project only. */
  trust(text: string, options?: { readonly owner?: string }): Promise<KeyInfo>;
  /** Writes a signed, dated revocation; nothing that the key signed is accepted from then on. */
  revoke(keyId: string, options?: { readonly reason?: string }): Promise<KeyInfo>;
  /** Replaces the signing key by a new one that the old one vouches for; the old one stays trusted. */
  rotate(): Promise<{ readonly old_key_id: string; readonly key_id: string }>;
}
