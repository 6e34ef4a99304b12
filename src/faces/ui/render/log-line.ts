import type { LogMark } from '../../../kernel/app/api/threads.ts';
import { accountOf, lineOf } from '../../../kernel/app/api/trees.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import { textOf } from '../../../kernel/core/message.ts';
import type { Io } from '../io.ts';
import { squeeze } from '../terminal-text.ts';
import { linesOf, oneLine, replaced, type Shown, shown, trimmed, visible } from '../visible.ts';
import { payloadOf } from './progress-line.ts';

const RESULT_COLUMNS = 200;
const SILENT: ReadonlySet<string> = new Set(['token_delta', 'thinking_delta', 'toolcall_delta']);

/** Formats one event for `rye threads logs`. Deltas have no lines, because the message repeats them. */
export function formatLogEvent(event: LogEvent | UnknownEvent): readonly Shown[] {
  if (SILENT.has(event.event_type)) return [];
  const head = oneLine(`${event.timestamp} ${String(event.seq).padStart(5)} ${event.event_type}`);
  const account = logAccount(event);
  const line = account === undefined ? head : shown`${head} ${account}`;
  const message = payloadOf(event, 'message')?.message;
  if (message === undefined) return [line];
  const text = trimmed(visible(textOf(message.content)));
  const drawn =
    message.role === 'tool_result'
      ? squeeze(
          replaced(text, /\n/g, () => shown`\u240a`),
          RESULT_COLUMNS,
        )
      : text;
  return [line, ...(drawn === '' ? [] : linesOf(drawn).map((each) => shown`  ${each}`))];
}

const COLUMNS = 160;

/** Formats an event for a reader of the log; undefined if its type is enough. */
export function logAccount(event: LogEvent | UnknownEvent): Shown | undefined {
  const account = accountOf(event);
  if (account === undefined) return undefined;
  const text = oneLine(lineOf(account));
  // a note may be a warning, and each word of it counts
  return event.event_type === 'note' ? text : squeeze(text, COLUMNS);
}

/** Warns on stderr about a log that fails verification, also with --quiet. */
export function warnUnverified({ error }: LogMark, io: Io): void {
  if (error === undefined) return;
  io.stderr.write(shown`rye: warning: ${oneLine(error.message)} [${error.code}]\n`);
}

/** Returns the members of a JSON document that report if the log is verified. */
export function markMembers({ verified, unverified_from }: LogMark): {
  verified: boolean | null;
  unverified_from?: number;
} {
  return { verified, ...(unverified_from === undefined ? {} : { unverified_from }) };
}
