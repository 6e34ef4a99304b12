import type {
  ApprovalPreview,
  ApprovalRequest,
  ApprovalRequirement,
  ApprovalSubject,
  Ask,
  EditedCall,
  RequestedApproval,
} from '../../core/approval.ts';
import { capabilityOf, type Risk } from '../../core/capability.ts';
import { isJsonObject, type JsonValue, jsonEquals } from '../../core/json.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { LoopPorts, ReviewedCall } from '../../loop/ports.ts';
import {
  type ApprovalPolicy,
  type Demand,
  demandFor,
  permissionAsks,
} from '../../policy/approvals.ts';
import { readsFiles } from '../../policy/call-views.ts';
import { type RiskTable, riskOf } from '../../policy/risk.ts';
import type { Tool } from '../../tools/tool.ts';
import { canonicalSha256 } from '../../trust/approval.ts';
import type { ApprovalEnv } from '../approval-port.ts';
import type { Configured, Process, Sources, Stored } from '../ports.ts';
import { workFolder } from '../worktrees.ts';
import type { StartedThread } from './start.ts';

export type SubjectEnv = Pick<Stored, 'store'> &
  Process &
  Configured &
  Pick<Sources, 'items'> &
  ApprovalEnv;

/** The id under which the raise of a limit is asked about. */
export const LIMIT_ID = 'rye/agent/limit';

/** A call that asks: what would run, who decides, and what they are shown. */
export interface Asked {
  readonly subject: ApprovalSubject;
  readonly demand: Demand;
  readonly preview: ApprovalPreview;
  /** Why no person can judge the call. */
  readonly problem?: string | undefined;
}

/** Describes the calls of one thread by everything that decides what would run. */
export class ApprovalSubjects {
  readonly #env: SubjectEnv;
  readonly #started: StartedThread;
  #rootId: string | undefined;

  constructor(env: SubjectEnv, started: StartedThread) {
    this.#env = env;
    this.#started = started;
  }

  /** Returns what people have to agree to before the call runs; undefined if no person has to be asked. */
  async demandOf(
    policies: readonly ApprovalPolicy[],
    call: ReviewedCall,
  ): Promise<Demand | undefined> {
    const { plan } = this.#started;
    const { risks } = this.#env.config;
    const judge = judgeIn(this.#env, this.#started);
    return await demandOf({ plan, risks, policies, ownerKeyId: this.#ownerKeyId, judge }, call);
  }

  /** Returns what the call needs by itself with the input that a person gave instead of the requested one. */
  async edited(policies: readonly ApprovalPolicy[], call: ReviewedCall): Promise<EditedCall> {
    const demand = await this.demandOf(policies, call);
    return {
      input_sha256: canonicalSha256(call.input),
      capability: capabilityOf(call.need),
      item: await this.#itemOf(call),
      requirements: demand?.requirements ?? [],
    };
  }

  /** The most that the call may cost, in USD; null: it has no price. */
  worstCaseOf(call: ReviewedCall): number | null {
    return worstCase(this.#started.plan.limits.spend, call);
  }

  /** Everything that the call would do now; undefined if no person has to be asked. */
  async of(policies: readonly ApprovalPolicy[], call: ReviewedCall): Promise<Asked | undefined> {
    const { plan } = this.#started;
    const { tool, input } = call;
    const demand = await this.demandOf(policies, call);
    if (!demand) return undefined;
    const question = tool.question?.(input);
    const { preview, files, problem } = await this.#env.approvals.describe(
      call,
      workFolder(this.#env, plan),
    );
    const subject: ApprovalSubject = {
      ...(await this.#placeOf(call)),
      ...deciders(demand),
      kind: kindOf(call),
      capability: capabilityOf(call.need),
      files: plan.fleet ? files.map(withoutFolder) : files,
      worst_case_usd: this.worstCaseOf(call),
      scopes: question || tool.presentsPlan ? ['once'] : demand.scopes,
      worker_key_id: this.#ownerKeyId,
      ...(question ? { schema_sha256: canonicalSha256(question.schema) } : {}),
    };
    return { subject, demand, preview, problem };
  }

  /** The key that answers for the thread: in a fleet that of its submitter, whichever worker runs it. */
  get #ownerKeyId(): string {
    return this.#started.plan.fleet?.submitter ?? this.#env.signer().keyId;
  }

  async #placeOf(call: ReviewedCall) {
    const { plan, threadId, document } = this.#started;
    const { sandbox } = plan.settings;
    const hosts = sandbox?.allow_domains ?? [];
    return {
      thread_id: threadId,
      root_thread_id: await this.#root(),
      call_id: call.callId,
      tool: call.tool.id,
      item: await this.#itemOf(call),
      input_sha256: canonicalSha256(call.input),
      // each worker has a separate project for the thread
      cwd: plan.fleet ? `fleet:${plan.work_path ?? '.'}` : workFolder(this.#env, plan),
      sandbox: sandbox?.mode ?? 'off',
      network: networkOf(call, hosts),
      plan_sha256: document.plan_sha256 ?? '',
    };
  }

  async #itemOf(call: ReviewedCall): Promise<ApprovalRequest['item']> {
    const item = await this.#namedItem(call);
    // a script of a skill is not part of the bytes of the skill
    const files = call.tool.ranSha256?.(call.input);
    if (files === undefined) return item;
    return { id: item.id, sha256: canonicalSha256({ item: item.sha256, files }) };
  }

  async #namedItem({ tool, need }: ReviewedCall): Promise<ApprovalRequest['item']> {
    const { item_type: type, item_id: id } = need;
    const isOther = id !== undefined && !(type === 'tool' && id === tool.id);
    if (isOther) {
      try {
        return { id, sha256: (await this.#env.items.load(type, id, 'fetch')).sha256 };
      } catch {
        // a missing item is the fault of the call that needs it
      }
    }
    const { id: toolId, description, inputSchema } = tool;
    const sha256 =
      tool.sha256 ?? canonicalSha256({ id: toolId, description, input_schema: inputSchema });
    return { id: toolId, sha256 };
  }

  async #root(): Promise<string> {
    const { registry } = this.#env.store;
    if (this.#rootId !== undefined) return this.#rootId;
    let at = this.#started.threadId;
    for (let parent = this.#started.plan.parent_thread_id; parent !== null; ) {
      at = parent;
      parent = (await registry.get(at))?.parent_id ?? null;
    }
    this.#rootId = at;
    return at;
  }
}

/** The rules of a thread about its calls. */
interface ThreadRules {
  readonly plan: Pick<ThreadPlan, 'asks' | 'tools' | 'limits'>;
  readonly risks: RiskTable;
  readonly policies: readonly ApprovalPolicy[];
  readonly ownerKeyId: string;
  readonly judge: LoopPorts['judge'];
}

/** Returns the judge of the calls of a thread, in the folder in which it works. */
export function judgeIn(
  env: Pick<Process, 'projectPath'> & Pick<ApprovalEnv, 'approvals'>,
  { plan, threadId }: Pick<StartedThread, 'plan' | 'threadId'>,
): NonNullable<LoopPorts['judge']> {
  const { settings } = plan;
  const folder = workFolder(env, plan);
  return async (tool, input, listsFiles) =>
    await env.approvals.judge({ tool, input, folder, threadId, settings, listsFiles });
}

/** A call as the rules see it. Without money, it is judged as if nothing was spent. */
interface JudgedCall extends Pick<ReviewedCall, 'input' | 'need' | 'asks'> {
  readonly tool: Pick<Tool, 'id' | 'question' | 'presentsPlan'> &
    Partial<Pick<Tool, 'traits' | 'inputSchema'>>;
  readonly money?: ReviewedCall['money'];
}

/** Returns what people have to agree to before a call runs; undefined if no person has to be asked. */
export async function demandOf(
  { plan, risks, policies, ownerKeyId, judge }: ThreadRules,
  call: JudgedCall,
): Promise<Demand | undefined> {
  const { tool, input, need } = call;
  const capability = capabilityOf(need);
  const risk = callRisk(plan, risks, call);
  const isAsked = risks.levels[risk] === 'ask';
  const question = tool.question?.(input);
  const asks: readonly Ask[] = [
    ...permissionAsks(plan.asks ?? [], capability),
    ...(isAsked ? [{ source: `risk ${risk}`, reason: `it is ${risk}` }] : []),
    ...call.asks,
    ...(question ? [{ source: question.source ?? 'model', reason: '' }] : []),
    ...(tool.presentsPlan ? [{ source: 'model', reason: '' }] : []),
  ];
  if (policies.length === 0 && asks.length === 0) return undefined;
  const money = await call.money?.();
  const context = money ? { cost: { ...money.cost }, cost_left: money.left } : {};
  const worstCaseUsd = worstCase(plan.limits.spend, call);
  const parameters = parametersOf(plan, tool);
  const rules = policies.flatMap((policy) => policy.rules);
  const listsFiles = rules.some(({ when }) => readsFiles(when));
  const judged = rules.length === 0 ? undefined : await judge?.(tool.id, input, listsFiles);
  const asked = {
    tool: tool.id,
    capability,
    risk,
    input,
    judged,
    worstCaseUsd,
    context,
    parameters,
  };
  return demandFor(policies, asked, asks, { name: 'owner', key_id: ownerKeyId });
}

/** True if other people than a request names have to agree to its call now, such as after a change of keys or approvers. */
export async function asksOthers(
  env: Process & Configured & ApprovalEnv,
  plan: ThreadPlan,
  { request, input }: Pick<RequestedApproval, 'request' | 'input'>,
): Promise<boolean> {
  const ownerKeyId = plan.fleet?.submitter ?? env.signer().keyId;
  if (request.worker_key_id !== ownerKeyId) return true;
  const { tool: id } = request;
  if (request.kind !== 'call') return false;
  const policies = await env.approvals.policies();
  const judge = judgeIn(env, { plan, threadId: request.thread_id });
  const rules = { plan, risks: env.config.risks, policies, ownerKeyId, judge };
  const asks = [{ source: request.rule, reason: '' }];
  const need = env.approvals.needOf(id, input);
  const demand = await demandOf(rules, { tool: { id }, input, need, asks });
  return !jsonEquals(decidersOf(request.requirements), decidersOf(demand?.requirements ?? []));
}

function decidersOf(requirements: readonly ApprovalRequirement[]): JsonValue {
  return requirements.map(({ approvers, quorum }) => ({
    approvers: approvers.map((one) => ({ ...one })),
    quorum,
  }));
}

function kindOf({ tool, input }: ReviewedCall): ApprovalSubject['kind'] {
  if (tool.presentsPlan) return 'plan';
  if (tool.question?.(input)) return 'question';
  return tool.id === LIMIT_ID ? 'limit' : 'call';
}

/** The names of a tool's parameters; undefined if it takes others too. */
function parametersOf(
  { tools }: Pick<ThreadPlan, 'tools'>,
  { id, inputSchema }: JudgedCall['tool'],
): readonly string[] | undefined {
  const schema = inputSchema ?? tools.find((tool) => tool.id === id)?.input_schema;
  const { properties, additionalProperties: more } = schema ?? {};
  return isJsonObject(properties) && more === false ? Object.keys(properties) : undefined;
}

function callRisk(
  { tools }: Pick<ThreadPlan, 'tools'>,
  risks: RiskTable,
  { tool, need }: JudgedCall,
): Risk {
  const isOwnTool = need.item_type === 'tool' && need.item_id === tool.id;
  const planned = isOwnTool ? tools.find(({ id }) => id === tool.id)?.risk : undefined;
  const declared = isOwnTool ? tool.traits?.risk : undefined;
  return planned ?? riskOf(capabilityOf(need), risks, declared);
}

/** In a fleet each worker has a separate project for the thread, so the folders differ. */
function withoutFolder({ path, sha256, real }: ApprovalSubject['files'][number]) {
  return { path, sha256, ...(real === undefined ? {} : { real }) };
}

function networkOf({ tool }: ReviewedCall, hosts: readonly string[]): ApprovalSubject['network'] {
  if (!tool.traits.network) return 'none';
  return hosts.length > 0 ? hosts : 'any';
}

function deciders({ requirements, reason, onExpiry }: Demand) {
  const approvers = requirements.flatMap((one) => one.approvers);
  return {
    reason,
    requirements,
    rule: requirements.map(({ rule }) => rule).join(', '),
    approvers: approvers.filter(
      ({ key_id: key }, at) => approvers.findIndex((one) => one.key_id === key) === at,
    ),
    quorum: Math.max(1, ...requirements.map(({ quorum }) => quorum)),
    on_expiry: onExpiry,
  };
}

/** The most that a call may cost: a child may spend what it is given. */
function worstCase(
  spend: number,
  { need, input }: Pick<ReviewedCall, 'need' | 'input'>,
): number | null {
  if (need.verb !== 'execute' || need.item_type !== 'directive') return null;
  const { limit_overrides: given } = input;
  const own =
    typeof given === 'object' && given !== null && 'spend' in given ? given['spend'] : spend;
  return typeof own === 'number' ? Math.min(own, spend) : spend;
}
