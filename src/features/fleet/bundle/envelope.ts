import { RyeError } from '../../../kernel/core/errors.ts';
import { isRecord, parseJson } from '../../../kernel/core/json.ts';
import type { KeyLookup, SigningKey } from '../../../kernel/trust/keys.ts';
import { TRUST_HINT } from '../../../kernel/trust/policy.ts';
import { maySign } from '../../../kernel/trust/scope.ts';

/** Type of the payload of an envelope around an in-toto statement. */
const PAYLOAD_TYPE = 'application/vnd.in-toto+json';

/** The subject that a key needs to be trusted for; only one that may sign every item signs bundles. */
const SUBJECT = { kind: 'bundle', id: 'bundle' };

/**
 * Returns the text that a DSSE signature covers: the lengths in bytes keep the type and the payload apart.
 * https://github.com/secure-systems-lab/dsse/blob/master/protocol.md
 */
export function preAuthEncoding(payloadType: string, payload: string): string {
  const [typeLength, length] = [payloadType, payload].map((text) => Buffer.byteLength(text));
  return `DSSEv1 ${typeLength} ${payloadType} ${length} ${payload}`;
}

/** Signs a statement and returns the DSSE envelope as JSON. */
export function sealEnvelope(payload: string, key: SigningKey): string {
  const signature = Buffer.from(key.sign(preAuthEncoding(PAYLOAD_TYPE, payload)), 'base64url');
  return JSON.stringify({
    payloadType: PAYLOAD_TYPE,
    payload: Buffer.from(payload).toString('base64'),
    signatures: [{ keyid: key.keyId, sig: signature.toString('base64') }],
  });
}

/**
 * Returns the signed payload of an envelope and its signer. Throws `thread_tampered`, or the key's code if `keys` does not trust
 * it for items.
 */
export function openEnvelope(
  text: string,
  keys: KeyLookup,
): { readonly payload: string; readonly keyId: string } {
  const envelope = parseJson(text);
  const members = isRecord(envelope) ? envelope : {};
  const { payloadType, payload: encoded, signatures } = members;
  const [signature, ...others] = Array.isArray(signatures) ? signatures : [];
  const payload = decoded(encoded);
  const { keyid: keyId, sig } = isRecord(signature) ? signature : {};
  if (payloadType !== PAYLOAD_TYPE || payload === undefined || others.length > 0)
    throw tampered('it is no envelope of a statement');
  if (typeof keyId !== 'string' || typeof sig !== 'string') throw tampered('it is not signed');
  const found = keys.find(keyId);
  if (found.status === 'revoked') throw refusedKey('key_revoked', keyId, 'was revoked');
  if (found.status === 'unknown') throw refusedKey('key_untrusted', keyId, 'is not trusted');
  const bare = Buffer.from(sig, 'base64');
  const isGood =
    bare.toString('base64') === sig &&
    found.key.verify(preAuthEncoding(PAYLOAD_TYPE, payload), bare.toString('base64url'));
  if (!isGood) throw tampered('its signature does not fit');
  if (found.scope !== undefined && !maySign(found.scope, SUBJECT))
    throw refusedKey('key_out_of_scope', keyId, 'is not trusted to sign all items');
  return { payload, keyId };
}

/** Only the one Base64 text of valid UTF-8 counts. */
function decoded(encoded: unknown): string | undefined {
  if (typeof encoded !== 'string') return undefined;
  const text = Buffer.from(encoded, 'base64').toString('utf8');
  return Buffer.from(text).toString('base64') === encoded ? text : undefined;
}

function refusedKey(
  code: 'key_revoked' | 'key_untrusted' | 'key_out_of_scope',
  keyId: string,
  what: string,
): RyeError {
  return new RyeError(code, `the bundle is refused: its key ${keyId} ${what}`, {
    hint: TRUST_HINT,
    details: { key_id: keyId },
  });
}

/** Returns the error for a bundle that is not what its submitter signed. */
export function tampered(what: string): RyeError {
  return new RyeError('thread_tampered', `the bundle is refused: ${what}`, {
    hint: 'It was changed after it was signed. Start the thread again.',
  });
}
