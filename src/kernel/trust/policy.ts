import { assertConfig, type CheckedSchema } from '../core/check.ts';
import { type ErrorCode, RyeError } from '../core/errors.ts';
import type { SignableType, Space } from '../core/ids.ts';
import schemas from '../schemas/policy.json' with { type: 'json' };
import type { TrustFile } from '../schemas/policy.ts';
import type { SignatureFault, Verdict } from './signature.ts';

const schema: CheckedSchema = schemas.properties.trust;

/** The uses of an item. */
export type Operation = Exclude<keyof TrustFile, 'signing'>;

/** The strictness about bad signatures. */
export type Requirement = Extract<TrustFile[Operation], string>;

const WEAKEST_FIRST: readonly Requirement[] = ['off', 'warn', 'required'];

/** The requirement of each operation for items of each space. System items are always checked by manifest. */
export type TrustPolicy = Readonly<Record<Operation, Readonly<Record<Space, Requirement>>>>;

function everywhere(requirement: Requirement): Readonly<Record<Space, Requirement>> {
  return { project: requirement, user: requirement, system: requirement };
}

/** The policy if `trust.yaml` is missing or unreadable. */
export const STRICT_POLICY: TrustPolicy = {
  execute: everywhere('required'),
  fetch: everywhere('warn'),
  context: everywhere('required'),
  config: everywhere('warn'),
};

/** One layer of `trust.yaml`: only the cells that it sets. */
export type PolicyLayer = Readonly<
  Partial<Record<Operation, Readonly<Partial<Record<Space, Requirement>>>>>
>;

/**
 * Reads the members of a `trust.yaml`: `operation: requirement`, or `operation: {space: requirement}`. Throws
 * `config_invalid` naming the member.
 */
export function readPolicyLayer(value: unknown, path: string): PolicyLayer {
  assertConfig(schema, value, 'trust', { path });
  const { signing: _form, ...operations } = value as TrustFile;
  const layer = Object.entries(operations).map(([operation, setting]) => [
    operation,
    typeof setting === 'string' ? everywhere(setting) : setting,
  ]);
  return Object.fromEntries(layer) as PolicyLayer;
}

/**
 * Merges a layer into the policy. A layer that may not loosen counts only where it is stricter; `loosened` then names the
 * cells that it tried to loosen.
 */
export function overlayPolicy(
  base: TrustPolicy,
  layer: PolicyLayer,
  { mayLoosen }: { readonly mayLoosen: boolean },
): { readonly policy: TrustPolicy; readonly loosened: readonly string[] } {
  const loosened: string[] = [];
  const cell = (operation: Operation, space: Space): Requirement => {
    const now = base[operation][space];
    const wanted = layer[operation]?.[space] ?? now;
    if (mayLoosen || WEAKEST_FIRST.indexOf(wanted) >= WEAKEST_FIRST.indexOf(now)) return wanted;
    loosened.push(`${operation}.${space}`);
    return now;
  };
  const row = (operation: Operation): Readonly<Record<Space, Requirement>> => ({
    project: cell(operation, 'project'),
    user: cell(operation, 'user'),
    system: cell(operation, 'system'),
  });
  const policy = {
    execute: row('execute'),
    fetch: row('fetch'),
    context: row('context'),
    config: row('config'),
  };
  return { policy, loosened };
}

export type Decision = 'accept' | 'warn' | 'refuse';

export interface DecisionRequest {
  readonly operation: Operation;
  readonly space: Space;
  readonly verdict: Verdict;
  /** Accepts unsigned items of the project with integrity `unverified`, for development. */
  readonly allowUnsigned?: boolean;
}

/** True for a fault that is equivalent to a missing signature. */
export function countsAsUnsigned(code: SignatureFault): boolean {
  return code === 'unsigned' || code === 'signature_outdated';
}

/**
 * Decides about an item whose signature was checked. Always refuses a modified system item, and a file that was signed as
 * another item unless the policy is off. Configuration in the user space needs no signature, but an existing one must be
 * valid.
 */
export function decide(policy: TrustPolicy, request: DecisionRequest): Decision {
  const { operation, space, verdict, allowUnsigned = false } = request;
  if (verdict.ok) return 'accept';
  if (space === 'system') return 'refuse';
  if (countsAsUnsigned(verdict.code)) {
    if (space === 'user' && operation === 'config') return 'accept';
    if (space === 'project' && allowUnsigned) return 'accept';
  }
  if (verdict.code === 'signed_by_thread' && space === 'project' && allowUnsigned) return 'accept';
  const requirement = policy[operation][space];
  if (requirement === 'off') return 'accept';
  return requirement === 'warn' && verdict.code !== 'item_moved' ? 'warn' : 'refuse';
}

/** The file of a fault, as messages name it. */
export interface FaultSubject {
  readonly type: SignableType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
}

type Fault = Extract<Verdict, { ok: false }>;

/** Returns the error for a refused verdict. */
export function faultError(subject: FaultSubject, fault: Fault): RyeError {
  const { type, id, space, path } = subject;
  const { message, hint } = explain(subject, fault);
  const code: ErrorCode = fault.code;
  return new RyeError(code, message, {
    hint,
    location: { path },
    details: {
      type,
      id,
      space,
      path,
      ...(fault.keyId === undefined ? {} : { key_id: fault.keyId }),
      ...(fault.signedAs === undefined ? {} : { signed_as: fault.signedAs }),
    },
  });
}

/** Tells where the public key of another person comes from. */
export const TRUST_HINT =
  'If you know its owner, ask for the output of "rye keys export" and run: rye keys trust FILE.';

function explain(
  { type, id }: FaultSubject,
  fault: Fault,
): { readonly message: string; readonly hint: string } {
  const name = `${type} ${id}`;
  const sign = `rye sign ${type} ${id}`;
  const because = fault.detail === undefined ? '' : ` (${fault.detail})`;
  const when = fault.signedAt === undefined ? '' : ` on ${fault.signedAt}`;
  const key = fault.keyId ?? 'unknown';
  const texts = {
    unsigned: [`${name} is not signed${because}`, `Review it, then run: ${sign}`],
    content_modified: [
      `${name} was modified after it was signed${when}${because}`,
      `Review what changed, then run: ${sign}`,
    ],
    key_untrusted: [
      `${name} is signed by untrusted key ${key}${because}`,
      `${TRUST_HINT} Or review the file and run: ${sign}`,
    ],
    key_revoked: [
      `${name} is signed by key ${key}, which was revoked${because}`,
      `Review it, then sign it with a current key: ${sign}`,
    ],
    key_out_of_scope: [
      `${name} is signed by key ${key}, which you trust for less${because}`,
      `Review it and run: ${sign}; or widen the trust with "rye keys trust FILE --only GLOB"`,
    ],
    signature_invalid: [
      `${name} has an invalid signature: key ${key} did not make it`,
      `The file may be tampered with. Review all of it, then run: ${sign}`,
    ],
    signature_partial: [
      `${name} has a signature of the older convention, which covers only a part of the file`,
      `Review the whole file, then run: ${sign}`,
    ],
    signature_outdated: [
      `${name} has a version 1 signature, which does not cover its type and id${because}`,
      `Review the file, then sign it again: ${sign}`,
    ],
    item_moved: [
      `${name} was signed as ${otherName(fault)}${because} and is refused`,
      `Review the file. To use it as ${name}, sign it again: ${sign}`,
    ],
    signed_by_thread: [
      `${name} was written and signed by the model of thread ${fault.detail ?? 'unknown'}, not by a person`,
      `Review it, then run: ${sign}`,
    ],
    system_item_modified: [
      `the system ${name} differs from the one in this release${because}`,
      'Reinstall rye, or build it again in its clone: npm run build. To use your own version, copy it: rye fetch --copy-to project',
    ],
  } as const satisfies Record<SignatureFault, readonly [string, string]>;
  const [message, hint] = texts[fault.code];
  return { message, hint };
}

function otherName({ signedAs }: Fault): string {
  return signedAs === undefined ? 'another item' : `${signedAs.kind} ${signedAs.id}`;
}

/** SHA-256 hex of every system file, by its path below the system space's `.ai` with `/` between segments. */
export type SystemManifest = Readonly<Record<string, string>>;

/** Replaced by the build and the test runner; see `scripts/system-manifest.mjs`. */
declare const __RYE_SYSTEM_MANIFEST__: string;

/** Returns the manifest baked into this program. Unbuilt sources have none, so that no system item verifies. */
export function bakedManifest(): SystemManifest {
  return typeof __RYE_SYSTEM_MANIFEST__ === 'undefined'
    ? {}
    : (JSON.parse(__RYE_SYSTEM_MANIFEST__) as SystemManifest);
}

/** Compares a system file with the manifest; refuses a file that the manifest does not contain. */
export function checkSystemFile(manifest: SystemManifest, path: string, sha256: string): Verdict {
  const expected = manifest[path];
  if (expected === sha256) return { ok: true, by: 'manifest' };
  const detail = expected === undefined ? 'it is not in this release' : 'it was modified';
  return { ok: false, code: 'system_item_modified', detail };
}
