import { accountOf, membersOf, type Tone } from '../../../kernel/app/api/trees.ts';
import { isSecurityWarning } from '../../../kernel/core/errors.ts';
import type {
  EventPayloads,
  EventType,
  LogEvent,
  UnknownEvent,
} from '../../../kernel/core/events.ts';
import type { JsonObject } from '../../../kernel/core/json.ts';
import { toolCallsOf } from '../../../kernel/core/message.ts';
import { squeeze } from '../terminal-text.ts';
import { joined, oneLine, type Shown, shown } from '../visible.ts';
import { isReturn } from './call-line.ts';

const INPUT_COLUMNS = 70;

export interface ProgressLine {
  readonly tone: Tone;
  /** On one line, with the reason. */
  readonly text: Shown;
  /** Why, if a call failed: the end of the run may repeat it. */
  readonly reason?: Shown;
  /** The line without the reason. */
  readonly head?: Shown;
}

/** Formats an event that a person who watches a run needs, as one line; undefined for the others. */
export function progressLine(
  event: LogEvent | UnknownEvent,
  given?: Shown,
): ProgressLine | undefined {
  const account = accountOf(event);
  if (!account?.readers.includes('watcher')) return undefined;
  const { tone, lead, mark, text, input = '', outcome = '' } = account;
  const parts = [
    shown`${oneLine(lead + mark)}${oneLine(text)}`,
    given ?? squeeze(oneLine(input), INPUT_COLUMNS),
    oneLine(outcome),
  ];
  const head = joined(
    parts.filter((part) => part !== ''),
    ' ',
  );
  const reason = oneLine(account.reason ?? '');
  return reason === ''
    ? { tone, text: head }
    : { tone, text: shown`${head}: ${reason}`, head, reason };
}

/** Formats the lines of a plug-in about an entry that a person who watches a run is shown, below its progress line. */
export function wordedLines(event: LogEvent | UnknownEvent): readonly Shown[] {
  const { event_type: type } = event;
  if (type !== 'custom' && type !== 'custom_message') return [];
  const texts = accountOf(event)?.parts.map(({ text }) => text) ?? [];
  return texts.flatMap((text) => text.split('\n')).map((line) => oneLine(line));
}

/**
 * Formats the events of a running thread like {@link runLine}. The end of a call names its input: of several calls that run
 * at once, a reader has to know which one failed.
 */
export function runLines(): (event: LogEvent | UnknownEvent) => ProgressLine | undefined {
  const inputs = new Map<string, Shown>();
  return (event) => {
    for (const { call_id: id, input } of callsOf(event)) inputs.set(id, summarize(input));
    const id = payloadOf(event, 'tool_settled')?.call_id ?? '';
    const line = runLine(event, inputs.get(id));
    inputs.delete(id);
    return line;
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
export function runLine(event: LogEvent | UnknownEvent, input?: Shown): ProgressLine | undefined {
  const settled = payloadOf(event, 'tool_settled');
  // the outputs themselves follow
  if (settled?.outcome === 'ok' && isReturn(settled.tool)) return undefined;
  const note = payloadOf(event, 'note')?.text ?? '';
  return isSecurityWarning(note.replace(/^warning: /, '')) ? undefined : progressLine(event, input);
}

function summarize(input: JsonObject): Shown {
  return squeeze(oneLine(membersOf(input)), INPUT_COLUMNS);
}

/** Returns the payload of an event if it has this type. */
export function payloadOf<T extends EventType>(
  event: LogEvent | UnknownEvent,
  type: T,
): EventPayloads[T] | undefined {
  return event.event_type === type ? (event.payload as EventPayloads[T]) : undefined;
}
