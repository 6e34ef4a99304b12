import type { EventDraft, LogEvent, UnknownEvent } from '../core/events.ts';
import type { LimitName } from '../core/limits.ts';
import { type AssistantMessage, textOf } from '../core/message.ts';
import { NO_USAGE } from '../core/usage.ts';
import { isKnown } from './tree.ts';

/** The `custom_type` of the entry that follows the part of an answer which came before its interruption. */
const INTERRUPTED = 'interrupted';

/**
 * The cause of an interruption: a person or program that cancelled the run, a limit, the model's own, an end that the server gives
 * a reason for that rye does not know, or the death of the process.
 */
export type InterruptionCause =
  | 'cancelled'
  | 'crashed'
  | 'max_tokens'
  | 'unknown_stop_reason'
  | LimitName;

const WORDS: Readonly<Partial<Record<InterruptionCause, string>>> = {
  cancelled: ' by the user',
  crashed: ': the process ended',
  duration_seconds: ': the time limit was reached',
  max_tokens: ': the output limit was reached',
  unknown_stop_reason: ', or it was whole: the server gave an unknown reason for its end',
};

/** The message to a model that shall continue an interrupted answer. */
export const CONTINUE_DRAFT: EventDraft & { readonly event_type: 'custom_message' } = {
  event_type: 'custom_message',
  payload: {
    custom_type: 'continue_cut_answer',
    content: 'Continue exactly where the text of your answer stopped. Do not repeat any of it.',
    display: false,
  },
};

/**
 * Returns an interrupted answer as it stays in the conversation: its text. Reasoning is dropped, because no provider takes
 * it back unsigned, and so are its calls, which never run. Undefined if there is no text.
 */
export function spokenPart(partial: AssistantMessage): AssistantMessage | undefined {
  const text = textOf(partial.content);
  return text.trim() === '' ? undefined : { ...partial, content: [{ type: 'text', text }] };
}

/** Returns the entries of an interrupted answer: its text, and for the model the mark that it stops there. */
export function interruptedDrafts(
  message: AssistantMessage,
  turn: number,
  cause: InterruptionCause,
): readonly EventDraft[] {
  return [{ event_type: 'message', payload: { message, turn } }, interruptionDraft(cause)];
}

/** The mark for the model that its answer stops there. */
export function interruptionDraft(cause: InterruptionCause): EventDraft {
  const words = WORDS[cause] ?? `: the limit ${cause} was reached`;
  return {
    event_type: 'custom_message',
    payload: {
      custom_type: INTERRUPTED,
      content: `[Your answer was interrupted here${words}.]`,
      display: false,
      details: { cause },
    },
  };
}

/** True for an entry between two parts of one answer: the mark where it stopped, or the request for the rest. */
export function isBetweenParts(entry: LogEvent | UnknownEvent | undefined): boolean {
  return (
    isInterruption(entry) ||
    (entry !== undefined &&
      isKnown(entry, 'custom_message') &&
      entry.payload.custom_type === CONTINUE_DRAFT.payload.custom_type)
  );
}

/** True for the mark at the end of an interrupted answer. */
export function isInterruption(entry: LogEvent | UnknownEvent | undefined): boolean {
  return (
    entry !== undefined &&
    isKnown(entry, 'custom_message') &&
    entry.payload.custom_type === INTERRUPTED
  );
}

/** True if an interrupted answer is still the last word once this draft is recorded. Texts that hooks inject do not count. */
export function isCutAfter(draft: EventDraft, wasCut: boolean): boolean {
  if (draft.event_type === 'message') return false;
  if (draft.event_type !== 'custom_message') return wasCut;
  const { custom_type: type, display } = draft.payload;
  if (type === INTERRUPTED) return true;
  return wasCut && !display && type !== CONTINUE_DRAFT.payload.custom_type;
}

/**
 * Returns the entries of the answer that a dead process was receiving, as far as its log has the text; none if no text
 * came, or if the answer ended otherwise. The recovery pays for the call apart from it.
 */
export function crashedAnswer(
  events: readonly (LogEvent | UnknownEvent)[],
  model: Pick<AssistantMessage, 'provider' | 'model'>,
): readonly EventDraft[] {
  const start = events.findLastIndex(beginsAnswer);
  const begun = events[start];
  const since = events.slice(start + 1);
  if (!begun || since.some(endsAnswer)) return [];
  const text = since
    .map((event) => (isKnown(event, 'token_delta') ? event.payload.text : ''))
    .join('');
  const { turn, request } = begun.payload as {
    readonly turn: number;
    readonly request?: Pick<AssistantMessage, 'provider' | 'model'>;
  };
  const { provider, model: id } = request ?? model;
  const message = spokenPart({
    role: 'assistant',
    content: [{ type: 'text', text }],
    provider,
    model: id,
    stop_reason: 'aborted',
    usage: NO_USAGE,
  });
  return message ? interruptedDrafts(message, turn, 'crashed') : [];
}

function beginsAnswer(event: LogEvent | UnknownEvent): boolean {
  if (isKnown(event, 'request_started')) return event.payload.purpose === 'retry';
  return isKnown(event, 'turn_started');
}

function endsAnswer(event: LogEvent | UnknownEvent): boolean {
  if (isKnown(event, 'message')) return event.payload.message.role === 'assistant';
  return isKnown(event, 'error_classified') || isKnown(event, 'thread_finished');
}
