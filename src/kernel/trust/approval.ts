import type {
  ApprovalDecision,
  ApprovalPreview,
  ApprovalRequest,
  SignedDecision,
} from '../core/approval.ts';
import type { JsonValue } from '../core/json.ts';
import { canonicalJson } from './canonical-json.ts';
import {
  fingerprint,
  isEarlier,
  type KeyLookup,
  type KeyStatus,
  readPublicKey,
  type SigningKey,
  sha256Hex,
} from './keys.ts';
import { coversItem } from './scope.ts';

/** Keep what people sign about requests apart from everything else that the same keys sign. */
const REQUEST_DOMAIN = 'rye-approval-request-v1';
const DECISION_DOMAIN = 'rye-approval-v1';

/** Returns the SHA-256 of a value's canonical JSON (RFC 8785). */
export function canonicalSha256(value: JsonValue | ApprovalPreview): string {
  return sha256Hex(canonicalJson(value));
}

/** Returns the SHA-256 by which decisions name a request: over its domain, a line feed and its canonical JSON. */
export function requestSha256(request: ApprovalRequest): string {
  return sha256Hex(`${REQUEST_DOMAIN}\n${canonicalJson(request)}`);
}

/** Returns the bytes that a decision's signature covers. */
export function decisionStatement(decision: ApprovalDecision): string {
  return `${DECISION_DOMAIN}\n${canonicalJson(decision)}`;
}

export function signDecision(
  decision: Omit<ApprovalDecision, 'key_id'>,
  key: SigningKey,
): SignedDecision {
  const signed: ApprovalDecision = { ...decision, key_id: key.keyId };
  return {
    decision: signed,
    public_key: key.pem,
    signature: key.sign(decisionStatement(signed)),
  };
}

/** Why a signed decision does not count. */
export type DecisionFault =
  | 'signature_invalid'
  | 'key_untrusted'
  | 'key_revoked'
  | 'wrong_purpose'
  | 'out_of_scope';

/** Checks a decision's signature under the key that its `key_id` names; undefined if the key itself made it. */
export function signatureFault({
  decision,
  public_key: pem,
  signature,
}: SignedDecision): 'signature_invalid' | undefined {
  try {
    const key = readPublicKey(pem, 'the public key of the decision');
    const isOwn = fingerprint(pem) === decision.key_id && key.keyId === decision.key_id;
    return isOwn && key.verify(decisionStatement(decision), signature)
      ? undefined
      : 'signature_invalid';
  } catch {
    return 'signature_invalid';
  }
}

/** Checks a decision's signature, and that its key is trusted to approve now. */
export function decisionFault(
  signed: SignedDecision,
  about: Decided,
  keys: Pick<KeyLookup, 'find'>,
): DecisionFault | undefined {
  const found = keys.find(signed.decision.key_id);
  return (
    signatureFault(signed) ??
    (found.status === 'revoked' ? 'key_revoked' : keyFault(found, signed.public_key, about))
  );
}

/** Like {@link decisionFault} for a decision of the past: a key that was revoked later counted then. */
export function recordedFault(
  signed: SignedDecision,
  about: Decided,
  keys: Pick<KeyLookup, 'find'>,
): DecisionFault | undefined {
  const { key_id: keyId, decided_at: at } = signed.decision;
  const found = keys.find(keyId);
  const wasRevoked = found.status === 'revoked' && !isEarlier(at, found.revokedAt);
  return (
    signatureFault(signed) ??
    (wasRevoked ? 'key_revoked' : keyFault(found, signed.public_key, about))
  );
}

/** The part of a request that the scope of a key limits. */
type Decided = Pick<ApprovalRequest, 'item' | 'capability'>;

/** The user's own keys have no scope and every purpose. */
function keyFault(found: KeyStatus, pem: string, about: Decided): DecisionFault | undefined {
  if (found.status === 'unknown' || found.key?.pem !== pem) return 'key_untrusted';
  if (!found.scope) return undefined;
  if (!found.scope.purposes.includes('approve')) return 'wrong_purpose';
  const [, , type = 'tool'] = about.capability.split('.');
  return coversItem(found.scope, type, about.item.id) ? undefined : 'out_of_scope';
}
