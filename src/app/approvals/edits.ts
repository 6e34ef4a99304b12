import type { ApprovalDecision, ApprovalRequest } from '../../core/approval.ts';
import { capabilityOf } from '../../core/capability.ts';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import { ableKeys, type EditDemand } from '../../policy/approval-judgement.ts';
import type { StoredApproval } from '../../storage/store.ts';
import { demandOf, judgeIn } from '../../threads/run/approval-subject.ts';
import { needOfCall } from '../../tools/call-need.ts';
import { readThreadConfig } from '../settings.ts';
import { threadFiles } from '../thread-files.ts';
import type { Workspace } from '../workspace.ts';
import { approvalEnv } from './env.ts';
import { approvalPolicies } from './policy.ts';

/**
 * Returns the demands on the call of a request with the inputs that people gave, as far as they are known outside of its
 * thread, which judges them again before the call starts.
 */
export async function demandsOfEdits(
  workspace: Workspace,
  { request }: Pick<StoredApproval, 'request'>,
  inputs: readonly (JsonObject | undefined)[],
): Promise<readonly EditDemand[]> {
  const given = inputs.filter((input) => input !== undefined);
  if (given.length === 0) return [];
  const files = threadFiles(workspace);
  const plan = await files.readPlan(await files.readDocument(request.thread_id));
  const { risks } = await readThreadConfig(await workspace.config());
  const isOwner = workspace.keyring.signer().keyId === request.worker_key_id;
  // the user space of another person has no rules for this thread
  const policies = (await approvalPolicies(workspace)).filter(
    ({ space }) => isOwner || space === 'project',
  );
  const env = { projectPath: workspace.options.projectPath, approvals: approvalEnv(workspace) };
  const judge = judgeIn(env, { plan, threadId: request.thread_id });
  const rules = { plan, risks, policies, ownerKeyId: request.worker_key_id, judge };
  const demands: EditDemand[] = [];
  for (const input of given) {
    const need = needOfCall(request.tool, input);
    const demand = await demandOf(rules, { tool: { id: request.tool }, input, need, asks: [] });
    demands.push({ input, requirements: demand?.requirements ?? [] });
  }
  return demands;
}

/** Refuses an approval whose input the approvers of the request cannot agree to: `approval_invalid`. */
export async function assertMayEdit(
  workspace: Workspace,
  stored: StoredApproval,
  { input, key_id: keyId, scope }: ApprovalDecision,
): Promise<void> {
  if (input === undefined) return;
  const { request } = stored;
  if (scope === 'tool') {
    throw new RyeError('usage', 'an approval with another input cannot cover every call', {
      hint: 'Use --scope once, or --scope arguments for calls with that input.',
    });
  }
  const [demand] = await demandsOfEdits(workspace, stored, [input]);
  const known = new Set(ableKeys(request, request.worker_key_id));
  for (const { rule, approvers, quorum } of demand?.requirements ?? []) {
    const able = new Set(ableKeys({ approvers }, request.worker_key_id));
    const both = [...able].filter((key) => known.has(key));
    if (both.length >= quorum && able.has(keyId)) continue;
    const names = approvers.map(({ name, key_id: key }) => `${name} (${key})`).join(', ');
    throw new RyeError(
      'approval_invalid',
      `${request.id} cannot be approved with this input: ${rule} asks ${names || 'people that no policy names'} for it, ${quorum} of them`,
      {
        hint: 'Approve the requested input, or deny the call with a comment, so that the call that you want is requested.',
      },
    );
  }
}

/** The part of a request that the scope of a key is about, for an input that a person gave. */
export function aboutEdit(
  { request }: Pick<StoredApproval, 'request'>,
  input: JsonObject | undefined,
): Pick<ApprovalRequest, 'capability' | 'item'> {
  if (input === undefined) return request;
  const need = needOfCall(request.tool, input);
  return {
    capability: capabilityOf(need),
    item: { ...request.item, id: need.item_id ?? request.tool },
  };
}
