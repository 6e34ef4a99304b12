import { isSecurityWarning } from '../../core/errors.ts';
import type { EventPayloads, EventType, LogEvent, UnknownEvent } from '../../core/events.ts';
import { type JsonObject, toText } from '../../core/json.ts';
import { toolCallsOf } from '../../core/message.ts';
import { formatSeconds, formatUsd } from '../../core/usage.ts';
import { oneLine, truncate } from '../terminal-text.ts';

const INPUT_COLUMNS = 70;

/** Tone of a line: progress, success, warning or failure. */
export type Tone = 'plain' | 'good' | 'warning' | 'bad';

export interface ProgressLine {
  readonly tone: Tone;
  readonly text: string;
}

type Format<T extends EventType> = (payload: EventPayloads[T]) => ProgressLine | undefined;

/** Formats the events that a person who watches a run needs; the others have no line. */
const FORMATS: { readonly [T in EventType]?: Format<T> } = {
  thread_started: ({ directive, provider, model }) => plain(`${directive} on ${provider}/${model}`),
  tool_call_start: ({ tool, input }) => plain(`→ ${tool} ${summarize(input)}`),
  tool_settled: ({ tool, outcome, duration_ms, reason }) => {
    const took = formatSeconds(duration_ms / 1000);
    if (outcome === 'ok') return { tone: 'good', text: `✓ ${tool} ${took}` };
    if (outcome === 'aborted' && duration_ms > 0) {
      return { tone: 'bad', text: `✗ ${tool} cancelled after ${took} (may have had side effects)` };
    }
    const why = reason === undefined ? '' : `: ${reason}`;
    return { tone: 'bad', text: `✗ ${tool} ${outcome} ${took}${why}` };
  },
  limit_reached: ({ code, current, max, needed, left }) => ({
    tone: 'warning',
    text:
      needed === undefined || left === undefined
        ? `limit reached: ${code} (${current} of ${max})`
        : `limit reached: ${code} (the next call could cost ${formatUsd(needed)}, ${formatUsd(left)} left)`,
  }),
  error_classified: ({ category, message }) => ({ tone: 'bad', text: `${category}: ${message}` }),
  model_change: ({ provider, model }) => ({
    tone: 'warning',
    text: `continuing with ${provider}/${model}`,
  }),
  retry_scheduled: ({ attempt, delay_ms }) => ({
    tone: 'warning',
    text: `retry ${attempt} in ${formatSeconds(delay_ms / 1000)}`,
  }),
  child_thread_started: ({ child_thread_id, label }) =>
    plain(`↳ started ${child_thread_id}${label === undefined ? '' : ` (${label})`}`),
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

/** Formats an event as one line; undefined for events that only programs need. */
export function progressLine(event: LogEvent | UnknownEvent): ProgressLine | undefined {
  const formats: Readonly<
    Record<string, ((payload: never) => ProgressLine | undefined) | undefined>
  > = FORMATS;
  const { event_type: type } = event;
  const format = Object.hasOwn(formats, type) ? formats[type] : undefined;
  const line = format?.(event.payload as never);
  return line && { tone: line.tone, text: oneLine(line.text) };
}

/**
 * Formats the events of a running thread like {@link runLine}. The end of a call names its input: of several calls that run
 * at once, a reader has to know which one failed.
 */
export function runLines(): (event: LogEvent | UnknownEvent) => ProgressLine | undefined {
  const inputs = new Map<string, string>();
  return (event) => {
    for (const { call_id: id, input } of callsOf(event)) inputs.set(id, summarize(input));
    const line = runLine(event);
    const settled = payloadOf(event, 'tool_settled');
    if (line === undefined || settled === undefined) return line;
    const input = inputs.get(settled.call_id) ?? '';
    inputs.delete(settled.call_id);
    const mark = `${line.text.slice(0, 2)}${oneLine(settled.tool)}`;
    if (input === '' || !line.text.startsWith(mark)) return line;
    return { tone: line.tone, text: `${mark} ${input}${line.text.slice(mark.length)}` };
  };
}

/** Returns the calls that an event makes known. A call that is refused has no start: only the answer has its input. */
function callsOf(
  event: LogEvent | UnknownEvent,
): readonly Pick<EventPayloads['tool_call_start'], 'call_id' | 'input'>[] {
  const started = payloadOf(event, 'tool_call_start');
  if (started) return [started];
  const message = payloadOf(event, 'message')?.message;
  return message?.role === 'assistant' ? toolCallsOf(message) : [];
}

/** Formats an event of a running thread; undefined if stderr has already shown it as a notice. */
export function runLine(event: LogEvent | UnknownEvent): ProgressLine | undefined {
  const note = payloadOf(event, 'note')?.text ?? '';
  return isSecurityWarning(note.replace(/^warning: /, '')) ? undefined : progressLine(event);
}

function plain(text: string): ProgressLine {
  return { tone: 'plain', text };
}

function summarize(input: JsonObject): string {
  const values = Object.entries(input).map(([name, value]) =>
    value === undefined ? '' : `${name}=${oneLine(toText(value))}`,
  );
  return truncate(values.join(' '), INPUT_COLUMNS);
}

/** Returns the payload of an event if it has this type. */
export function payloadOf<T extends EventType>(
  event: LogEvent | UnknownEvent,
  type: T,
): EventPayloads[T] | undefined {
  return event.event_type === type ? (event.payload as EventPayloads[T]) : undefined;
}
