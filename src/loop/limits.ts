import { RyeError } from '../core/errors.ts';
import type { RequestEstimate } from '../core/events.ts';
import type { ControlAction } from '../core/hook.ts';
import { LIMIT_NAMES } from '../core/limits.ts';
import type { Message } from '../core/message.ts';
import type { PlannedModel } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import { formatUsd, type MicroUsd, toMicroUsd, totalTokens, toUsd } from '../core/usage.ts';
import { repairPairing } from '../log/pairing.ts';
import { heldText } from '../policy/budget.ts';
import {
  affordableMaxTokens,
  checkLimits,
  escalateLimit,
  type LimitReached,
  worstMicroUsd,
} from '../policy/limits.ts';
import type { ModelRequest } from '../providers/provider.ts';
import { projectContext } from './context-view.ts';
import { transformMessages } from './handlers.ts';
import { type Allowance, ContextMeter } from './meters.ts';
import { owesOutput } from './outputs.ts';
import type { Ending } from './ports.ts';
import { hookError, note, type Run } from './run.ts';

/** An answer shorter than this is not worth its input. */
const MIN_OUTPUT_TOKENS = 256;
/** A run whose hooks raise limits forever must still end. */
const MAX_ESCALATIONS = 10;

/** Checks all limits before a turn; a reached one is decided by the `limit` hooks, again until none is reached. */
export async function enforceLimits(run: Run): Promise<Ending | undefined> {
  for (;;) {
    const reached = reachedLimit(run);
    if (!reached) return undefined;
    const ending = await handleLimit(run, reached);
    if (ending) return ending;
  }
}

/** The limit that leaves no room for another turn. */
export function reachedLimit(run: Run): LimitReached | undefined {
  const elapsedSeconds = run.elapsedSeconds();
  const reached = checkLimits(run.limits, { cost: run.cost(), elapsedSeconds });
  if (reached || run.stop.cause !== 'duration') return reached;
  // the deadline's timer fired a moment before the clock says so
  const max = run.limits.duration_seconds;
  return { name: 'duration_seconds', current: Math.max(elapsedSeconds, max), max };
}

/** Records a reached limit and asks the hooks; undefined when one of them raised it. */
export async function handleLimit(run: Run, reached: LimitReached): Promise<Ending | undefined> {
  const { name, current, max, short, in_answer: inAnswer } = reached;
  await run.write({
    event_type: 'limit_reached',
    payload: {
      code: `limit_${name}`,
      current,
      max,
      ...short,
      ...(inAnswer ? { in_answer: true } : {}),
    },
  });
  const decision = await run.control('limit', {
    limit_code: `limit_${name}`,
    limit_name: name,
    current_value: current,
    current_max: max,
  });
  switch (decision?.control) {
    case 'escalate':
      return (await escalate(run, decision)) ? undefined : limitEnding(reached);
    case 'handoff':
      return { kind: 'handoff' };
    case 'suspend':
      return { kind: 'suspended', reason: decision.reason ?? `the limit ${name} was reached` };
    case 'abort':
      return { kind: 'error', error: hookError(decision, 'limit').toJSON() };
    case 'fail':
      return limitEnding(reached, decision.error);
    case 'continue':
    case 'retry':
    case 'compact':
    case undefined:
      break;
  }
  // only an escalation makes room for another turn
  return limitEnding(reached);
}

async function escalate(
  run: Run,
  { limit, to }: Extract<ControlAction, { control: 'escalate' }>,
): Promise<boolean> {
  const name = LIMIT_NAMES.find((known) => known === limit);
  if (name === undefined) {
    const hint = didYouMean(limit, LIMIT_NAMES) ?? `Limits are ${LIMIT_NAMES.join(', ')}.`;
    await run.write(note(`a hook asked to raise "${limit}", which is no limit. ${hint}`));
    return false;
  }
  const raised = escalateLimit(run.limits, { name, to }, run.ports.parentLimits);
  if (!raised || run.counters.escalations >= MAX_ESCALATIONS) {
    await run.write(note(`the limit ${name} was not raised to ${to}`));
    return false;
  }
  run.counters.escalations += 1;
  run.raiseLimits(raised);
  await run.write(note(`the limit ${name} was raised to ${raised[name]}`));
  return true;
}

function limitEnding(reached: LimitReached, text?: string): Ending {
  const { name, current, max, short } = reached;
  const error = new RyeError(`limit_${name}`, text ?? reasonOf(reached), {
    hint: short?.held
      ? 'Wait for the children before the next call, lower their spend limits, or raise spend of this thread; then resume it.'
      : `Raise ${name} in the directive's <limits> or with --limit ${name}=…, then resume the thread.`,
    details: { limit: name, current, max, ...short },
  });
  return { kind: 'limit', ...reached, error: error.toJSON() };
}

function reasonOf({ name, current, max, short, in_answer: inAnswer }: LimitReached): string {
  if (inAnswer) {
    const [used, of] = name === 'spend' ? [formatUsd(current), formatUsd(max)] : [current, max];
    return `the answer was stopped: it passed the limit ${name} (${used} of ${of})`;
  }
  if (short) {
    const held = (short.held ?? []).map(({ thread_id, usd }) => {
      return { thread_id, microUsd: toMicroUsd(usd) };
    });
    return `the next call may cost up to ${formatUsd(short.needed)}, and ${formatUsd(short.left)} of the ${formatUsd(max)} that may be spent are left${heldText(held)}`;
  }
  return `the limit ${name} was reached: ${Math.round(current * 1e6) / 1e6} of ${max}`;
}

export type CallPlan =
  | {
      readonly kind: 'ready';
      readonly request: ModelRequest;
      readonly allowance: Allowance;
      /** For the log; absent where a call costs nothing. */
      readonly estimate: RequestEstimate | undefined;
    }
  | { readonly kind: 'unaffordable'; readonly reached: LimitReached }
  | { readonly kind: 'refused'; readonly ending: Ending };

/**
 * The next request, with `max_tokens` low enough that its worst case fits what is left of the thread's spend limit
 * and of its budget: a limit is a promise, so a call that might break it is not made.
 */
export async function planCall(run: Run): Promise<CallPlan> {
  const { model, ports, plan } = run;
  const { tools } = ports.definitions();
  const preamble = run.preamble();
  const likelyInput = run.meter.likelyTokens(preamble);
  const room = model.context_window - likelyInput;
  const tokensLeft = run.limits.tokens - totalTokens(run.cost());
  const mayAnswer = Math.min(model.max_output_tokens, run.behavior.maxTokens ?? Infinity);
  const wanted = Math.min(
    mayAnswer,
    Math.max(MIN_OUTPUT_TOKENS, Math.min(room, tokensLeft - likelyInput)),
  );
  const changed = await outgoing(run, preamble);
  const inputTokens = Math.max(run.meter.worstTokens(preamble), changed.worstTokens);
  let maxTokens = wanted;
  let microUsdLeft: MicroUsd | undefined;
  if (model.pricing) {
    microUsdLeft = await run.remainingMicroUsd();
    const call = {
      remainingMicroUsd: microUsdLeft,
      inputTokens,
      pricing: model.pricing,
      wanted,
      minimum: Math.min(MIN_OUTPUT_TOKENS, wanted),
    };
    const affordable = affordableMaxTokens(call);
    if (affordable === undefined) return await unaffordable(run, call);
    maxTokens = affordable;
  } else if (!plan.allow_unpriced) {
    return { kind: 'refused', ending: unpriced(run) };
  }
  return {
    kind: 'ready',
    allowance: { outputTokens: maxTokens, tokensLeft, microUsdLeft, inputTokens: likelyInput },
    estimate: ports.traits(model).embedded ? undefined : estimateOf(model, inputTokens, maxTokens),
    request: {
      model: model.id,
      system: ports.system,
      messages: changed.messages,
      tools,
      max_tokens: maxTokens,
      thinking: run.thinking,
      cache: run.behavior.cache ?? plan.settings.cache,
      ...(run.behavior.schema && run.outputAsks > 0 && owesOutput(run)
        ? { output_schema: run.behavior.schema }
        : {}),
    },
  };
}

/** Returns what a call may use at most. */
export function estimateOf(
  { provider, id, pricing }: PlannedModel,
  inputTokens: number,
  maxTokens: number,
): RequestEstimate {
  return {
    provider,
    model: id,
    input_tokens: inputTokens,
    max_tokens: maxTokens,
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
  const { spend: max } = run.limits;
  const reached = { name: 'spend' as const, current: toUsd(run.spentMicroUsd), max, short };
  return { kind: 'unaffordable', reached };
}

/** What is sent of the conversation, and what that may cost where handlers had a say in it. */
async function outgoing(
  run: Run,
  preamble: number,
): Promise<{ readonly messages: readonly Message[]; readonly worstTokens: number }> {
  const { provider, id: model } = run.model;
  const messages = projectContext(run.view.project(run.messages), { provider, model });
  if (!run.ports.handlers?.context_transform) return { messages, worstTokens: 0 };
  const changed = await transformMessages(run, messages);
  if (changed === messages) return { messages, worstTokens: 0 };
  const { messages: paired } = repairPairing({ messages: changed, sources: [] }, () => false);
  const meter = new ContextMeter();
  meter.reset(paired);
  return { messages: paired, worstTokens: meter.worstTokens(preamble) };
}

function unpriced(run: Run): Ending {
  const { provider, id } = run.model;
  const error = new RyeError(
    'model_unpriced',
    `no price is known for ${provider}/${id}, so the spend limit of ${run.limits.spend} USD cannot be kept`,
    { hint: 'Give the model a pricing in its provider file, or pass --allow-unpriced.' },
  );
  return { kind: 'error', error: error.toJSON() };
}
