import type { EventDraft, LogEvent, UnknownEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import {
  type AssistantMessage,
  type Message,
  type ToolCallBlock,
  type ToolOutcome,
  type ToolResultMessage,
  toolCallsOf,
} from '../core/message.ts';
import { isKnown, pathTo, type SessionTree } from './tree.ts';

/**
 * The fate of a call whose result is not in the log: it was never started; it was started, and its progress is unknown;
 * it ended, but its result went with the process that held it; a person has to decide about it first; or it waits for
 * threads that wait for people.
 */
export type CallFate =
  | 'not_started'
  | 'interrupted'
  | 'result_lost'
  | 'awaiting_approval'
  | 'awaiting_threads';

/** A call of the last answer that a dead process left without a result. */
export interface OpenCall {
  readonly call: ToolCallBlock;
  /** Canonical id where the call was started, else the wire name. */
  readonly tool: string;
  readonly fate: CallFate;
  /** Its outcome, if known. */
  readonly outcome?: ToolOutcome;
  /** The threads that it waits for. */
  readonly awaiting?: Awaiting;
}

/** A call that was started and waits for threads. */
export interface AwaitedCall {
  readonly tool: string;
  /** As it was started. */
  readonly input: JsonObject;
  readonly threads: readonly string[];
  /** The call runs the threads itself. */
  readonly owned: boolean;
}

/** The calls of a log that wait for threads, by their ids. */
export function awaitedCalls(
  events: Iterable<LogEvent | UnknownEvent>,
): ReadonlyMap<string, AwaitedCall> {
  const started = new Map<string, Pick<AwaitedCall, 'tool' | 'input'>>();
  const found = new Map<string, AwaitedCall>();
  for (const event of events) {
    if (isKnown(event, 'tool_call_start')) started.set(event.payload.call_id, event.payload);
    else if (isKnown(event, 'tool_settled')) found.delete(event.payload.call_id);
    else if (isKnown(event, 'message') && event.payload.message.role === 'tool_result') {
      const { call_id: id, data } = event.payload.message;
      const start = started.get(id);
      const awaited = awaitedIn(data);
      if (start && awaited) found.set(id, { tool: start.tool, input: start.input, ...awaited });
    }
  }
  return found;
}

/** The threads in a made-up result of a call that waits for them. */
function awaitedIn(data: JsonObject | undefined): Awaiting | undefined {
  const threads = data?.['threads'];
  if (recoveredFate(data) !== 'awaiting_threads' || !Array.isArray(threads)) return undefined;
  return { threads: threads.map(String), owned: data?.['owned'] === true };
}

type Awaiting = Pick<AwaitedCall, 'threads' | 'owned'>;

/** The calls on the path to the leaf that have no result, in the order of the calls. */
export function openCalls(
  tree: SessionTree,
  events: readonly (LogEvent | UnknownEvent)[],
): readonly OpenCall[] {
  const messages = pathTo(tree, tree.leafId).flatMap((entry) =>
    isKnown(entry, 'message') ? [entry.payload.message] : [],
  );
  const last = messages.findLastIndex(({ role }) => role === 'assistant');
  const answer = messages[last];
  if (answer?.role !== 'assistant') return [];
  const answered = new Set(messages.slice(last + 1).flatMap(callIdOf));
  const open = toolCallsOf(answer).filter(({ call_id }) => !answered.has(call_id));
  return open.length === 0 ? [] : open.map((call) => fateOf(call, events));
}

function callIdOf(message: Message): readonly string[] {
  return message.role === 'tool_result' ? [message.call_id] : [];
}

function fateOf(call: ToolCallBlock, events: readonly (LogEvent | UnknownEvent)[]): OpenCall {
  let found: OpenCall = { call, tool: call.name, fate: 'not_started' };
  for (const event of events) {
    if (isKnown(event, 'approval_requested') && event.payload.request.call_id === call.call_id) {
      found = { call, tool: event.payload.request.tool, fate: 'awaiting_approval' };
    }
    if (isKnown(event, 'tool_call_start') && event.payload.call_id === call.call_id) {
      found = { call, tool: event.payload.tool, fate: 'interrupted' };
    }
    if (isKnown(event, 'tool_settled') && event.payload.call_id === call.call_id) {
      const { tool, outcome } = event.payload;
      found = { call, tool, fate: 'result_lost', outcome };
    }
    if (found.fate === 'interrupted' && isKnown(event, 'message')) {
      const { message } = event.payload;
      const isOwn = message.role === 'tool_result' && message.call_id === call.call_id;
      const awaiting = isOwn ? awaitedIn(message.data) : undefined;
      if (awaiting) found = { ...found, fate: 'awaiting_threads', awaiting };
    }
  }
  return found;
}

const TEXTS: Readonly<Record<CallFate, string>> = {
  not_started: 'This call was not started: the process of the thread had died before.',
  interrupted:
    'This call was interrupted: the process of the thread died while it ran. It may have had side effects: check before repeating it.',
  awaiting_approval: 'This call waits for a decision. It runs once a person approves it.',
  awaiting_threads:
    'The thread that this call waits for is itself waiting for a decision. Its result follows.',
  result_lost:
    'This call ended, but its result was lost with the process of the thread. Do not repeat it without a check.',
};

/** Drafts of results for calls that wait for a person or for threads; the calls replace them when they end. */
export function openDrafts(
  calls: readonly Pick<OpenCall, 'call' | 'awaiting'>[],
): readonly EventDraft[] {
  return calls.map((open): EventDraft => {
    const fate = open.awaiting ? 'awaiting_threads' : 'awaiting_approval';
    return { event_type: 'message', payload: { message: madeUpResult({ ...open, fate }) } };
  });
}

function madeUpResult(
  { call, fate, awaiting }: Pick<OpenCall, 'call' | 'fate' | 'awaiting'>,
  suffix = '',
): ToolResultMessage {
  return {
    role: 'tool_result',
    call_id: call.call_id,
    name: call.name,
    content: [{ type: 'text', text: `${TEXTS[fate]}${suffix}` }],
    outcome: hasStarted(fate) ? 'aborted' : 'skipped',
    data: { recovered: fate, ...awaiting },
  };
}

/** Fates of calls that have ended or continue later, so that nothing settles them. */
const UNSETTLED: ReadonlySet<CallFate> = new Set([
  'result_lost',
  'awaiting_approval',
  'awaiting_threads',
]);

function hasStarted(fate: CallFate): boolean {
  return fate === 'interrupted' || fate === 'result_lost';
}

/** Drafts that answer open calls, so that every call has exactly one result, which states what is known. */
export function settlementDrafts(calls: readonly OpenCall[]): readonly EventDraft[] {
  return calls.flatMap((open): readonly EventDraft[] => {
    const { call, tool, fate, outcome: known } = open;
    const outcome = hasStarted(fate) ? 'aborted' : 'skipped';
    const suffix = known === undefined ? '' : ` It had ended as: ${known}.`;
    const message = madeUpResult(open, suffix);
    const settled: EventDraft = {
      event_type: 'tool_settled',
      payload: {
        call_id: call.call_id,
        tool,
        outcome,
        duration_ms: 0,
        output_bytes: 0,
        code: 'thread_crashed',
        reason: TEXTS[fate],
      },
    };
    const answer: EventDraft = { event_type: 'message', payload: { message } };
    // a call that is recorded as ended is not settled twice
    return UNSETTLED.has(fate) ? [answer] : [settled, answer];
  });
}

/** The fate that {@link settlementDrafts} wrote into a result; undefined for a real one. */
export function recoveredFate(data: JsonObject | undefined): CallFate | undefined {
  const fate = data?.['recovered'];
  return typeof fate === 'string' && Object.hasOwn(TEXTS, fate) ? (fate as CallFate) : undefined;
}

/** The last answer of a context, with the calls in it to which a recovery gave one of these fates. */
export function unfinishedCalls(
  messages: readonly Message[],
  fates: readonly CallFate[],
):
  | {
      readonly answer: AssistantMessage;
      readonly calls: readonly { readonly call: ToolCallBlock; readonly fate: CallFate }[];
    }
  | undefined {
  const last = messages.findLastIndex(({ role }) => role === 'assistant');
  const answer = messages[last];
  if (answer?.role !== 'assistant') return undefined;
  const results = messages.slice(last + 1).filter((message) => message.role === 'tool_result');
  const calls = toolCallsOf(answer).flatMap((call) => {
    const fate = recoveredFate(results.find(({ call_id }) => call_id === call.call_id)?.data);
    return fate !== undefined && fates.includes(fate) ? [{ call, fate }] : [];
  });
  return calls.length === 0 ? undefined : { answer, calls };
}
