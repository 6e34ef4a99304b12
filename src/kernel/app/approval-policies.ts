import { featureMissing, RyeError } from '../core/errors.ts';
import { wireName } from '../core/ids.ts';
import { didYouMean } from '../core/text.ts';
import { readConfigFile } from '../items/config-fs.ts';
import type { FoundFile } from '../items/spaces-fs.ts';
import { verifyFile } from '../items/verified-fs.ts';
import {
  type ApprovalPolicy,
  type ApprovalRule,
  namesTool,
  parseApprovalPolicy,
} from '../policy/approvals.ts';
import { globIntersection } from '../policy/glob.ts';
import type { KeyLookup } from '../trust/keys.ts';
import { faultError } from '../trust/policy.ts';
import type { Problem } from './api/items.ts';
import type { ThreadParts } from './feature.ts';
import { toProblem } from './validation.ts';
import type { Workspace } from './workspace.ts';

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

/** Reads the policies for a run that is about to start, and checks that something asks and that the approvers are known. */
export async function assertApprovalPolicies(
  workspace: Pick<Workspace, 'spaces' | 'verification' | 'keyring'>,
  { approvals }: Pick<ThreadParts, 'approvals'>,
): Promise<void> {
  for (const policy of await approvalPolicies(workspace)) {
    if (approvals === undefined) throw featureMissing('approvals');
    const [problem] = unknownKeys(policy, workspace.keyring);
    if (problem) throw problem;
  }
}

/** Lists of all that rules can be about. */
interface Known {
  /** IDs of tools. */
  readonly tools: readonly string[];
  /** Names of MCP servers; undefined if they cannot be read. */
  readonly servers: readonly string[] | undefined;
}

/**
 * Returns the approvers of a file whose keys are unknown, and its rules that match no known tool; nothing for a file that
 * cannot be read. The rules of a person are for all projects, so that a tool may be another one's.
 */
export async function policyProblems(
  file: FoundFile,
  keys: Pick<KeyLookup, 'find'>,
  known: Known,
): Promise<readonly Problem[]> {
  try {
    const { value } = await readConfigFile(file);
    const policy = parseApprovalPolicy(value, file.space, { path: file.path });
    const severity = file.space === 'project' ? 'error' : 'warning';
    return [
      ...unknownKeys(policy, keys).map((one) => toProblem(one, file.path)),
      ...idleRules(policy, known).map(
        (one) => ({ ...toProblem(one, file.path), severity }) as const,
      ),
    ];
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
          {
            hint: `Ask ${name} for the output of "rye keys export" and run: rye keys trust FILE --owner ${name} --for approve`,
          },
        ),
    );
}

/** Tools that a thread may have without a file. */
const OFFERED = [
  'skills/use',
  'skills/read',
  'skills/run_script',
  'tool_search',
  'rye/agent/limit',
];

function idleRules(
  { rules, space }: ApprovalPolicy,
  { tools, servers }: Known,
): readonly RyeError[] {
  const ids = [...tools, ...OFFERED];
  const remote = servers?.map((name) => `mcp/${name}/*`) ?? ['mcp/*'];
  const isIdle = ({ tool, capability = '' }: ApprovalRule): boolean => {
    if (tool !== undefined) {
      const patterns = [...remote, ...remote.map((one) => `${wireName(one.slice(0, -2))}_*`)];
      return (
        !ids.some((id) => namesTool(tool, id)) &&
        !patterns.some((pattern) => globIntersection(tool, pattern).length > 0)
      );
    }
    const needs = [...ids, ...remote].map((id) => `rye.execute.tool.${id.replaceAll('/', '.')}`);
    return (
      capability.startsWith('rye.execute.tool.') &&
      !needs.some((need) => globIntersection(capability, need).length > 0)
    );
  };
  return rules.filter(isIdle).map(({ name, tool, capability = '' }) => {
    const near = ids.filter((id) => id.endsWith(`/${tool}`));
    return new RyeError(
      'config_invalid',
      `approvals of the ${space} space: ${name} names "${tool ?? capability}", but no known tool has that ID`,
      {
        hint:
          near.length > 0
            ? `Did you mean ${near.join(' or ')}?`
            : (didYouMean(tool ?? '', ids) ??
              'List the tools: rye list tool. Add the tool or the MCP server first.'),
      },
    );
  });
}
