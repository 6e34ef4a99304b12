import { RyeError } from '../../core/errors.ts';
import { readConfigFile } from '../../items/config-fs.ts';
import { verifyFile } from '../../items/verified-fs.ts';
import { type ApprovalPolicy, parseApprovalPolicy } from '../../policy/approvals.ts';
import { faultError } from '../../trust/policy.ts';
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
