import type { Ask } from '../core/approval.ts';
import { messageOf, RyeError } from '../core/errors.ts';
import { isRecord, type JsonObject } from '../core/json.ts';
import {
  type ContentBlock,
  contentBytes,
  isErrorOutcome,
  type Message,
  type ToolCallBlock,
} from '../core/message.ts';
import type { ThreadPlan } from '../core/plan.ts';
import {
  type BudgetContext,
  type CallContext,
  type DecidingHandlers,
  type FailedCallContext,
  type ResultContext,
  readDecision,
  type ThinkingContext,
  type UnknownCallContext,
} from '../hooks/handlers.ts';
import { THINKING_LEVELS } from '../providers/provider.ts';
import { note } from './conversation.ts';
import type { Run } from './run.ts';
import { isStopped, linkedTo, orStopped } from './stop.ts';
import { hasRun, type Settled } from './tool-call.ts';

/** Maximum duration of a handler. */
const TIMEOUT_MS = 30_000;

type Name = keyof DecidingHandlers;
type Contents = readonly ContentBlock[];

/** True if a handler of the name is asked. */
export function hasHandler({ ports }: Run, name: Name): boolean {
  return ports.handlers?.()[name] !== undefined;
}

/** Returns the context of every handler of a call. */
export function aboutCall(run: Run, { call_id, name, input }: ToolCallBlock): UnknownCallContext {
  const { threadId: thread_id } = run.ports;
  return { thread_id, turn: run.spend.turn, cost: run.spend.cost(), call_id, name, input };
}

/** Asks `tool_gate`: the first refusal is final, of several results the last one counts. A handler that fails refuses. */
export async function gateCall(
  run: Run,
  context: CallContext,
): Promise<{
  readonly refusal?: string;
  readonly substitute?: Contents;
  readonly asks: readonly Ask[];
}> {
  let refusal: string | undefined;
  let substitute: Contents | undefined;
  const asks: Ask[] = [];
  const failure = await consult(
    run,
    'tool_gate',
    () => context,
    ({ block, result, ask }) => {
      if (ask !== undefined) asks.push({ source: 'handler', reason: askReason(ask) });
      if (typeof block === 'string') refusal = block;
      if (result !== undefined) substitute = contentOf(result);
      return refusal !== undefined;
    },
  );
  if (refusal === undefined && failure !== undefined) refusal = `its gate failed: ${failure}`;
  if (refusal !== undefined) return { refusal, asks };
  return substitute ? { substitute, asks } : { asks };
}

function askReason(ask: unknown): string {
  if (typeof ask === 'string') return ask;
  throw new RyeError('hook_failed', 'ask is not a text');
}

/** Asks `tool_budget` about a call beyond the budget of its tool: the last decision counts. A handler that fails refuses. */
export async function decideBudget(run: Run, call: ToolCallBlock, tool: string): Promise<void> {
  const { budgets } = run.calls;
  const used = budgets.usedUp(tool);
  if (!used) return;
  const context = (): BudgetContext => ({ ...aboutCall(run, call), tool, ...used });
  budgets.decide(tool, undefined);
  const failure = await consult(run, 'tool_budget', context, ({ mode, message }) => {
    const isDecision = mode === 'block' || mode === 'steer';
    if (!isDecision || (message !== undefined && typeof message !== 'string')) {
      throw new RyeError(
        'hook_failed',
        'the decision is not a mode, block or steer, and a message',
      );
    }
    budgets.decide(tool, { mode, message });
    return false;
  });
  if (failure === undefined) return;
  budgets.decide(tool, { mode: 'block', message: `its budget could not be decided: ${failure}` });
}

/** Asks for the result of an unknown tool: `tool_unknown`, and unless that is enough `tool_error`. */
export async function answerUnknown(
  run: Run,
  context: UnknownCallContext,
  error: FailedCallContext['error'],
): Promise<Contents | undefined> {
  let answer: Contents | undefined;
  let isSuppressed = false;
  await consult(
    run,
    'tool_unknown',
    () => context,
    ({ result, suppress_error: suppress }) => {
      if (result !== undefined) answer = contentOf(result);
      isSuppressed = suppress === true;
      return false;
    },
  );
  if (isSuppressed) return answer;
  return (await answerFailure(run, { ...context, tool: context.name, error })) ?? answer;
}

/** Asks `tool_error` for a result in place of a failure. */
export async function answerFailure(
  run: Run,
  context: FailedCallContext,
): Promise<Contents | undefined> {
  let answer: Contents | undefined;
  await consult(
    run,
    'tool_error',
    () => context,
    ({ result }) => {
      if (result !== undefined) answer = contentOf(result);
      return false;
    },
  );
  return answer;
}

/** Lets `tool_transform` change a result or its substitute; each handler sees the changes of the earlier ones. */
export async function shaped(run: Run, settled: Settled): Promise<Settled> {
  if (!hasHandler(run, 'tool_transform') || !hasRun(settled)) return settled;
  const { requested, tool, outcome } = settled;
  const wasError = isErrorOutcome(outcome);
  let { content } = settled;
  let isError = wasError;
  const context = (): ResultContext => ({
    ...aboutCall(run, requested.call),
    tool,
    outcome,
    content,
    is_error: isError,
    output_bytes: contentBytes(settled.content),
    ...priorFacts(settled),
  });
  await consult(run, 'tool_transform', context, (decision) => {
    const { result, is_error } = decision;
    if (result !== undefined) content = contentOf(result);
    if (typeof is_error === 'boolean') isError = is_error;
    return false;
  });
  if (isError === wasError) return { ...settled, content };
  return { ...settled, content, outcome: isError ? 'error' : 'ok' };
}

/** Bytes of a file's former content that handlers and hooks get. */
const PRIOR_BYTES = 256 * 1024;

/** The content that a written file had before, as handlers and hooks get it; nothing for other calls. */
export function priorFacts({
  prior,
}: Settled): Pick<ResultContext, 'prior_content' | 'prior_bytes'> {
  if (prior === undefined) return {};
  if (prior === null) return { prior_content: null, prior_bytes: 0 };
  // a character that the bound cuts is dropped
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(
    prior.subarray(0, PRIOR_BYTES),
    { stream: true },
  );
  return { prior_content: text, prior_bytes: prior.length };
}

/** Lets `context_transform` change the messages of one request. */
export async function transformMessages(
  run: Run,
  given: readonly Message[],
): Promise<readonly Message[]> {
  let messages = given;
  const context = () => ({ ...aboutRequest(run), messages });
  await consult(run, 'context_transform', context, (decision) => {
    const changed: unknown = decision['messages'];
    if (!Array.isArray(changed) || !changed.every(isMessage)) {
      throw new RyeError('hook_failed', 'messages is not a list of messages');
    }
    messages = changed;
    return false;
  });
  return messages;
}

/** Lets `system_transform` change the system text of one request. */
export async function transformSystem(run: Run): Promise<string> {
  let { system } = run.ports;
  const context = () => ({ ...aboutRequest(run), system });
  await consult(run, 'system_transform', context, (decision) => {
    const { system: changed } = decision;
    if (typeof changed !== 'string') throw new RyeError('hook_failed', 'system is not a text');
    system = changed;
    return false;
  });
  return system;
}

/** Returns how hard the model thinks in the next request: at most as hard as the thread lets it. */
export async function thinkingOf(run: Run): Promise<ThreadPlan['thinking']> {
  const about = aboutRequest(run);
  const { runTurn, level: highest } = run.models.turnOfRun(about.turn);
  let level = highest;
  const context = (): ThinkingContext => ({
    ...about,
    run_turn: runTurn,
    cost: run.spend.cost(),
    level,
  });
  await consult(run, 'thinking_level', context, (decision) => {
    const at = THINKING_LEVELS.findIndex((known) => known === decision['level']);
    if (at < 0)
      throw new RyeError('hook_failed', `level is not one of ${THINKING_LEVELS.join(', ')}`);
    level = THINKING_LEVELS[Math.min(at, THINKING_LEVELS.indexOf(highest))] ?? level;
    return false;
  });
  return level;
}

/**
 * Has the key replaced that a provider refused: `credentials_refresh` gives one, or else the provider's own means do. True if
 * there is another one, with which the call can be repeated. A key is never written anywhere.
 */
export async function renewKey(run: Run): Promise<boolean> {
  const { models, conversation, ports } = run;
  if (!ports.renewKey) return false;
  const { current: model } = models;
  const { provider, id } = model;
  let key: string | undefined;
  const context = () => ({ ...aboutRequest(run), provider, model: id });
  await consult(run, 'credentials_refresh', context, (decision) => {
    const { key: given } = decision;
    if (typeof given !== 'string') throw new RyeError('hook_failed', 'key is not a text');
    key = given;
    return true;
  });
  try {
    const isNew = await ports.renewKey(model, key);
    if (isNew) await conversation.write(note(`the key of the provider ${provider} was renewed`));
    return isNew;
  } catch (error) {
    await conversation.write(note(messageOf(error)));
    return false;
  }
}

function aboutRequest({ ports, spend }: Run): {
  readonly thread_id: string;
  readonly turn: number;
} {
  return { thread_id: ports.threadId, turn: spend.isTurnOpen ? spend.turn : spend.turn + 1 };
}

/**
 * Asks the handlers of a name in order, until `take` has enough. One that fails is noted and skipped; the message
 * of the last failure is returned. Each gets a copy, so that nothing it does to its context reaches the run.
 */
async function consult(
  run: Run,
  name: Name,
  context: () => object,
  take: (decision: JsonObject) => boolean,
): Promise<string | undefined> {
  let failure: string | undefined;
  for (const handler of run.ports.handlers?.()[name] ?? []) {
    try {
      const value = await bounded(run, name, (signal) =>
        (handler as (context: unknown, signal: AbortSignal) => unknown)(
          structuredClone(context()),
          signal,
        ),
      );
      const decision = isStopped(value) ? undefined : readDecision(name, value);
      if (decision && take(decision)) return undefined;
    } catch (error) {
      failure = messageOf(error);
      await run.conversation.write(note(`a handler of ${name} failed: ${failure}`));
    }
    if (run.stop.cancelSignal.aborted) break;
  }
  return failure;
}

/** The value of `work`, unless it takes too long or the thread is cancelled. */
async function bounded(run: Run, name: Name, work: (signal: AbortSignal) => unknown) {
  const done = new AbortController();
  const { cancelSignal } = run.stop;
  const tooLong = async (): Promise<never> => {
    await run.ports.clock.sleep(TIMEOUT_MS, done.signal);
    throw new RyeError(
      'hook_failed',
      `a handler of ${name} took longer than ${TIMEOUT_MS / 1000} s`,
    );
  };
  const { controller, unlink } = linkedTo(cancelSignal);
  const called = Promise.resolve().then(() => work(controller.signal));
  const late = tooLong();
  // a result after the end of the race is ignored
  late.catch(() => undefined);
  try {
    return await orStopped(Promise.race([called, late]), cancelSignal);
  } finally {
    unlink();
    controller.abort();
    done.abort();
  }
}

function contentOf(value: unknown): Contents {
  if (typeof value === 'string') return [{ type: 'text', text: value }];
  if (Array.isArray(value) && value.every(isBlock)) return value;
  throw new RyeError('hook_failed', 'result is neither text nor a list of text and image blocks');
}

function isBlock(value: unknown): value is ContentBlock {
  if (!isRecord(value)) return false;
  if (value['type'] === 'text') return typeof value['text'] === 'string';
  return (
    value['type'] === 'image' &&
    typeof value['media_type'] === 'string' &&
    typeof value['data'] === 'string'
  );
}

function isMessage(value: unknown): value is Message {
  return isRecord(value) && typeof value['role'] === 'string' && Array.isArray(value['content']);
}
