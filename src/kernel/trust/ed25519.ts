import {
  createPrivateKey,
  createPublicKey,
  type JsonWebKey,
  type KeyObject,
  sign,
  verify,
} from 'node:crypto';
import nacl from 'tweetnacl';

/** Ed25519 (RFC 8032) over raw bytes: seeds and public keys of 32 bytes, signatures of 64. */
export interface Ed25519 {
  readonly name: string;
  /** Returns a function that signs. Keep it: its setup costs more than a signature. */
  signer(seed: Uint8Array): (message: Uint8Array) => Uint8Array;
  /** Returns a function that verifies. It returns false for malformed and non-canonical signatures. */
  verifier(publicKey: Uint8Array): (message: Uint8Array, signature: Uint8Array) => boolean;
  publicKeyOf(seed: Uint8Array): Uint8Array;
}

/** DER of a PKCS #8 Ed25519 private key up to its 32 bytes of seed (RFC 8410). */
export const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');
/** DER of an SPKI Ed25519 public key up to its 32 bytes (RFC 8410). */
export const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex');
export const KEY_BYTES = 32;
const SIGNATURE_BYTES = 64;

/** A public key as a JWK (RFC 8037): OpenSSL takes ten times as long to read DER. */
function publicJwk(publicKey: Uint8Array): JsonWebKey {
  return { kty: 'OKP', crv: 'Ed25519', x: Buffer.from(publicKey).toString('base64url') };
}

/** A seed as DER: a JWK must have the public key too, which is not known here, and Node 24 compares it. */
function platformPrivateKey(seed: Uint8Array): KeyObject {
  const key = Buffer.concat([PKCS8_PREFIX, seed]);
  return createPrivateKey({ key, format: 'der', type: 'pkcs8' });
}

/** Ed25519 of `node:crypto`. */
export const platformEd25519: Ed25519 = {
  name: 'node:crypto',
  signer(seed) {
    const key = platformPrivateKey(seed);
    return (message) => sign(null, message, key);
  },
  verifier(publicKey) {
    const key = createPublicKey({ key: publicJwk(publicKey), format: 'jwk' });
    return (message, signature) =>
      signature.length === SIGNATURE_BYTES && verify(null, message, key, signature);
  },
  publicKeyOf(seed) {
    const { x = '' } = createPublicKey(platformPrivateKey(seed)).export({ format: 'jwk' });
    return Buffer.from(x, 'base64url');
  },
};

/** Ed25519 in plain JavaScript, for platforms whose crypto lacks it (FIPS builds, old OpenSSL forks). */
export const naclEd25519: Ed25519 = {
  name: 'tweetnacl',
  signer(seed) {
    const { secretKey } = nacl.sign.keyPair.fromSeed(Uint8Array.from(seed));
    return (message) => nacl.sign.detached(Uint8Array.from(message), secretKey);
  },
  verifier(publicKey) {
    const key = Uint8Array.from(publicKey);
    return (message, signature) =>
      signature.length === SIGNATURE_BYTES &&
      hasReducedScalar(signature) &&
      nacl.sign.detached.verify(Uint8Array.from(message), Uint8Array.from(signature), key);
  },
  publicKeyOf(seed) {
    return nacl.sign.keyPair.fromSeed(Uint8Array.from(seed)).publicKey;
  },
};

/** Order of the base point: 2^252 + 27742317777372353535851937790883648493. */
const L = (1n << 252n) + 27742317777372353535851937790883648493n;

/**
 * RFC 8032 section 5.1.7 requires S < L. tweetnacl does not check it and accepts S + L, a forged second signature of the
 * same message.
 */
function hasReducedScalar(signature: Uint8Array): boolean {
  const bigEndian = Buffer.from(signature.subarray(32, SIGNATURE_BYTES).toReversed());
  return BigInt(`0x${bigEndian.toString('hex')}`) < L;
}

let chosen: Ed25519 | undefined;

/** Returns the platform's Ed25519 if it works, else the fallback. */
export function ed25519(): Ed25519 {
  chosen ??= worksHere(platformEd25519) ? platformEd25519 : naclEd25519;
  return chosen;
}

function worksHere(candidate: Ed25519): boolean {
  try {
    const seed = Buffer.alloc(KEY_BYTES, 1);
    const message = Buffer.from('probe');
    return candidate.verifier(candidate.publicKeyOf(seed))(
      message,
      candidate.signer(seed)(message),
    );
  } catch {
    return false;
  }
}
