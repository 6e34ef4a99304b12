import type { Ask } from '../core/approval.ts';
import { type CapabilityNeed, capabilityOf } from '../core/capability.ts';
import { messageOf, RyeError } from '../core/errors.ts';
import type { EventDraft } from '../core/events.ts';
import type { ControlAction } from '../core/hook.ts';
import { compact, type JsonObject } from '../core/json.ts';
import type { CallContext } from '../hooks/handlers.ts';
import { callViews, commandTexts } from '../policy/call-views.ts';
import { covers } from '../policy/capability.ts';
import type { Resolution, ResolvedCall } from '../tools/tool.ts';
import type { OverBudget } from './call-history.ts';
import { hiddenMessage } from './conversation.ts';
import {
  aboutCall,
  answerUnknown,
  decideBudget,
  gateCall,
  hasHandler,
  shaped,
} from './handlers.ts';
import type { GateDecision } from './ports.ts';
import type { Run } from './run.ts';
import { isStopped, orStopped } from './stop.ts';
import {
  type Admitted,
  type Requested,
  type Settled,
  settle,
  settleUnrun,
  stopReason,
  type TypedCall,
  typed,
  type Validated,
} from './tool-call.ts';

/**
 * Takes a call as far as it can go without an effect: resolve, policy gates, hook gates, substitution, validation. A
 * refusal is final: no later gate is asked, and nothing can undo it.
 */
export async function admit(run: Run, requested: Requested): Promise<Validated | Settled> {
  const resolved = await resolve(run, requested);
  if ('stage' in resolved) return resolved;
  const admitted = await policyGates(run, requested, resolved);
  if (admitted.stage === 'settled') return admitted;
  const { settled: gated, asks } = await callGates(run, requested, resolved);
  if (gated && gated.outcome !== 'substituted') return gated;
  for (const { tool } of judged(resolved)) await letThrough(run, requested, tool.id);
  if (gated) return await shaped(run, gated);
  return ready({ ...admitted, asks });
}

function factsOf({ tool, input, need }: ResolvedCall) {
  return {
    tool: tool.id,
    input,
    primary: need.verb,
    item_type: need.item_type,
    ...(need.item_id === undefined ? {} : { item_id: need.item_id }),
    reads_only: tool.traits.reads_only,
  };
}

function ready({ requested, resolved, asks }: Admitted): Validated | Settled {
  const { tool, input, coerced, need, invalid } = resolved;
  return invalid ?? { stage: 'validated', requested, tool, input, coerced, need, asks };
}

/** The calls that gates judge: the call, and the call that it starts in the background. */
function judged(call: ResolvedCall): readonly ResolvedCall[] {
  return call.starts ? [call, call.starts] : [call];
}

/** Asks hooks and handlers about a call, and about the call that it starts, whose thread has no hooks of this directive. */
async function callGates(run: Run, requested: Requested, call: ResolvedCall): Promise<Gated> {
  const gated = await hookGates(run, requested, factsOf(call));
  if (gated.settled || !call.starts) return gated;
  const { settled, asks } = await hookGates(run, requested, factsOf(call.starts));
  // a hook of the configuration also asks in that thread
  const own = asks.filter(({ isConfigured }) => isConfigured !== true);
  return { ...(settled ? { settled } : {}), asks: [...gated.asks, ...own] };
}

/**
 * Takes a call with the input that a person gave it through every gate again: no person can allow what permissions or hooks
 * refuse. What hooks ask about the new input counts too.
 */
export async function readmit(
  run: Run,
  { requested, tool, need }: Validated,
  input: JsonObject,
): Promise<Validated | Settled> {
  const resolved = await found(run, requested, tool.id, input);
  // a tool that was loaded for this call has no name
  const call =
    resolved.kind === 'unknown'
      ? await typed(run, requested, { tool, input, need })
      : resolved.call;
  if ('stage' in call) return call;
  if (call.tool.id !== tool.id) {
    const reason = `the input that a person gave makes it a call of ${call.tool.id}`;
    return settleUnrun(requested, tool.id, 'blocked', reason, 'approval_invalid');
  }
  const admitted = await policyGates(run, requested, call);
  if (admitted.stage === 'settled') return admitted;
  const { settled, asks } = await callGates(run, requested, call);
  return settled ?? ready({ ...admitted, asks });
}

/** Counts the call, and tells the model if the tool's budget is used up. */
async function letThrough(run: Run, requested: Requested, tool: string): Promise<void> {
  const over = run.calls.budgets.admit(tool);
  if (!over) return;
  await run.conversation.write(overDraft(requested, tool, over));
  await run.conversation.inject([hiddenMessage('tool_budget', over.message)]);
}

function overDraft(requested: Requested, tool: string, { count, budget }: OverBudget): EventDraft {
  const { call_id } = requested.call;
  const { max, mode } = budget;
  return { event_type: 'tool_budget_exceeded', payload: { call_id, tool, count, max, mode } };
}

async function resolve(run: Run, requested: Requested): Promise<TypedCall | Settled> {
  const { call } = requested;
  if (run.stop.signal.aborted) return notStarted(run, requested, call.name);
  if (call.malformed !== undefined) {
    run.calls.budgets.admit(await idOf(run, call.name));
    const reason = `the arguments of ${call.name} are not a JSON object. Send them again, complete.`;
    return settleUnrun(requested, call.name, 'invalid', reason);
  }
  const resolution = await found(run, requested, call.name, call.input);
  return resolution.kind === 'unknown'
    ? await unknown(run, requested, resolution)
    : resolution.call;
}

/** Finds the tool of a call, and gives the input the types of its schema; settled if that fails or the run stops. */
async function found(
  run: Run,
  requested: Requested,
  name: string,
  input: JsonObject,
): Promise<Found> {
  try {
    const resolution = await orStopped(run.ports.tools.resolve(name, input), run.stop.signal);
    if (isStopped(resolution)) return { kind: 'settled', call: notStarted(run, requested, name) };
    if (resolution.kind === 'unknown') return resolution;
    return { kind: 'resolved', call: await typed(run, requested, resolution.call) };
  } catch (error) {
    const code = error instanceof RyeError ? error.code : 'tool_failed';
    const call = settleUnrun(requested, name, 'invalid', messageOf(error), code);
    return { kind: 'settled', call };
  }
}

type Found =
  | { readonly kind: 'resolved'; readonly call: TypedCall }
  | { readonly kind: 'settled'; readonly call: Settled }
  | Extract<Resolution, { readonly kind: 'unknown' }>;

/** The id of a tool by the name that the model used; the name itself if it needs the arguments or is unknown. */
async function idOf(run: Run, name: string): Promise<string> {
  try {
    const resolution = await run.ports.tools.resolve(name, {});
    return resolution.kind === 'resolved' ? resolution.call.tool.id : name;
  } catch {
    return name;
  }
}

/** Gates judge a call of an unknown tool like any other, before anything answers for it. */
async function unknown(
  run: Run,
  requested: Requested,
  { near, id }: Extract<Resolution, { readonly kind: 'unknown' }>,
): Promise<Settled> {
  const { call } = requested;
  const refused =
    (await overBudget(run, requested, call.name)) ??
    (await hookGates(run, requested, { tool: call.name, input: call.input })).settled;
  if (refused && refused.outcome !== 'substituted') return refused;
  await letThrough(run, requested, call.name);
  if (refused) return await shaped(run, refused);
  const hint = near.length === 0 ? '' : ` Did you mean ${near.join(' or ')}?`;
  const asked =
    id === undefined || id === call.name ? call.name : `${id}, which ${call.name} was to run`;
  const reason = `${asked}.${hint}`;
  const settled = settleUnrun(requested, call.name, 'unknown', reason);
  const error = { code: 'item_not_found', message: `Unknown tool: ${reason}` };
  const answer = await answerUnknown(run, aboutCall(run, call), error);
  return answer ? settle(requested, call.name, 'substituted', answer) : settled;
}

/** A call that no tool has seen, because the run stopped first. */
export function notStarted(run: Run, requested: Requested, tool: string): Settled {
  const reason = `${stopReason(run)}; the call was not started`;
  return settleUnrun(requested, tool, 'aborted', reason);
}

/** Fixed order, first refusal wins: capability, then what the integrator adds, then the tool's budget. */
async function policyGates(
  run: Run,
  requested: Requested,
  resolved: TypedCall,
): Promise<Admitted | Settled> {
  for (const one of judged(resolved)) {
    const { tool, need } = one;
    if (!covers(run.plan.capabilities, need)) return denied(requested, tool.id, need);
    for (const gate of run.ports.gates ?? []) {
      const reason = gate(one);
      if (reason !== undefined) return settleUnrun(requested, tool.id, 'blocked', reason);
    }
    const over = await overBudget(run, requested, tool.id);
    if (over) return over;
  }
  return { stage: 'admitted', requested, resolved, asks: [] };
}

async function overBudget(
  run: Run,
  requested: Requested,
  tool: string,
): Promise<Settled | undefined> {
  await decideBudget(run, requested.call, tool);
  const over = run.calls.budgets.refusal(tool);
  if (!over) return undefined;
  await run.conversation.write(overDraft(requested, tool, over));
  return settleUnrun(requested, tool, 'blocked', over.message);
}

function denied(requested: Requested, tool: string, need: CapabilityNeed): Settled {
  const reason = `this thread does not hold the capability ${capabilityOf(need)}`;
  return settleUnrun(requested, tool, 'blocked', reason, 'capability_denied');
}

/** The judgement of hooks and handlers on a call: settled if they refuse it or replace its result; else with what they ask. */
interface Gated {
  readonly settled?: Settled;
  /** `isConfigured`: a hook of the user, the project or the program asks. */
  readonly asks: readonly (Ask & { readonly isConfigured?: true })[];
}

async function hookGates(
  run: Run,
  requested: Requested,
  facts: Pick<CallContext, 'tool' | 'input'> & Partial<CallContext>,
): Promise<Gated> {
  const { tool } = facts;
  const { views, members } = await judgedBy(run, tool, facts.input);
  const context = run.hooks.context({
    call_id: requested.call.call_id,
    name: requested.call.name,
    ...facts,
    ...members,
    run_tool_counts: run.calls.budgets.counts,
  });
  const report = await run.hooks.gate(context, views);
  const { decision, substitute } = report;
  if (run.stop.signal.aborted) return ended(notStarted(run, requested, tool));
  const reason = refusalOf(decision);
  if (decision?.control === 'abort' || decision?.control === 'suspend')
    run.stop.endAfterBatch(decision);
  if (reason !== undefined) {
    const refused = settleUnrun(requested, tool, 'blocked', reason, 'hook_failed');
    return ended({ ...refused, reason: run.hooks.refused(reason, report) });
  }
  const judgement = await gateCall(run, context as CallContext);
  if (run.stop.signal.aborted) return ended(notStarted(run, requested, tool));
  if (judgement.refusal !== undefined) {
    return ended(settleUnrun(requested, tool, 'blocked', judgement.refusal));
  }
  const content = judgement.substitute ?? substitute?.content;
  if (content) return ended(settle(requested, tool, 'substituted', content));
  return { asks: [...askOf(report), ...judgement.asks] };
}

/** Returns what gates judge: the call with real paths, each file that it opens, and each command that it runs. */
async function judgedBy(run: Run, tool: string, raw: JsonObject) {
  const { hooks } = run.ports;
  const isHandled = hasHandler(run, 'tool_gate');
  if (!(isHandled || run.hooks.hasGates)) return { views: [{ input: raw }], members: {} };
  const listsFiles = isHandled || hooks.gatesPaths?.() === true;
  const seen = (await run.ports.judge?.(tool, raw, listsFiles)) ?? { input: raw };
  const views = callViews(tool, raw, seen);
  const commands = commandTexts(views);
  const { input, files } = seen;
  return { views, members: compact({ input, files, commands }) };
}

function askOf({ decision, fired }: GateDecision): Gated['asks'] {
  if (decision?.control !== 'ask') return [];
  const ask = { source: 'hook', reason: decision.reason ?? '' };
  const by = fired.find(({ outcome }) => outcome === 'ask')?.layer;
  return [by === DIRECTIVE_LAYER ? ask : { ...ask, isConfigured: true }];
}

const DIRECTIVE_LAYER = 1;

function ended(one: Settled): Gated {
  return { settled: one, asks: [] };
}

/** Only silence, `continue` or `ask` lets a call through. */
function refusalOf(decision: ControlAction | undefined): string | undefined {
  switch (decision?.control) {
    case undefined:
    case 'continue':
    case 'ask':
      return undefined;
    case 'fail':
      return decision.error ?? 'a hook refused the call';
    case 'abort':
      return 'a hook ended the thread';
    case 'suspend':
      return decision.reason ?? 'a hook suspended the thread';
    case 'retry':
    case 'escalate':
    case 'handoff':
    case 'compact':
      break;
  }
  return `a hook decided ${decision.control}, which a gate cannot do`;
}
