import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { textOf } from '../../core/message.ts';
import { neutralise, oneLine, truncate } from '../terminal-text.ts';
import { logAccount } from './log-account.ts';
import { payloadOf } from './progress-line.ts';

const RESULT_COLUMNS = 200;
const SILENT: ReadonlySet<string> = new Set(['token_delta', 'thinking_delta', 'toolcall_delta']);

/** Lines of `rye threads logs` for one event; deltas have none, because the message repeats them. */
export function formatLogEvent(event: LogEvent | UnknownEvent): readonly string[] {
  if (SILENT.has(event.event_type)) return [];
  const head = `${event.timestamp} ${String(event.seq).padStart(5)} ${oneLine(event.event_type)}`;
  const message = payloadOf(event, 'message')?.message;
  if (message !== undefined) {
    const text = neutralise(textOf(message.content)).trimEnd();
    const shown = message.role === 'tool_result' ? truncate(oneLine(text), RESULT_COLUMNS) : text;
    const body = shown === '' ? [] : shown.split('\n').map((line) => `  ${line}`);
    return [`${head} ${message.role}`, ...body];
  }
  const account = logAccount(event);
  return [account === undefined ? head : `${head} ${account}`];
}
