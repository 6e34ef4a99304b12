import type { PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import { canonicalIfPossible, canonicalJson } from './canonical-json.ts';
import { isEarlier, type KeyLookup, type SigningKey } from './keys.ts';
import { maySignRecords } from './scope.ts';

/** Returns a signer for JSON payloads, such as log checkpoints, over their canonical JSON. */
export function payloadSigner(key: SigningKey): PayloadSigner {
  return { keyId: key.keyId, sign: (payload) => key.sign(canonicalJson(payload)) };
}

/** Returns a verifier for payloads of {@link payloadSigner} with the keys that `keys` trusts at that moment. */
export function payloadVerifier(keys: KeyLookup): PayloadVerifier {
  return {
    find(keyId) {
      const found = keys.find(keyId);
      if (found.status === 'unknown') return 'key_untrusted';
      const { key, scope } = found;
      const limit = found.status === 'revoked' ? found.revokedAt : undefined;
      if (key === undefined || limit === null) return 'key_revoked';
      if (scope !== undefined && !maySignRecords(scope)) return 'key_out_of_scope';
      return {
        verify(payload, signature) {
          if (limit !== undefined && !isEarlier(payload['timestamp'], limit)) return false;
          const text = canonicalIfPossible(payload);
          return text !== undefined && key.verify(text, signature);
        },
      };
    },
  };
}
