import { isSecurityWarning } from '../../core/errors.ts';
import type { EventPayloads, EventType, LogEvent, UnknownEvent } from '../../core/events.ts';
import { type JsonObject, toText } from '../../core/json.ts';
import { textOf } from '../../core/message.ts';
import { formatSeconds, formatUsd } from '../../core/usage.ts';
import { oneLine, truncate } from '../terminal-text.ts';

const INPUT_COLUMNS = 70;

/** How a line reads to a person: going on, done, worth a look, or gone wrong. */
export type Tone = 'plain' | 'good' | 'warning' | 'bad';

export interface ProgressLine {
  readonly tone: Tone;
  readonly text: string;
}

type Format<T extends EventType> = (payload: EventPayloads[T]) => ProgressLine | undefined;

/** What each event type says to a person who watches a run; the others say nothing. */
const FORMATS: { readonly [T in EventType]?: Format<T> } = {
  thread_started: ({ directive, provider, model }) => plain(`${directive} on ${provider}/${model}`),
  tool_call_start: ({ tool, input }) => plain(`→ ${tool} ${summarise(input)}`),
  tool_settled: ({ tool, outcome, duration_ms, reason }) => {
    const took = formatSeconds(duration_ms / 1000);
    if (outcome === 'ok') return { tone: 'good', text: `✓ ${tool} ${took}` };
    const why = reason === undefined ? '' : `: ${reason}`;
    return { tone: 'bad', text: `✗ ${tool} ${outcome} ${took}${why}` };
  },
  limit_reached: ({ code, current, max, needed, left }) => ({
    tone: 'warning',
    text:
      needed === undefined || left === undefined
        ? `limit reached: ${code} (${current} of ${max})`
        : `limit reached: ${code} (the next call may cost ${formatUsd(needed)}, ${formatUsd(left)} are left)`,
  }),
  error_classified: ({ category, message }) => ({ tone: 'bad', text: `${category}: ${message}` }),
  model_change: ({ provider, model }) => ({
    tone: 'warning',
    text: `goes on with ${provider}/${model}`,
  }),
  retry_scheduled: ({ attempt, delay_ms }) => ({
    tone: 'warning',
    text: `retry ${attempt} in ${formatSeconds(delay_ms / 1000)}`,
  }),
  child_thread_started: ({ child_thread_id }) => plain(`↳ started ${child_thread_id}`),
  child_thread_finished: ({ child_thread_id, status, spend }) => ({
    tone: status === 'completed' ? 'good' : 'bad',
    text: `↳ ${status} ${child_thread_id} ${formatUsd(spend)}`,
  }),
  compaction: ({ tokens_before }) => plain(`compacted the context of ${tokens_before} tokens`),
  rule_injection: ({ rules }) => ({
    tone: 'warning',
    text: `interrupted by ${rules.map(({ name }) => name).join(', ')}`,
  }),
  note: ({ text }) => plain(text),
};

/** The one-line account of an event, or undefined for events that only programs care about. */
export function progressLine(event: LogEvent | UnknownEvent): ProgressLine | undefined {
  const formats: Readonly<
    Record<string, ((payload: never) => ProgressLine | undefined) | undefined>
  > = FORMATS;
  const { event_type: type } = event;
  const format = Object.hasOwn(formats, type) ? formats[type] : undefined;
  const line = format?.(event.payload as never);
  return line && { tone: line.tone, text: oneLine(line.text) };
}

/** The line of an event of a run under way, without what stderr has already shown as a notice. */
export function runLine(event: LogEvent | UnknownEvent): ProgressLine | undefined {
  const note = payloadOf(event, 'note')?.text ?? '';
  return isSecurityWarning(note.replace(/^warning: /, '')) ? undefined : progressLine(event);
}

function plain(text: string): ProgressLine {
  return { tone: 'plain', text };
}

function summarise(input: JsonObject): string {
  const values = Object.entries(input).map(([name, value]) =>
    value === undefined ? '' : `${name}=${oneLine(toText(value))}`,
  );
  return truncate(values.join(' '), INPUT_COLUMNS);
}

/** The payload of an event when it is of type `type`. */
export function payloadOf<T extends EventType>(
  event: LogEvent | UnknownEvent,
  type: T,
): EventPayloads[T] | undefined {
  return event.event_type === type ? (event.payload as EventPayloads[T]) : undefined;
}

/** Text that the model finished saying with this event; undefined when it is something else. */
export function assistantText(event: LogEvent | UnknownEvent): string | undefined {
  const message = payloadOf(event, 'message')?.message;
  return message?.role === 'assistant' ? textOf(message.content) : undefined;
}
