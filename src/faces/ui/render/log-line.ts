import type { LogMark } from '../../../kernel/app/api/threads.ts';
import type {
  EventPayloads,
  EventType,
  LogEvent,
  UnknownEvent,
} from '../../../kernel/core/events.ts';
import { type JsonObject, toText } from '../../../kernel/core/json.ts';
import { textOf } from '../../../kernel/core/message.ts';
import { formatCost, formatSeconds, formatUsd } from '../../../kernel/core/usage.ts';
import type { Io } from '../io.ts';
import { squeeze } from '../terminal-text.ts';
import { linesOf, oneLine, replaced, type Shown, shown, trimmed, visible } from '../visible.ts';
import { payloadOf, progressLine } from './progress-line.ts';

const RESULT_COLUMNS = 200;
const SILENT: ReadonlySet<string> = new Set(['token_delta', 'thinking_delta', 'toolcall_delta']);

/** Formats one event for `rye threads logs`. Deltas have no lines, because the message repeats them. */
export function formatLogEvent(event: LogEvent | UnknownEvent): readonly Shown[] {
  if (SILENT.has(event.event_type)) return [];
  const head = oneLine(`${event.timestamp} ${String(event.seq).padStart(5)} ${event.event_type}`);
  const message = payloadOf(event, 'message')?.message;
  if (message !== undefined) {
    const text = trimmed(visible(textOf(message.content)));
    const drawn =
      message.role === 'tool_result'
        ? squeeze(
            replaced(text, /\n/g, () => shown`\u240a`),
            RESULT_COLUMNS,
          )
        : text;
    const body = drawn === '' ? [] : linesOf(drawn).map((line) => shown`  ${line}`);
    const isCut = message.role === 'assistant' && message.stop_reason === 'aborted';
    return [shown`${head} ${message.role}${isCut ? ' (interrupted)' : ''}`, ...body];
  }
  const account = logAccount(event);
  return [account === undefined ? head : shown`${head} ${account}`];
}

const COLUMNS = 160;
const HASH_CHARACTERS = 12;

type Account<T extends EventType> = (payload: EventPayloads[T]) => string;

/** Accounts of events that only readers of a log need; the others come from the progress lines. */
const ACCOUNTS: { readonly [T in EventType]?: Account<T> } = {
  budget: ({ max_usd, parent_thread_id: parent }) =>
    `${formatUsd(max_usd)}${parent === undefined ? '' : ` of ${parent}`}`,
  thread_continued: ({ previous_thread_id: previous }) => `continues ${previous}`,
  run_started: ({ run, reason, model }) => `run ${run} (${reason}) with ${model}`,
  plan_changed: ({ changes }) => changes.map(({ type, id }) => `${type} ${id}`).join(', '),
  turn_started: ({ turn }) => `turn ${turn}`,
  request_started: ({ purpose, request: { provider, model } }) =>
    `${purpose} with ${provider}/${model}`,
  answer_started: ({ turn }) => `turn ${turn}`,
  system_prompt: ({ text, tools }) => `${text.length} characters, ${tools.length} tools`,
  context_injected: ({ position, blocks }) =>
    `${position}: ${blocks.length === 0 ? 'nothing' : blocks.map(({ id }) => id).join(', ')}`,
  hook_fired: ({ id, event, outcome, duration_ms, error }) =>
    `${id} on ${event}: ${outcome} ${formatSeconds(duration_ms / 1000)}${error === undefined ? '' : `, ${error}`}`,
  file_change: ({ path, before }) => `${before === null ? 'creates' : 'changes'} ${path}`,
  files_restored: ({ files }) => files.map(({ path }) => path).join(', '),
  approval_requested: ({ request: { id, tool }, input }) =>
    `${id} ${tool} ${JSON.stringify(input)}`,
  approval_decided: ({ approval_id: id, outcome, reason }) =>
    `${id} ${outcome}${reason === undefined ? '' : `: ${reason}`}`,
  tool_call_progress: ({ text }) => text,
  mcp_server_started: (start) =>
    `${start.server} ${'error' in start ? start.error : `with ${start.tools} tools`} ${formatSeconds(start.duration_ms / 1000)}`,
  mcp_list_changed: (change) => members(change),
  skill_activated: ({ skill, via }) =>
    `${skill} by ${via === 'model' ? 'the model' : 'the resume'}`,
  cost: ({ turn, total }) => `turn ${turn}: ${formatCost(total)} in all`,
  model_change: ({ provider, model }) => `${provider}/${model}`,
  thinking_change: ({ level }) => level,
  branch_summary: ({ from_id: from, summary }) => `of ${from}: ${summary}`,
  custom: ({ custom_type: type, data }) => `${type} ${members(data)}`,
  custom_message: ({ custom_type: type, content }) => `${type}: ${content}`,
  label: ({ target_id: target, label }) =>
    label === null ? `none on ${target}` : `"${label}" on ${target}`,
  title: ({ title }) => title,
  context_edit: ({ target_id: target, action, reason }) =>
    `${action} ${target}${reason === undefined ? '' : `: ${reason}`}`,
  leaf: ({ target_id: target }) => `moved to ${target ?? 'the root'}`,
  rule_matched: (payload) => members(payload),
  delivery: (payload) => members(payload),
  thread_finished: ({ status, error, cost }) =>
    `${status} (${formatCost(cost)})${error === undefined ? '' : `: ${error.message} [${error.code}]`}`,
  log_quarantined: ({ bytes, file }) => `${bytes} unverified bytes were moved to ${file}`,
  checkpoint: ({ from, to, sha256, key_id: key }) =>
    `bytes ${from}-${to}, sha256 ${sha256.slice(0, HASH_CHARACTERS)}…, signed by ${key}`,
};

/** Formats an event for a reader of the log; undefined if its type is enough. */
export function logAccount(event: LogEvent | UnknownEvent): Shown | undefined {
  const accounts: Readonly<Record<string, ((payload: never) => string) | undefined>> = ACCOUNTS;
  const account = Object.hasOwn(accounts, event.event_type)
    ? accounts[event.event_type]
    : undefined;
  const told = account?.(event.payload as never);
  const text = told === undefined ? progressLine(event)?.text : oneLine(told);
  // a note may be a warning, and each word of it counts
  if (text === undefined || event.event_type === 'note') return text;
  return squeeze(text, COLUMNS);
}

function members(payload: JsonObject): string {
  return Object.entries(payload)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => `${name}=${toText(value ?? null)}`)
    .join(' ');
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
