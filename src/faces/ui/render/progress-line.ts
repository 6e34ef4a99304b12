import { isSecurityWarning } from '../../../kernel/core/errors.ts';
import type {
  EventPayloads,
  EventType,
  LogEvent,
  UnknownEvent,
} from '../../../kernel/core/events.ts';
import { type JsonObject, toText } from '../../../kernel/core/json.ts';
import { toolCallsOf } from '../../../kernel/core/message.ts';
import { formatSeconds, formatUsd } from '../../../kernel/core/usage.ts';
import { squeeze } from '../terminal-text.ts';
import { oneLine, partOf, type Shown, shown } from '../visible.ts';
import { isReturn, shortReason } from './call-line.ts';

const INPUT_COLUMNS = 70;

/** Tone of a line: progress, success, warning or failure. */
export type Tone = 'plain' | 'good' | 'warning' | 'bad';

export interface ProgressLine {
  readonly tone: Tone;
  /** On one line. */
  readonly text: Shown;
}

type Format<T extends EventType> = (payload: EventPayloads[T]) => ProgressLine | undefined;

/** Formats the events that a person who watches a run needs; the others have no line. */
const FORMATS: { readonly [T in EventType]?: Format<T> } = {
  thread_started: ({ directive, provider, model }) =>
    plain(shown`${oneLine(directive)} on ${oneLine(provider)}/${oneLine(model)}`),
  tool_call_start: ({ tool, input }) => plain(shown`→ ${oneLine(tool)} ${summarize(input)}`),
  tool_settled: ({ tool, outcome, duration_ms, reason }) => {
    const took = formatSeconds(duration_ms / 1000);
    if (outcome === 'ok') return { tone: 'good', text: shown`✓ ${oneLine(tool)} ${oneLine(took)}` };
    if (outcome === 'aborted' && duration_ms > 0) {
      return {
        tone: 'bad',
        text: shown`✗ ${oneLine(tool)} cancelled after ${oneLine(took)} (may have had side effects)`,
      };
    }
    const why = reason === undefined ? '' : shown`: ${shortReason(outcome, reason)}`;
    return {
      tone: 'bad',
      text: shown`✗ ${oneLine(tool)} ${oneLine(outcome)} ${oneLine(took)}${why}`,
    };
  },
  limit_reached: ({ code, current, max, needed, left }) => ({
    tone: 'warning',
    text:
      needed === undefined || left === undefined
        ? shown`limit reached: ${oneLine(code)} (${current} of ${max})`
        : shown`limit reached: ${oneLine(code)} (the next call could cost ${oneLine(formatUsd(needed))}, ${oneLine(formatUsd(left))} left)`,
  }),
  error_classified: ({ category, message }) => ({
    tone: 'bad',
    text: shown`${oneLine(category)}: ${oneLine(message)}`,
  }),
  model_change: ({ provider, model }) => ({
    tone: 'warning',
    text: shown`continuing with ${oneLine(provider)}/${oneLine(model)}`,
  }),
  retry_scheduled: (wait) => ({ tone: 'warning', text: waitText(wait, wait.delay_ms) }),
  child_thread_started: ({ child_thread_id, label }) =>
    plain(
      shown`↳ started ${oneLine(child_thread_id)}${label === undefined ? '' : shown` (${oneLine(label)})`}`,
    ),
  child_thread_finished: ({ child_thread_id, status, spend }) => ({
    tone: status === 'completed' ? 'good' : 'bad',
    text: shown`↳ ${oneLine(status)} ${oneLine(child_thread_id)} ${oneLine(formatUsd(spend))}`,
  }),
  compaction: ({ tokens_before }) => plain(shown`compacted the context of ${tokens_before} tokens`),
  rule_injection: ({ rules }) => ({
    tone: 'warning',
    text: shown`interrupted by ${oneLine(rules.map(({ name }) => name).join(', '))}`,
  }),
  note: ({ text }) => plain(oneLine(text)),
};

/** Formats `overloaded, retry 3 in 12 s`. */
export function waitText(
  { attempt, reason = 'failed' }: EventPayloads['retry_scheduled'],
  leftMs: number,
): Shown {
  return shown`${oneLine(reason)}, retry ${attempt} in ${Math.max(0, Math.ceil(leftMs / 1000))} s`;
}

/** Formats an event as one line; undefined for events that only programs need. */
export function progressLine(event: LogEvent | UnknownEvent): ProgressLine | undefined {
  const formats: Readonly<
    Record<string, ((payload: never) => ProgressLine | undefined) | undefined>
  > = FORMATS;
  const { event_type: type } = event;
  const format = Object.hasOwn(formats, type) ? formats[type] : undefined;
  return format?.(event.payload as never);
}

/**
 * Formats the events of a running thread like {@link runLine}. The end of a call names its input: of several calls that run
 * at once, a reader has to know which one failed.
 */
export function runLines(): (event: LogEvent | UnknownEvent) => ProgressLine | undefined {
  const inputs = new Map<string, Shown>();
  return (event) => {
    for (const { call_id: id, input } of callsOf(event)) inputs.set(id, summarize(input));
    const line = runLine(event);
    const settled = payloadOf(event, 'tool_settled');
    if (line === undefined || settled === undefined) return line;
    const input = inputs.get(settled.call_id) ?? oneLine('');
    inputs.delete(settled.call_id);
    const mark = shown`${partOf(line.text, 0, 2)}${oneLine(settled.tool)}`;
    if (input === '' || !line.text.startsWith(mark)) return line;
    return { tone: line.tone, text: shown`${mark} ${input}${partOf(line.text, mark.length)}` };
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

/** Formats an event of a running thread; undefined if stderr has already shown it as a notice, or shows it at the end. */
export function runLine(event: LogEvent | UnknownEvent): ProgressLine | undefined {
  const settled = payloadOf(event, 'tool_settled');
  // the outputs themselves follow
  if (settled?.outcome === 'ok' && isReturn(settled.tool)) return undefined;
  const note = payloadOf(event, 'note')?.text ?? '';
  return isSecurityWarning(note.replace(/^warning: /, '')) ? undefined : progressLine(event);
}

function plain(text: Shown): ProgressLine {
  return { tone: 'plain', text };
}

function summarize(input: JsonObject): Shown {
  const values = Object.entries(input).map(([name, value]) =>
    value === undefined ? '' : `${name}=${toText(value)}`,
  );
  return squeeze(oneLine(values.join(' ')), INPUT_COLUMNS);
}

/** Returns the payload of an event if it has this type. */
export function payloadOf<T extends EventType>(
  event: LogEvent | UnknownEvent,
  type: T,
): EventPayloads[T] | undefined {
  return event.event_type === type ? (event.payload as EventPayloads[T]) : undefined;
}
