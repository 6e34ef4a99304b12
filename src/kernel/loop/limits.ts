import { messageOf, RyeError } from '../core/errors.ts';
import type { RequestEstimate } from '../core/events.ts';
import type { ControlAction } from '../core/hook.ts';
import { compact } from '../core/json.ts';
import { LIMIT_NAMES, LIMITS, type LimitName } from '../core/limits.ts';
import type { Message } from '../core/message.ts';
import type { PlannedModel } from '../core/plan.ts';
import { DIRECTIVE_RETURN } from '../core/return-schema.ts';
import { didYouMean } from '../core/text.ts';
import { formatUsd, type MicroUsd, toMicroUsd, toUsd } from '../core/usage.ts';
import { repairPairing } from '../log/context.ts';
import { heldText } from '../policy/budget.ts';
import { affordableMaxTokens, type LimitReached, worstMicroUsd } from '../policy/limits.ts';
import { type ModelRequest, THINKING_TOKENS } from '../providers/provider.ts';
import { CHANGING_TRAITS, errorOutput, type Tool } from '../tools/tool.ts';
import { note } from './conversation.ts';
import { hasHandler, thinkingOf, transformMessages, transformSystem } from './handlers.ts';
import { decidedEnding } from './hooks.ts';
import { type Allowance, ContextMeter } from './meters.ts';
import type { Ending } from './ports.ts';
import type { Run } from './run.ts';
import { moneyOf } from './spend.ts';

/** Represents the raise of a limit in a request; no call runs it. */
const LIMIT: Tool = {
  id: 'rye/agent/limit',
  description: 'Raises a limit of the thread.',
  inputSchema: { type: 'object' },
  traits: CHANGING_TRAITS,
  execute: () => Promise.resolve(errorOutput('A limit is raised by a person.')),
};

type Ask = Extract<ControlAction, { readonly control: 'ask' }>;

/** The decision about the raise of a limit: `raise` if a person has agreed, the ids to wait for, or neither. */
interface LimitDecision {
  readonly raise?: { readonly limit: string; readonly to: number };
  readonly waiting?: readonly string[];
}

/** Asks a person to raise a limit that was reached. */
async function requestRaise(
  run: Run,
  { name, current, max }: LimitReached,
  { limit = name, to = max * 2, reason = '' }: Ask,
): Promise<LimitDecision> {
  const { ports, conversation, stop, spend } = run;
  const { approvals } = ports;
  if (!approvals) return {};
  const call = {
    callId: `limit-${limit}-${max}`,
    tool: LIMIT,
    input: { limit, current, max, to },
    need: { verb: 'execute', item_type: 'tool', item_id: LIMIT.id } as const,
    asks: [{ source: 'hook', reason }],
    money: async () => await moneyOf(run),
  };
  const [review] = await approvals.review([call]);
  if (review?.kind === 'unreachable') {
    await conversation.write(...review.drafts, note(`warning: ${review.reason}`, { limit, to }));
  }
  if (review?.kind !== 'asked') return {};
  await conversation.write(...review.drafts);
  spend.pause();
  await approvals.publish([review.id]);
  const verdict = await approvals.wait(review.id, call, stop.cancelSignal);
  spend.goOn();
  if (verdict.kind === 'waiting') return { waiting: [review.id] };
  if (verdict.kind !== 'approved') {
    await conversation.write(...verdict.drafts);
    return {};
  }
  const confirmed = await approvals.confirm(review.id, call, {
    ...call,
    input: verdict.input ?? call.input,
  });
  await conversation.write(...confirmed.drafts);
  if (confirmed.kind === 'voided') return {};
  const wanted = verdict.input?.['to'];
  return { raise: { limit, to: typeof wanted === 'number' ? wanted : to } };
}

/** The minimum of an answer in tokens: a shorter one is not worth its input. */
const MIN_OUTPUT_TOKENS = 256;
/** Tokens of an answer if nothing asks for more. The money for all of them must be there before each call. */
const DEFAULT_OUTPUT_TOKENS = 16_384;

/** Asks the `limit` hooks about each reached limit until none is reached, or until one ends the run. */
export async function enforceLimits(run: Run): Promise<Ending | undefined> {
  for (;;) {
    const reached = run.spend.reachedLimit();
    if (!reached) return undefined;
    const ending = await handleLimit(run, reached);
    if (ending) return ending;
  }
}

/** Records a reached limit and asks the hooks. Undefined if one of them raised it. */
export async function handleLimit(run: Run, reached: LimitReached): Promise<Ending | undefined> {
  const { name, current, max, short, in_answer: inAnswer } = reached;
  await run.conversation.write({
    event_type: 'limit_reached',
    payload: {
      code: `limit_${name}`,
      current,
      max,
      ...short,
      ...(inAnswer ? { in_answer: true } : {}),
    },
  });
  const decision = await run.hooks.control('limit', {
    limit_code: `limit_${name}`,
    limit_name: name,
    current_value: current,
    current_max: max,
  });
  if (decision?.control === 'ask') {
    const { raise, waiting } = await requestRaise(run, reached, decision);
    if (waiting) {
      const reason = `${name} limit reached, a person is asked to raise it`;
      return { kind: 'suspended', reason, approvals: waiting };
    }
    if (raise && (await escalate(run, { control: 'escalate', ...raise }))) return undefined;
    return limitEnding(run, reached);
  }
  // only an escalation makes room for another turn
  if (decision?.control === 'escalate' && (await escalate(run, decision))) return undefined;
  if (decision?.control === 'fail') return limitEnding(run, reached, decision.error);
  return decidedEnding(decision, 'limit', `${name} limit reached`) ?? limitEnding(run, reached);
}

async function escalate(
  run: Run,
  { limit, to }: Extract<ControlAction, { control: 'escalate' }>,
): Promise<boolean> {
  const name = LIMIT_NAMES.find((known) => known === limit);
  if (name === undefined) {
    const hint = didYouMean(limit, LIMIT_NAMES) ?? `Limits are ${LIMIT_NAMES.join(', ')}.`;
    await run.conversation.write(
      note(`a hook asked to raise "${limit}", which is not a limit. ${hint}`),
    );
    return false;
  }
  let raised: number | undefined;
  let problem = '';
  try {
    raised = await run.spend.escalate(name, to);
  } catch (error) {
    problem = `: ${messageOf(error)}`;
  }
  if (raised === undefined) {
    await run.conversation.write(note(`the limit ${name} was not raised to ${to}${problem}`));
    return false;
  }
  const payload = { limit: name, to: raised };
  await run.conversation.write(
    { event_type: 'limit_raised', payload, durable: true },
    note(`the limit ${name} was raised to ${raised}`),
  );
  return true;
}

function limitEnding(run: Run, reached: LimitReached, text?: string): Ending {
  const { name, current, max, short } = reached;
  const { grant, isRaise } = grantAfter(run.plan, reached);
  const options = `--limit ${name}=${grant ?? 'N'}${isRaise ? ' --raise-limits' : ''}`;
  const error = new RyeError(`limit_${name}`, text ?? reasonOf(reached), {
    hint: short?.held
      ? 'Wait for the children before the next call, lower their spend limits, or raise spend of this thread; then resume it.'
      : `To allow ${moreOf(name, grant)}: rye threads resume ${run.ports.threadId} ${options}. To change the limit itself, edit the directive's <limits>.`,
    details: compact({
      limit: name,
      current,
      max,
      ...short,
      grant,
      raise_limits: isRaise || undefined,
    }),
  });
  return { kind: 'limit', ...reached, error: error.toJSON() };
}

/** Returns the amount with which a resume can continue: as much again, up to what a new run would get; more if the next call needs it. */
function grantAfter(
  { limits, granted_limits: granted }: Run['plan'],
  { name, max, short }: LimitReached,
): { readonly grant: number | undefined; readonly isRaise: boolean } {
  const free = granted?.[name] ?? limits[name];
  const again = Math.min(max, free);
  // later calls send more than the next one: twice its price, in whole cents
  const needed = short ? Math.ceil(short.needed * 200) / 100 : 0;
  const isEnough = again > 0 && again >= (short?.needed ?? 0);
  const grant = isEnough ? again : Math.max(again, needed);
  return { grant: grant > 0 ? grant : undefined, isRaise: grant > free || grant <= 0 };
}

/** Formats what a resume grants: `another $0.50`, because it counts from there and not from the start. */
function moreOf(name: LimitName, grant: number | undefined): string {
  if (grant === undefined) return 'more';
  if (name === 'spend') {
    return `another ${Number.isInteger(grant * 100) ? `$${grant.toFixed(2)}` : formatUsd(grant)}`;
  }
  return `another ${grant} ${LIMITS[name].one}${grant === 1 ? '' : 's'}`;
}

function reasonOf({ name, current, max, short, in_answer: inAnswer }: LimitReached): string {
  if (inAnswer) {
    const [used, of] = name === 'spend' ? [formatUsd(current), formatUsd(max)] : [current, max];
    return `Answer stopped: it exceeded the ${name} limit (${used} of ${of})`;
  }
  if (short) {
    const held = (short.held ?? []).map(({ thread_id, usd }) => {
      return { thread_id, microUsd: toMicroUsd(usd) };
    });
    // cents, unless they hide the difference
    const isClear = short.needed - short.left >= 0.01 && max >= 0.01;
    const usd = isClear ? (amount: number): string => `$${amount.toFixed(2)}` : formatUsd;
    return `Budget reached: the next call could cost up to ${usd(short.needed)}, and only ${usd(short.left)} of ${usd(max)} is left${heldText(held)}`;
  }
  if (name === 'duration_seconds') return `Time limit reached (${max} s)`;
  const [used, of] = name === 'spend' ? [formatUsd(current), formatUsd(max)] : [current, max];
  return `${LIMITS[name].title} limit reached (${used} of ${of})`;
}

export type CallPlan =
  | {
      readonly kind: 'ready';
      readonly request: ModelRequest;
      readonly allowance: Allowance;
      readonly mostInputTokens: number;
      /** For the log; undefined if the call costs nothing. */
      readonly estimate: RequestEstimate | undefined;
    }
  | { readonly kind: 'unaffordable'; readonly reached: LimitReached }
  | { readonly kind: 'refused'; readonly ending: Ending };

/**
 * Plans the next request. Its `max_tokens` is so low that the worst case fits the thread's spend limit and its
 * budget: a limit is a promise, so a call that might break it is not made.
 */
export async function planCall(run: Run): Promise<CallPlan> {
  const { behavior, conversation, models, plan, ports, spend } = run;
  const model = models.current;
  const outgoing = await outgoingMessages(run);
  const likelyInput = conversation.likelyTokens();
  const tokensLeft = spend.tokensLeft();
  const room = Math.min(model.context_window, tokensLeft) - likelyInput;
  const thinking = await thinkingOf(run);
  const wanted = Math.min(
    model.max_output_tokens,
    behavior.maxTokens ?? usualOutputTokens(run, thinking),
    Math.max(MIN_OUTPUT_TOKENS, room),
  );
  const inputTokens = Math.max(conversation.worstTokens(), outgoing.worstTokens);
  let maxTokens = wanted;
  let microUsdLeft: MicroUsd | undefined;
  if (model.pricing) {
    microUsdLeft = await spend.remainingMicroUsd();
    const minimum = Math.min(MIN_OUTPUT_TOKENS, wanted);
    const call = {
      remainingMicroUsd: microUsdLeft,
      inputTokens,
      pricing: model.pricing,
      wanted,
      minimum,
    };
    const affordable = affordableMaxTokens(call);
    if (affordable === undefined) return await unaffordable(run, call);
    maxTokens = affordable;
  } else if (!plan.allow_unpriced) {
    return { kind: 'refused', ending: unpriced(run) };
  }
  const request: ModelRequest = compact({
    model: model.id,
    system: conversation.system,
    messages: outgoing.messages,
    tools: ports.definitions().tools,
    max_tokens: maxTokens,
    thinking,
    cache: behavior.cache ?? plan.settings.cache,
    betas: behavior.betas,
    context_management: behavior.contextManagement,
    ...resultMembers(run),
  });
  return {
    kind: 'ready',
    request,
    allowance: { outputTokens: maxTokens, tokensLeft, microUsdLeft, inputTokens: likelyInput },
    mostInputTokens: inputTokens,
    estimate: models.traits.embedded
      ? undefined
      : {
          ...estimateOf(model, inputTokens, maxTokens),
          ...(thinking === models.thinking ? {} : { thinking }),
        },
  };
}

/** Returns the tokens that an answer is allowed by default: enough for the work, so that a call does not hold a whole budget. */
function usualOutputTokens({ models, progress }: Run, thinking: ModelRequest['thinking']): number {
  // a model whose answer was cut writes longer ones than most
  if (models.traits.embedded || progress.needsLongAnswers) return Number.POSITIVE_INFINITY;
  return DEFAULT_OUTPUT_TOKENS + THINKING_TOKENS[thinking];
}

/**
 * Asks for a result with a schema from the first request on. A model that has finished without one is made to return, unless
 * its directive declares outputs, for which more may have to be done.
 */
function resultMembers({
  plan,
  progress,
  resultSchema: schema,
}: Run): Pick<ModelRequest, 'output_schema' | 'tool_choice'> {
  if (!schema || progress.outputs) return {};
  const isForced = progress.outputRequests > 0 && plan.outputs.length === 0;
  return {
    output_schema: schema,
    ...(isForced ? { tool_choice: { name: DIRECTIVE_RETURN } } : {}),
  };
}

/** Tokens that the next request may have more than what it holds now, and that its answer may have. */
const MORE_INPUT_TOKENS = 2048;
const NEXT_OUTPUT_TOKENS = 512;

/** Returns what the call after this one may cost, with short results: the children of this batch have to leave it. */
export function nextCallOf({ conversation, models }: Run): MicroUsd {
  const { pricing } = models.current;
  if (!pricing) return 0;
  const inputTokens = conversation.worstTokens() + MORE_INPUT_TOKENS;
  return worstMicroUsd({ inputTokens, pricing }, NEXT_OUTPUT_TOKENS);
}

/** Returns the most that a call may use, for the log. */
export function estimateOf(
  { provider, id, pricing, context_window }: PlannedModel,
  inputTokens: number,
  maxTokens: number,
): RequestEstimate {
  return {
    provider,
    model: id,
    input_tokens: inputTokens,
    max_tokens: maxTokens,
    context_window,
    ...(pricing ? { reserved_usd: toUsd(worstMicroUsd({ inputTokens, pricing }, maxTokens)) } : {}),
  };
}

async function unaffordable(
  run: Run,
  call: Parameters<typeof affordableMaxTokens>[0] & { readonly minimum: number },
): Promise<CallPlan> {
  const held = (await run.ports.budget.held?.()) ?? [];
  const short = {
    needed: toUsd(worstMicroUsd(call, call.minimum)),
    left: toUsd(Math.max(0, call.remainingMicroUsd)),
    ...(held.length === 0
      ? {}
      : { held: held.map(({ thread_id, microUsd }) => ({ thread_id, usd: toUsd(microUsd) })) }),
  };
  const { spend: max } = run.spend.limits;
  const reached = { name: 'spend' as const, current: toUsd(run.spend.microUsd), max, short };
  return { kind: 'unaffordable', reached };
}

/** Returns the messages to send, and what they may cost at worst if handlers changed them. Sets the system text. */
async function outgoingMessages(
  run: Run,
): Promise<{ readonly messages: readonly Message[]; readonly worstTokens: number }> {
  const { conversation, models, ports } = run;
  const messages = conversation.outgoing(models.current);
  const asks = (name: Parameters<typeof hasHandler>[1]): boolean => hasHandler(run, name);
  const changed = asks('context_transform') ? await transformMessages(run, messages) : messages;
  conversation.system = asks('system_transform') ? await transformSystem(run) : ports.system;
  if (changed === messages) return { messages, worstTokens: 0 };
  const { messages: paired } = repairPairing({ messages: changed, sources: [] });
  const meter = new ContextMeter();
  meter.reset(paired);
  return { messages: paired, worstTokens: meter.worstTokens(conversation.preambleBytes) };
}

function unpriced(run: Run): Ending {
  const { provider, id } = run.models.current;
  const error = new RyeError(
    'model_unpriced',
    `no price is known for ${provider}/${id}, so the spend limit of ${run.spend.limits.spend} USD cannot be kept`,
    { hint: 'Give the model a pricing in its provider file, or pass --allow-unpriced.' },
  );
  return { kind: 'error', error: error.toJSON() };
}
