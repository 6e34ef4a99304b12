import type {
  EventDraft,
  EventPayloads,
  LogEvent,
  RequestEstimate,
  UnknownEvent,
} from '../../core/events.ts';
import type { PlannedModel, ThreadPlan } from '../../core/plan.ts';
import {
  addUsage,
  type Cost,
  estimatedSpend,
  type MicroUsd,
  NO_USAGE,
  priceMicroUsd,
  toMicroUsd,
  toUsd,
  type Usage,
} from '../../core/usage.ts';
import { foldContext } from '../../log/context.ts';
import { beginsRun } from '../../log/runs.ts';
import { messageBytes } from '../../log/summary-prompt.ts';
import { buildTree, isKnown } from '../../log/tree.ts';
import { likelyTokensOf } from '../../loop/meters.ts';
import {
  type CutCall,
  cutPrice,
  type HeardPiece,
  mostTokensOf,
  outputBound,
} from '../../policy/cut-call.ts';
import type { ProviderTraits } from '../../providers/provider.ts';

type Event = LogEvent | UnknownEvent;

/** The usage of a process since its last `cost` event, as far as its log shows it. */
export interface LostUsage {
  /** The turn that it was in. */
  readonly turn: number;
  /** The usage of the calls in the log, as the provider counted it. */
  readonly answered: Used;
  /** The usage of the open calls: what a provider counted, and an upper bound for the rest. */
  readonly open: Used;
}

interface Used {
  readonly usage: Usage;
  readonly price: MicroUsd;
  /** The part of the price that is an upper bound. */
  readonly estimated: MicroUsd;
}

const NOTHING: Used = { usage: NO_USAGE, price: 0, estimated: 0 };

/** The facts beside its log that bound the usage of a dead process. */
export interface Connections {
  readonly traits: ProviderTraits;
  /** The latest end of its connections, in milliseconds since 1970. Infinity: unknown. */
  readonly endMs: number;
  /** Output tokens that a provider writes in a second, at most. */
  readonly rateOf: (provider: string) => number;
  /** The counts of cut answers that their provider was asked for, by the id of the answer. */
  readonly settled?: ReadonlyMap<string, Usage>;
}

/**
 * Returns the usage that a crashed process has to pay for and had not booked; undefined if nothing is missing. A call
 * that was announced and has no end in the log counts with the most that its provider can have written until the connection
 * ended: a thread that is killed and resumed must reach its limit.
 */
export function lostUsage(
  events: readonly Event[],
  plan: ThreadPlan,
  connections: Connections,
): LostUsage | undefined {
  if (connections.traits.embedded) return undefined;
  const unbooked = unbookedPart(events);
  // answers before the first turn are copies that another thread has paid for
  const first = unbooked.findIndex(isAsked);
  const since = first === -1 ? [] : unbooked.slice(first);
  const ended = since.flatMap((event) => endedCall(event, events, plan));
  const opened = openCalls(since).map((call) =>
    call === 'unknown' ? heardOf(since, events, plan) : boundOf(call, plan, connections),
  );
  if (ended.length === 0 && opened.length === 0) return undefined;
  return {
    turn: events.findLast((event) => isKnown(event, 'turn_started'))?.payload.turn ?? 0,
    answered: ended.reduce(add, NOTHING),
    open: opened.reduce(add, NOTHING),
  };
}

/** Adds the lost usage to the booked cost. The ledger may know the ended calls already, never the open ones. */
export function withLost(booked: Cost, reported: MicroUsd, lost: LostUsage | undefined): Cost {
  const { usage, price } = lost?.answered ?? NOTHING;
  const open = lost?.open ?? NOTHING;
  const known = Math.max(toMicroUsd(booked.spend) + price, reported);
  return {
    ...booked,
    ...addUsage(addUsage(booked, usage), open.usage),
    spend: toUsd(known + open.price),
    ...estimatedSpend(toMicroUsd(booked.estimated_spend_usd ?? 0) + open.estimated),
  };
}

/** Returns the event that books lost usage, so that no later run charges for it twice. */
export function costOfLost({ turn, answered, open }: LostUsage, total: Cost): EventDraft {
  const usage = addUsage(answered.usage, open.usage);
  const estimated = open.estimated === 0 ? {} : { estimated_usd: toUsd(open.estimated) };
  return { event_type: 'cost', payload: { turn, usage, total, ...estimated } };
}

/** Returns the usage of an ended call from its answer or, without an answer, from the record of its failure. */
function endedCall(event: Event, events: readonly Event[], plan: ThreadPlan): readonly Used[] {
  if (isKnown(event, 'message')) {
    const { message } = event.payload;
    return message.role === 'assistant' ? [used(message.usage, modelOf(plan, message))] : [];
  }
  if (isKnown(event, 'error_classified') && event.payload.usage) {
    return [used(event.payload.usage, modelInForce(events, plan))];
  }
  return [];
}

/**
 * The calls without an end. Those for an answer follow one another; one for a summary or a judgment stays open until it is
 * booked.
 * `unknown` is a call of a log that does not tell what it might cost.
 */
function openCalls(since: readonly Event[]): readonly (OpenAnswer | 'unknown')[] {
  const summaries: OpenAnswer[] = [];
  const isTold = knowsRequests(since);
  let open: OpenAnswer | 'unknown' | undefined;
  for (const event of since) {
    const isBeside = isKnown(event, 'request_started') && event.payload.purpose !== 'retry';
    if (isBeside) summaries.push(begun(event.payload.request, event));
    else open = openAfter(open, event, isTold);
  }
  return open === undefined ? summaries : [...summaries, open];
}

/** Returns the call that is open after an event. `isTold`: the log announces its calls. */
function openAfter(
  open: OpenAnswer | 'unknown' | undefined,
  event: Event,
  isTold: boolean,
): OpenAnswer | 'unknown' | undefined {
  if (isKnown(event, 'turn_started')) {
    const { request } = event.payload;
    return request ? begun(request, event) : 'unknown';
  }
  if (isKnown(event, 'request_started')) return begun(event.payload.request, event);
  if (isAnswer(event)) return undefined;
  // logs that announce no second call continue with one
  if (open === 'unknown') return open;
  if (isKnown(event, 'error_classified')) return undefined;
  if (open === undefined) return isTold || !isDelta(event) ? undefined : 'unknown';
  if (isKnown(event, 'answer_started')) return { ...open, ...startOf(event.payload) };
  open.heard.push(...pieceOf(event, open.calls));
  return open;
}

interface OpenAnswer extends CutCall {
  readonly answerId?: string;
  readonly heard: HeardPiece[];
  /** The tool calls in it. */
  readonly calls: Set<string>;
}

function begun(request: RequestEstimate, { timestamp }: Event): OpenAnswer {
  return { request, startedMs: Date.parse(timestamp), heard: [], calls: new Set() };
}

function startOf({
  usage,
  at = '',
  response_id: answerId,
}: EventPayloads['answer_started']): Pick<OpenAnswer, 'counted' | 'answerId'> {
  return {
    ...(usage === undefined ? {} : { counted: { usage, ms: Date.parse(at) } }),
    ...(answerId === undefined ? {} : { answerId }),
  };
}

/** Tokens of a call besides its arguments. */
const CALL_TOKENS = 32;

function pieceOf(event: Event, calls: Set<string>): readonly HeardPiece[] {
  const ms = Date.parse(event.timestamp);
  if (isKnown(event, 'toolcall_delta')) {
    const { call_id: id, json } = event.payload;
    const more = calls.has(id) ? 0 : CALL_TOKENS;
    calls.add(id);
    return [{ ms, tokens: mostTokensOf(json) + more, isThinking: false }];
  }
  const isThinking = isKnown(event, 'thinking_delta');
  if (!isThinking && !isKnown(event, 'token_delta')) return [];
  return [{ ms, tokens: mostTokensOf(event.payload.text), isThinking }];
}

function knowsRequests(since: readonly Event[]): boolean {
  return since.some((event) => isKnown(event, 'turn_started') && event.payload.request);
}

function boundOf(
  call: OpenAnswer,
  plan: ThreadPlan,
  { endMs, rateOf, settled }: Connections,
): Used {
  const { request, counted, answerId = '' } = call;
  const model = modelOf(plan, request);
  const whole = settled?.get(answerId);
  if (whole) return used(whole, model);
  const tokensPerSecond = rateOf(request.provider);
  const output_tokens = outputBound(call, { endMs, tokensPerSecond });
  const input = counted?.usage ?? { ...NO_USAGE, input_tokens: request.input_tokens };
  return { usage: { ...input, output_tokens }, ...cutPrice(call, output_tokens, model.pricing) };
}

/** Returns the events since the last one that booked everything before it. */
export function unbookedPart(events: readonly Event[]): readonly Event[] {
  return events.slice(events.findLastIndex(isBooked) + 1);
}

/** Everything before such an event is paid for. */
function isBooked(event: Event): boolean {
  return isKnown(event, 'cost') || isKnown(event, 'thread_started') || beginsRun(event);
}

function isAsked(event: Event): boolean {
  return isKnown(event, 'turn_started') || isKnown(event, 'request_started');
}

function isAnswer(event: Event): boolean {
  return isKnown(event, 'message') && event.payload.message.role === 'assistant';
}

function isDelta(event: Event): boolean {
  return deltaBytes(event) > 0;
}

function deltaBytes(event: Event): number {
  if (isKnown(event, 'toolcall_delta')) return Buffer.byteLength(event.payload.json);
  return isKnown(event, 'token_delta') || isKnown(event, 'thinking_delta')
    ? Buffer.byteLength(event.payload.text)
    : 0;
}

/** An estimate, for logs that do not tell what a call might cost: the context that was asked, and what was heard. */
function heardOf(since: readonly Event[], events: readonly Event[], plan: ThreadPlan): Used {
  const { messages, system, tools } = foldContext(buildTree(events));
  const asked = messages.reduce(
    (sum, message) => sum + messageBytes(message),
    Buffer.byteLength(system) + Buffer.byteLength(JSON.stringify(tools)),
  );
  const isBoundary = (event: Event): boolean => isAsked(event) || isAnswer(event);
  const heard = since.slice(since.findLastIndex(isBoundary) + 1);
  const usage = {
    ...NO_USAGE,
    input_tokens: likelyTokensOf(asked),
    output_tokens: likelyTokensOf(heard.reduce((sum, event) => sum + deltaBytes(event), 0)),
  };
  const { price } = used(usage, modelInForce(events, plan));
  return { usage, price, estimated: price };
}

function modelInForce(events: readonly Event[], plan: ThreadPlan): PlannedModel {
  const change = events.findLast((event) => isKnown(event, 'model_change'));
  return change ? modelOf(plan, change.payload) : plan.model;
}

function modelOf(
  { model, fallbacks }: ThreadPlan,
  { provider, model: id }: { readonly provider: string; readonly model: string },
): PlannedModel {
  return fallbacks.find((one) => one.provider === provider && one.id === id) ?? model;
}

function used(usage: Usage, { pricing }: PlannedModel): Used {
  return { usage, price: pricing ? priceMicroUsd(usage, pricing) : 0, estimated: 0 };
}

function add(left: Used, right: Used): Used {
  return {
    usage: addUsage(left.usage, right.usage),
    price: left.price + right.price,
    estimated: left.estimated + right.estimated,
  };
}
