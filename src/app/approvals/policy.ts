import { RyeError } from '../../core/errors.ts';
import { readConfigFile } from '../../items/config-fs.ts';
import type { FoundFile } from '../../items/spaces-fs.ts';
import { verifyFile } from '../../items/verified-fs.ts';
import { type ApprovalPolicy, parseApprovalPolicy } from '../../policy/approvals.ts';
import type { KeyLookup } from '../../trust/keys.ts';
import { faultError } from '../../trust/policy.ts';
import type { Problem } from '../api/items.ts';
import { toProblem } from '../validation.ts';
import type { Workspace } from '../workspace.ts';

const NAME = 'agent/approvals';

/**
 * Reads the approval policies in force: of the project and of the user. Throws if a file is there without a signature that
 * counts: the calls that it may ask about must not run unasked.
 */
export async function approvalPolicies({
  spaces,
  verification,
}: Pick<Workspace, 'spaces' | 'verification'>): Promise<readonly ApprovalPolicy[]> {
  const policies: ApprovalPolicy[] = [];
  for (const space of ['project', 'user'] as const) {
    const found = spaces.find('config', NAME, { space });
    if (found === undefined || found.space !== space) continue;
    const verdict = verifyFile(found, verification);
    if (!verdict.ok) {
      const { code, message, hint, details } = faultError(found, verdict);
      throw new RyeError(code, `approvals are refused: ${message}`, {
        hint,
        location: { path: found.path },
        details,
      });
    }
    const { value } = await readConfigFile(found);
    policies.push(parseApprovalPolicy(value, space, { path: found.path }));
  }
  return policies;
}

/** Reads the policies for a run that is about to start, and checks that the keys of their approvers are known here. */
export async function assertApprovalPolicies(
  workspace: Pick<Workspace, 'spaces' | 'verification' | 'keyring'>,
): Promise<void> {
  for (const policy of await approvalPolicies(workspace)) {
    const [problem] = unknownKeys(policy, workspace.keyring);
    if (problem) throw problem;
  }
}

/** Returns the approvers of a file whose keys are unknown; nothing for a file that cannot be read. */
export async function keyProblems(
  file: FoundFile,
  keys: Pick<KeyLookup, 'find'>,
): Promise<readonly Problem[]> {
  try {
    const { value } = await readConfigFile(file);
    const policy = parseApprovalPolicy(value, file.space, { path: file.path });
    return unknownKeys(policy, keys).map((one) => toProblem(one, file.path));
  } catch (error) {
    if (error instanceof RyeError) return [];
    throw error;
  }
}

/** A key that was revoked is known: its decisions do not count, and the other approvers may be enough. */
function unknownKeys(
  { approvers, space }: ApprovalPolicy,
  keys: Pick<KeyLookup, 'find'>,
): readonly RyeError[] {
  return approvers
    .filter(({ key_id: key }) => keys.find(key).status === 'unknown')
    .map(
      ({ name, key_id: key }) =>
        new RyeError(
          'config_invalid',
          `approvals of the ${space} space: the key ${key} of ${name} is not trusted`,
          { hint: `Run: rye keys trust FILE --owner ${name} --for approve` },
        ),
    );
}
