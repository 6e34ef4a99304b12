import { RyeError } from '../../kernel/core/errors.ts';
import {
  type Certificate,
  certificateOf,
  parseCertificate,
} from '../../kernel/trust/certificates.ts';
import { isKeyId, type KeyLookup, type SigningKey } from '../../kernel/trust/keys.ts';

/** Keeps what is signed here apart from everything else that the same key signs. */
const DOMAIN = 'rye-worker-v1';
/** A label with the proof; labels of people have no colon. */
const PROOF = /^proof:([0-9a-f]{16}):([A-Za-z0-9_-]{86})$/;

/** Returns the label with which a worker proves its key to those that list the workers. */
export function workerProof(key: SigningKey, workerId: string): string {
  return `proof:${key.keyId}:${key.sign(`${DOMAIN} ${workerId}`)}`;
}

/** The row of a worker as far as it is judged. */
interface Listed {
  readonly worker_id: string;
  readonly labels: readonly string[];
}

/** Returns the labels that a person gave. */
export function plainLabels({ labels }: Listed): readonly string[] {
  return labels.filter((label) => !PROOF.test(label));
}

export interface CertifiedBy {
  /** By key ID. */
  readonly certificates: ReadonlyMap<string, string>;
  readonly keys: KeyLookup;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** True for a worker with a valid certificate of a root that is trusted here. Rows prove nothing: its key signed its ID. */
export function isCertified(row: Listed, { certificates, keys, now }: CertifiedBy): boolean {
  const [, keyId = '', signature = ''] =
    row.labels.map((one) => PROOF.exec(one)).find(Boolean) ?? [];
  const certificate = trustedCertificate(certificates.get(keyId), keyId, keys);
  return (
    certificate !== undefined &&
    Date.parse(certificate.notAfter) > now &&
    keys.find(keyId).status !== 'revoked' &&
    certificate.key.verify(`${DOMAIN} ${row.worker_id}`, signature)
  );
}

/** Returns a certificate that a root signed which is trusted here; undefined for any other text. */
export function trustedCertificate(
  text: string | undefined,
  keyId: string,
  keys: KeyLookup,
): Certificate | undefined {
  if (text === undefined || !isKeyId(keyId)) return undefined;
  try {
    const certificate = parseCertificate(text, keyId);
    const root = keys.find(certificate.root);
    const isTrusted =
      certificate.key.keyId === keyId &&
      root.status === 'trusted' &&
      root.scope?.purposes.includes('certify') === true &&
      certificateOf(text, certificate, root.key);
    return isTrusted ? certificate : undefined;
  } catch (error) {
    if (error instanceof RyeError) return undefined;
    throw error;
  }
}

/** Returns the roots that the store knows, as its certificates and statements name them: none of them is proven. */
export function namedRoots(
  certificates: ReadonlyMap<string, string>,
  pools: readonly string[],
): ReadonlySet<string> {
  const roots = [...certificates.values(), ...pools].flatMap((text) => {
    const [, root = ''] = /"?root"?\s*[=:]\s*"([0-9a-f]{16})"/.exec(text) ?? [];
    return root === '' ? [] : [root];
  });
  return new Set(roots);
}
