import type { PayloadKey, PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import { canonicalIfPossible, canonicalJson } from './canonical-json.ts';
import { isEarlier, type KeyLookup, type SigningKey, type VerifyingKey } from './keys.ts';
import { maySignRecords } from './scope.ts';

/** Returns a signer for JSON payloads, such as log checkpoints, over their canonical JSON. */
export function payloadSigner(key: SigningKey): PayloadSigner {
  return { keyId: key.keyId, sign: (payload) => key.sign(canonicalJson(payload)) };
}

/** The key of a run that had no signing key, for the part of its log that a trusted key has signed afterwards. */
export interface RunKey {
  readonly key: VerifyingKey;
  /** Length of that part. What the key signed after it does not count. */
  readonly bytes: number;
}

/** Returns the key of the run that a thread's signed record names. */
export type FindRunKey = (threadId: string) => RunKey | undefined;

/** Returns a verifier for payloads of {@link payloadSigner} with the keys that `keys` trusts at that moment. */
export function payloadVerifier(
  keys: KeyLookup,
  runKey: FindRunKey = () => undefined,
): PayloadVerifier {
  return {
    find(keyId, threadId) {
      const found = keys.find(keyId);
      if (found.status === 'unknown') return ofRun(keyId, threadId, runKey) ?? 'key_untrusted';
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

function ofRun(
  keyId: string,
  threadId: string | undefined,
  runKey: FindRunKey,
): PayloadKey | undefined {
  const found = threadId === undefined ? undefined : runKey(threadId);
  if (found?.key.keyId !== keyId) return undefined;
  const { key, bytes } = found;
  return {
    verify(payload, signature) {
      const { thread_id: id, to } = payload;
      if (id !== threadId || typeof to !== 'number' || to >= bytes) return false;
      const text = canonicalIfPossible(payload);
      return text !== undefined && key.verify(text, signature);
    },
  };
}
