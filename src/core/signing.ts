import type { JsonObject } from './json.ts';

/** Signs JSON payloads with one key. Implemented by `trust`, taken as an argument by the pure rooms. */
export interface PayloadSigner {
  /** Fingerprint of the key: the first 16 hex of SHA-256 over the public key's SPKI PEM. */
  readonly keyId: string;
  /** Ed25519, base64url without padding, over the canonical JSON of `payload`. */
  sign(payload: JsonObject): string;
}

/** Why a payload's signature is not accepted. */
export type SignatureRefusal = 'key_untrusted' | 'key_revoked' | 'signature_invalid';

/** Checks what a {@link PayloadSigner} made. */
export interface PayloadVerifier {
  /** `undefined` when the signature is good and its key is trusted. */
  refusal(payload: JsonObject, keyId: string, signature: string): SignatureRefusal | undefined;
}
