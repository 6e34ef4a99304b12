import { messageOf, RyeError } from '../../../kernel/core/errors.ts';
import { canonicalJson } from '../../../kernel/trust/canonical-json.ts';
import { type KeyLookup, sha256Hex } from '../../../kernel/trust/keys.ts';
import { openEnvelope, tampered } from './envelope.ts';
import { type BundlePredicate, readStatement, statedFiles } from './statement.ts';
import { type BundleFile, readTar } from './tar.ts';

/** A bundle as it came, and what is known of it from the thread's own signed record. */
export interface BundleToOpen {
  readonly tar: Uint8Array;
  /** The DSSE envelope as JSON. */
  readonly envelope: string;
  /** The plan that the thread's signed thread.json names. */
  readonly planSha256: string;
  /** The keys that this machine trusts. A bundle can't vouch for itself. */
  readonly keys: KeyLookup;
}

/** The files of a bundle that was verified. Each item in it is verified again, when it is loaded. */
export interface OpenedBundle {
  /** SHA-256 hex of the tar. */
  readonly digest: string;
  /** The key of the submitter. */
  readonly keyId: string;
  readonly files: readonly BundleFile[];
  readonly stated: BundlePredicate;
}

/**
 * Verifies a bundle: a trusted key has signed the statement, which names this tar, this plan and each file in it. Throws
 * `thread_tampered`, or `key_untrusted`, `key_revoked` or `key_out_of_scope` for its key.
 */
export function openBundle({ tar, envelope, planSha256, keys }: BundleToOpen): OpenedBundle {
  const digest = sha256Hex(tar);
  const { payload, keyId } = openEnvelope(envelope, keys);
  const stated = readStatement(payload, digest);
  if (stated.plan_sha256 !== planSha256) throw tampered('it was made for another plan');
  const files = filesOf(tar);
  if (canonicalJson(statedFiles(files)) !== canonicalJson(stated.files))
    throw tampered('its files differ from its statement');
  return { digest, keyId, files, stated };
}

function filesOf(tar: Uint8Array): readonly BundleFile[] {
  try {
    return readTar(tar);
  } catch (error) {
    // its submitter signed it, so it was not changed; its rye writes what this one refuses
    throw new RyeError('thread_tampered', messageOf(error), {
      hint: 'Start the thread again with this version of rye.',
      cause: error,
    });
  }
}
