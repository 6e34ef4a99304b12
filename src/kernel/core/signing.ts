import type { JsonObject } from './json.ts';

/** Signs JSON payloads with one key. Implemented by `trust`, taken as an argument by the pure rooms. */
export interface PayloadSigner {
  /** Fingerprint of the key: the first 16 hex of SHA-256 over the public key's SPKI PEM. */
  readonly keyId: string;
  /** Ed25519, base64url without padding, over the canonical JSON of `payload`. */
  sign(payload: JsonObject): string;
}

/** Why what a key signed is not accepted. */
export type KeyRefusal = 'key_untrusted' | 'key_revoked' | 'key_out_of_scope';

/** Finds the keys with which a {@link PayloadSigner} may have signed. */
export interface PayloadVerifier {
  /** The key as it is trusted now, or why it is not. `threadId` names the thread whose record it signed. */
  find(keyId: string, threadId?: string): PayloadKey | KeyRefusal;
}

/** A trusted key. */
export interface PayloadKey {
  /** Returns true if the signature of `payload` is good. Never throws. */
  verify(payload: JsonObject, signature: string): boolean;
}
