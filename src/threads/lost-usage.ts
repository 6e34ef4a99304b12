import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { AssistantMessage } from '../core/message.ts';
import type { PlannedModel, ThreadPlan } from '../core/plan.ts';
import {
  addUsage,
  type Cost,
  type MicroUsd,
  NO_USAGE,
  priceMicroUsd,
  toMicroUsd,
  toUsd,
  type Usage,
} from '../core/usage.ts';
import { foldContext } from '../log/context.ts';
import { messageBytes } from '../log/size.ts';
import { buildTree, isKnown } from '../log/tree.ts';
import { likelyTokensOf } from '../loop/context.ts';

type Event = LogEvent | UnknownEvent;

/** What a process used since its last `cost` event, as far as its log shows it. */
export interface LostUsage {
  /** The turn that it was in. */
  readonly turn: number;
  /** Of the answers that are in the log: what the provider counted. */
  readonly answered: Used;
  /** Of the answer that was being heard: an estimate, as its count never came. */
  readonly heard: Used;
}

interface Used {
  readonly usage: Usage;
  readonly price: MicroUsd;
}

const NOTHING: Used = { usage: NO_USAGE, price: 0 };

/**
 * What a dead process has to pay for and had not booked; undefined where nothing is missing. As in a run that lives, an
 * answer of which not a word had come costs nothing. Where the log keeps no deltas nobody knows, and it is charged.
 */
export function lostUsage(events: readonly Event[], plan: ThreadPlan): LostUsage | undefined {
  const { kind } = plan.model;
  if (kind === 'literal' || kind === 'replay') return undefined;
  const unbooked = events.slice(events.findLastIndex(isBooked) + 1);
  // answers before the first turn are copies of what another thread has paid for
  const first = unbooked.findIndex((event) => isKnown(event, 'turn_started'));
  const since = first === -1 ? [] : unbooked.slice(first);
  const answers = since.flatMap((event) =>
    isKnown(event, 'message') && event.payload.message.role === 'assistant'
      ? [event.payload.message]
      : [],
  );
  const unanswered = since.slice(since.findLastIndex(isAskedOrAnswered) + 1);
  const isOpen = isKnownTurn(since.findLast(isAskedOrAnswered));
  const length = unanswered.reduce((sum, event) => sum + deltaLength(event), 0);
  const isHeard = length > 0 || (isOpen && plan.settings.token_deltas === 'off');
  if (answers.length === 0 && !isHeard) return undefined;
  const turn = events.findLast((event) => isKnown(event, 'turn_started'))?.payload.turn ?? 0;
  return {
    turn,
    answered: answers.map((answer) => answeredWith(answer, plan)).reduce(add, NOTHING),
    heard: isHeard ? heardOf(length, events, plan) : NOTHING,
  };
}

/** Adds it to what was booked. The ledger may have been told of the answers already, never of what was being heard. */
export function withLost(booked: Cost, reported: MicroUsd, lost: LostUsage | undefined): Cost {
  const { usage, price } = lost?.answered ?? NOTHING;
  const heard = lost?.heard ?? NOTHING;
  const known = Math.max(toMicroUsd(booked.spend) + price, reported);
  return {
    ...booked,
    ...addUsage(addUsage(booked, usage), heard.usage),
    spend: toUsd(known + heard.price),
  };
}

/** Everything before such an event is paid for. */
function isBooked(event: Event): boolean {
  return (
    isKnown(event, 'cost') || isKnown(event, 'thread_started') || isKnown(event, 'thread_continued')
  );
}

function isAskedOrAnswered(event: Event): boolean {
  return (
    isKnown(event, 'turn_started') ||
    (isKnown(event, 'message') && event.payload.message.role === 'assistant')
  );
}

function isKnownTurn(event: Event | undefined): boolean {
  return event !== undefined && isKnown(event, 'turn_started');
}

function deltaLength(event: Event): number {
  if (isKnown(event, 'toolcall_delta')) return event.payload.json.length;
  return isKnown(event, 'token_delta') || isKnown(event, 'thinking_delta')
    ? event.payload.text.length
    : 0;
}

function answeredWith({ usage, provider, model }: AssistantMessage, plan: ThreadPlan): Used {
  return used(usage, modelOf(plan, { provider, model }));
}

function heardOf(length: number, events: readonly Event[], plan: ThreadPlan): Used {
  const { messages, system, tools } = foldContext(buildTree(events));
  const asked = messages.reduce(
    (sum, message) => sum + messageBytes(message),
    Buffer.byteLength(system) + Buffer.byteLength(JSON.stringify(tools)),
  );
  const usage = {
    ...NO_USAGE,
    input_tokens: likelyTokensOf(asked),
    output_tokens: likelyTokensOf(length),
  };
  const change = events.findLast((event) => isKnown(event, 'model_change'));
  return used(usage, change ? modelOf(plan, change.payload) : plan.model);
}

function modelOf(
  { model, fallbacks }: ThreadPlan,
  { provider, model: id }: { readonly provider: string; readonly model: string },
): PlannedModel {
  return fallbacks.find((one) => one.provider === provider && one.id === id) ?? model;
}

function used(usage: Usage, { pricing }: PlannedModel): Used {
  return { usage, price: pricing ? priceMicroUsd(usage, pricing) : 0 };
}

function add(left: Used, right: Used): Used {
  return { usage: addUsage(left.usage, right.usage), price: left.price + right.price };
}
