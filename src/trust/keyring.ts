import type { PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import type { KeyLookup, SigningKey } from './keys.ts';

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
