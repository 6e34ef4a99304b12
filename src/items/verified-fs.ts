import { relative, sep } from 'node:path';
import type { SignableType } from '../core/ids.ts';
import type { Integrity } from '../core/thread.ts';
import { type KeyLookup, sha256Hex } from '../trust/keys.ts';
import { checkSystemFile, type SystemManifest } from '../trust/manifest.ts';
import { decide, faultError, type Operation, type TrustPolicy } from '../trust/policy.ts';
import { checkText, type Verdict } from '../trust/signature.ts';
import { signatureStyle } from '../trust/signature-line.ts';
import { displacedRecord } from './binding.ts';
import { type FoundFile, itemNotFound, type Spaces } from './spaces-fs.ts';

/** An item's file whose signature was checked, and that the policy lets be used for the operation asked for. */
export interface VerifiedItem extends FoundFile {
  /** `unverified` when it passed without a good signature: a developer allowed it, or the policy only warns. */
  readonly integrity: Integrity;
  readonly verdict: Verdict;
  /** SHA-256 hex of `bytes`. */
  readonly sha256: string;
}

export interface VerifyContext {
  readonly spaces: Spaces;
  readonly keyring: KeyLookup;
  readonly manifest: SystemManifest;
}

export interface ItemsOptions extends VerifyContext {
  readonly policy: TrustPolicy;
  readonly allowUnsigned: boolean;
  /** Called with one line when the policy only warns. */
  readonly onNotice: (notice: string) => void;
}

export interface VerifiedItems {
  /** The item, checked for the operation. Throws `item_not_found`, what finding throws, and the verdict's code. */
  load(type: SignableType, id: string, operation: Operation): VerifiedItem;
  /** Applies the same checks to a file that was found before. */
  admit(found: FoundFile, operation: Operation): VerifiedItem;
  /** The state of a file's signature, whatever the policy says. */
  check(found: FoundFile): Verdict;
}

/** Items behind their signatures: the one way by which anything is run, fetched or put into a context. */
export function openItems(options: ItemsOptions): VerifiedItems {
  const warned = new Set<string>();

  function admit(found: FoundFile, operation: Operation): VerifiedItem {
    const verdict = verifyFile(found, options);
    const decision = decide(options.policy, {
      operation,
      space: found.space,
      verdict,
      allowUnsigned: options.allowUnsigned,
    });
    if (!verdict.ok && decision !== 'accept') {
      const error = faultError(found, verdict);
      if (decision === 'refuse') throw error;
      const notice = `${error.message} [${error.code}]`;
      if (!warned.has(notice)) options.onNotice(notice);
      warned.add(notice);
    }
    const integrity = verdict.ok ? 'verified' : 'unverified';
    return { ...found, integrity, verdict, sha256: sha256Hex(found.bytes) };
  }

  return {
    admit,
    check: (found) => verifyFile(found, options),
    load(type, id, operation) {
      const found = options.spaces.find(type, id);
      if (found !== undefined) return admit(found, operation);
      throw itemNotFound(
        type,
        id,
        options.spaces.list(type).map((item) => item.id),
      );
    },
  };
}

/** Checks a file against the keyring, or a system file against the manifest of the release. */
export function verifyFile(
  { type, id, text, bytes, path, space, extension }: FoundFile,
  { spaces, keyring, manifest }: VerifyContext,
): Verdict {
  if (space === 'system') {
    const name = relative(spaces.root('system') ?? '', path)
      .split(sep)
      .join('/');
    return checkSystemFile(manifest, name, sha256Hex(bytes));
  }
  const style = signatureStyle(extension);
  if (style === undefined) return { ok: false, code: 'unsigned' };
  const verdict = checkText({ text, style, keys: keyring });
  if (!verdict.ok || verdict.by !== 'key') return verdict;
  const displaced = displacedRecord(type, id, text);
  if (displaced === undefined) return verdict;
  return { ok: false, code: 'item_moved', keyId: verdict.keyId, detail: displaced };
}
