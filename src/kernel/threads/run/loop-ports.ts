import { isoTime } from '../../core/clock.ts';
import { compact } from '../../core/json.ts';
import type { Limits } from '../../core/limits.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { type Cost, type MicroUsd, toMicroUsd } from '../../core/usage.ts';
import type { BudgetPort, LoopPorts } from '../../loop/ports.ts';
import { type ErrorRule, parseErrorRules } from '../../policy/error-class.ts';
import type { ToolDefinition, ToolList } from '../../providers/provider.ts';
import type { ApprovalEnv } from '../approval-port.ts';
import type { LegControl } from '../fleet-port.ts';
import type { OpenTools, Process, Sources, Stored } from '../ports.ts';
import { returnCheck } from '../prepare/directive.ts';
import { workFolder } from '../worktrees.ts';
import { judgeIn } from './approval-subject.ts';
import type { Opening } from './opening.ts';
import type { StartedThread } from './start.ts';
import type { Tooling } from './tooling.ts';

/** Returns the ports that the loop of a thread has in common with its replay. */
export function sharedPorts(
  env: Process & Pick<Sources, 'models'> & ApprovalEnv,
  { threadId, plan, parent }: StartedThread,
  { tools, hooks }: Pick<Tooling, 'tools' | 'hooks'>,
  { system, messages }: Pick<Opening, 'system' | 'messages'>,
) {
  return {
    threadId,
    projectPath: workFolder(env, plan),
    system,
    history: messages,
    ...(parent ? { parentLimits: parent.limits } : {}),
    traits: env.models.traits,
    ...compact({ about: env.models.about, renewKey: env.models.renewKey }),
    definitions: () => tools.definitions(),
    tools: tools.set,
    hooks,
    clock: env.clock,
    errorRules: errorRulesOf(plan),
    random: env.random,
    validate: (schema, input) => tools.validate(schema, input),
    checkReturn: returnCheck(plan, tools),
    gates: tools.gates,
    judge: judgeIn(env, { plan, threadId }),
  } satisfies Partial<LoopPorts>;
}

/** Returns the claim of a running thread in the ledger. `onReport` is told what the ledger knows. */
export function budgetPort(
  { store, clock }: Stored & Pick<Process, 'clock'>,
  { threadId, record: { epoch } }: StartedThread,
  onReport: (spent: MicroUsd, cost: Cost) => void,
): BudgetPort {
  const { ledger, registry } = store;
  return {
    remainingMicroUsd: () => ledger.remaining(threadId),
    held: () => ledger.held(threadId),
    hold: (most) => ledger.holdForCall(threadId, most, epoch),
    report: async (spent, cost, nextCall) => {
      await ledger.report(threadId, spent, epoch, nextCall);
      onReport(spent, cost);
      await registry.heartbeat(threadId, epoch, isoTime(clock.now()), { cost });
    },
  };
}

/** Raises the limits of a running thread in the ledger and in its thread.json, which bounds its children. */
export async function raisedThread(
  env: Stored & Pick<Process, 'clock'>,
  started: StartedThread,
  limits: Limits,
): Promise<StartedThread> {
  const { threadId, record } = started;
  await env.store.ledger.raise(threadId, toMicroUsd(limits.spend), record.epoch);
  const document = { ...started.document, limits, updated_at: isoTime(env.clock.now()) };
  await env.files.writeDocument(document);
  return { ...started, document };
}

/** Returns what the loop obeys in a leg of a fleet. Only the thread of the leg is parked, not a child in its process. */
export function legPorts(
  leg: LegControl | undefined,
  threadId: string,
): Pick<LoopPorts, 'mayStart' | 'parkReason'> {
  if (!leg) return {};
  const { mayStart, parkReason } = leg;
  return { mayStart, ...(leg.threadId === threadId ? { parkReason } : {}) };
}

/** Returns the parsed `error_classification` of a plan. */
export function errorRulesOf({ settings }: ThreadPlan): readonly ErrorRule[] {
  const { error_classification: patterns } = settings;
  const known = parsedErrorRules.get(patterns);
  if (known) return known;
  const rules = parseErrorRules(patterns, 'agent/error_classification');
  parsedErrorRules.set(patterns, rules);
  return rules;
}

/** Threads of one configuration have their patterns in common. */
const parsedErrorRules = new WeakMap<readonly unknown[], readonly ErrorRule[]>();

/**
 * Returns the tools offered now for a thread that resumes: the recorded ones in the same bytes, those unlocked since
 * after them. A list is made once for each version of the thread's tools.
 */
export function recordedFirst(
  recorded: readonly ToolDefinition[],
  tools: Pick<OpenTools, 'definitions' | 'withdrawn'>,
): () => ToolList {
  if (recorded.length === 0) return () => tools.definitions();
  const known = new Set(recorded.map(({ name }) => name));
  let merged: ToolList | undefined;
  return () => {
    const { version, tools: offered } = tools.definitions();
    if (merged?.version === version) return merged;
    const withdrawn = tools.withdrawn?.();
    const kept = recorded.filter(({ name }) => withdrawn?.has(name) !== true);
    merged = { version, tools: [...kept, ...offered.filter(({ name }) => !known.has(name))] };
    return merged;
  };
}
