import { createHash, randomBytes } from 'node:crypto';
import { RyeError } from '../core/errors.ts';
import { LruMap } from '../core/lru.ts';
import type { PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import { type Ed25519, ed25519, KEY_BYTES, PKCS8_PREFIX, SPKI_PREFIX } from './ed25519.ts';
import type { KeyPurpose, KeyScope, ScopeRequest } from './scope.ts';

/** A public key that verifies signatures. */
export interface VerifyingKey {
  /** Fingerprint: the first 16 hex of SHA-256 over `pem`. */
  readonly keyId: string;
  /** SPKI PEM with its final newline. */
  readonly pem: string;
  verify(message: string, signature: string): boolean;
}

/** A private key that does not expose its seed. Signatures are base64url without padding. */
export interface SigningKey extends VerifyingKey {
  sign(message: string): string;
}

/**
 * The status of a fingerprint in a keyring. `scope` limits a trusted key; absent: the user's own key. `reason` explains
 * why a known key does not count.
 */
export type KeyStatus =
  | {
      readonly status: 'trusted';
      readonly key: VerifyingKey;
      readonly scope?: KeyScope;
      /** The trusted key that named this one as its successor. */
      readonly rotatedFrom?: string;
    }
  | RevokedKey
  | { readonly status: 'unknown'; readonly reason?: string };

/** A revoked key. `key` is absent if it would not be trusted anyway. */
export interface RevokedKey {
  readonly status: 'revoked';
  /** ISO 8601 UTC; null if the revocation is unreadable. Records that the key signed earlier still count. */
  readonly revokedAt: string | null;
  readonly key?: VerifyingKey;
  readonly scope?: KeyScope;
  /** The only key that may take its place. */
  readonly successor?: string;
}

/** Finds keys by fingerprint. */
export interface KeyLookup {
  find(keyId: string): KeyStatus;
}

const KEY_ID = /^[0-9a-f]{16}$/;

/** True for a fingerprint: 16 lower-case hexadecimal characters. */
export function isKeyId(text: string): boolean {
  return KEY_ID.test(text);
}

/** Returns SHA-256 as 64 lower-case hexadecimal characters; hashes text as UTF-8. */
export function sha256Hex(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

/** Returns the first 16 hex of SHA-256 over a public key's PEM text with header, footer and final newline. */
export function fingerprint(pem: string): string {
  return sha256Hex(pem).slice(0, 16);
}

/** Matches an id that YAML without quotes reads as a number, which loses digits: 0012…, 12e34…. */
const LIKE_A_NUMBER = /^\d+(?:e\d+)?$/;

/**
 * Generates a key as PEM texts: PKCS #8 private, SPKI public. Its fingerprint never looks like a number, since people
 * write it into YAML (one key of 750 would).
 */
export function generateKeyPair(): { readonly privatePem: string; readonly publicPem: string } {
  for (;;) {
    const seed = randomBytes(KEY_BYTES);
    const pem = publicPem(ed25519().publicKeyOf(seed));
    if (LIKE_A_NUMBER.test(fingerprint(pem))) continue;
    return {
      privatePem: toPem('PRIVATE KEY', Buffer.concat([PKCS8_PREFIX, seed])),
      publicPem: pem,
    };
  }
}

/** Parses an SPKI PEM; throws `invalid_input` naming `source` if it is not an Ed25519 public key. */
export function readPublicKey(
  pem: string,
  source: string,
  crypto: Ed25519 = ed25519(),
): VerifyingKey {
  return verifyingKey(derOf(pem, 'PUBLIC KEY', SPKI_PREFIX, source), crypto);
}

/** Parses a PKCS #8 PEM; throws `invalid_input` naming `source`, never its content. */
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

/** Maximum length of messages whose valid signatures are remembered, because verifying is slow. */
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
 * Decodes base64url with or without padding. Each signature has exactly one text: refuses stray bits in the last
 * character, so that every edit of a signed line is detected.
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
      { hint: `Supply one block from "-----BEGIN ${label}-----" to "-----END ${label}-----".` },
    );
  }
  return der.subarray(prefix.length);
}

/** A key as listed by `rye keys list`. */
export interface KeyInfo {
  readonly key_id: string;
  readonly owner: string;
  /** The place of its file; `environment` means `RYE_SIGNING_KEY` or `RYE_TRUSTED_KEYS`. */
  readonly source: 'own' | 'user' | 'project' | 'environment';
  readonly trusted: boolean;
  readonly revoked: boolean;
  readonly revoked_at?: string;
  readonly path: string;
  /** Its purposes now; empty unless it is trusted. */
  readonly purposes: readonly KeyPurpose[];
  /** Globs over the only ids that it may sign; absent: every id. */
  readonly only?: readonly string[];
  /** The only item types that it may sign, or `thread`; absent: every type. */
  readonly types?: readonly string[];
  /** Real paths of the only projects in which it counts; absent: everywhere. */
  readonly projects?: readonly string[];
  /** The trusted key that named this one as its successor with `rye keys rotate`. */
  readonly rotated_from?: string;
  /** The reason why a key file does not count. */
  readonly problem?: string;
}

export interface InitOptions {
  /** The comment or the fingerprint of an Ed25519 key that ssh-agent holds. Absent: a new key is made. */
  readonly agent?: string;
}

/** A finished rotation. */
export interface KeyRotation {
  readonly old_key_id: string;
  readonly key_id: string;
  /** The statement in the project that moves the trust of others; absent without a project. */
  readonly statement?: string;
}

/** Details of a revocation. */
export interface RevokeOptions {
  readonly reason?: string;
  /** ISO 8601 date or time from which signatures no longer count; default: now. */
  readonly since?: string;
}

/** The owner and the limits of a key to trust. */
export interface TrustOptions extends ScopeRequest {
  readonly owner?: string;
}

/** The trusted key that a file would lead to. */
export interface OfferedKey {
  readonly key_id: string;
  readonly owner: string;
  /** The limits of the key in one clause. */
  readonly scope: string;
  /** The projects in which it would count; absent: everywhere. */
  readonly projects?: readonly string[];
}

/**
 * The user's signing key and trusted keys. Opening reads nothing. Lookups read single files on demand and see changes by
 * other processes, such as a revocation.
 */
export interface Keyring extends KeyLookup {
  /** Returns the signing key; throws `key_missing`, `key_unsafe`, or `key_revoked`. */
  signer(): SigningKey;
  /** Returns the key that signs records of threads: that of a run without a signing key, or {@link signer}. */
  recordSigner(): SigningKey;
  payloadSigner(): PayloadSigner;
  readonly payloadVerifier: PayloadVerifier;
  /** Creates the signing key, or takes one of ssh-agent; throws `already_exists` if there is one. */
  init(options?: InitOptions): Promise<KeyInfo>;
  list(): readonly KeyInfo[];
  export(): { readonly key_id: string; readonly pem: string };
  /** Returns what {@link trust} would write. `source` names the text in errors. */
  inspect(text: string, options?: TrustOptions & { readonly source?: string }): OfferedKey;
  /**
   * Trusts a PEM or a trusted-key TOML, for signing alone unless `purposes` has more. A key that the project contains is
   * trusted for that project only. Trusting a key again replaces its scope.
   */
  trust(text: string, options?: TrustOptions): Promise<KeyInfo>;
  /** Stops trusting a key. Throws `key_not_found`, or `usage` for the signing key. */
  untrust(keyId: string): Promise<KeyInfo>;
  /**
   * Writes a signed and dated revocation: records that the key signed earlier still count, items do not. Publishes it in
   * the project if the key is the user's own.
   */
  revoke(keyId: string, options?: RevokeOptions): Promise<KeyInfo>;
  /** Obeys the revocation in a file that the key or its successor signed. Throws `signature_invalid` otherwise. */
  importRevocation(text: string): Promise<KeyInfo>;
  /**
   * Replaces the signing key with a new one. The statement of the old key in the project makes everyone who trusts the
   * old one trust the new one, for the same; the old one stays trusted.
   */
  rotate(): Promise<KeyRotation>;
  /**
   * Encrypts the private key of the user space with a passphrase, or removes the protection for undefined. Throws `key_unsafe`
   * if the present passphrase is wrong.
   */
  protect(passphrase: string | undefined): Promise<KeyInfo>;
  /** Writes the rotations and revocations of the user's own keys to the project; returns the paths of new files. */
  publish(): Promise<readonly string[]>;
  /** Keeps valid statements of the project in the user space, so that they count elsewhere and can't be taken away. */
  adopt(): void;
}

/** True if the time is before that of a revocation; `null` is a revocation without a date. */
export function isEarlier(time: unknown, limit: string | null): boolean {
  return typeof time === 'string' && limit !== null && Date.parse(time) < Date.parse(limit);
}
