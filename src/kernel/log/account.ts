import type { EventPayloads, EventType, LogEvent, UnknownEvent } from '../core/events.ts';
import { type JsonObject, type JsonValue, toText } from '../core/json.ts';
import type { ToolOutcome } from '../core/message.ts';
import { headChars } from '../core/text.ts';
import { formatCost, formatSeconds, formatUsd } from '../core/usage.ts';
import { DELIVERY_ENTRY } from './delivery-facts.ts';

/** Progress, success, a warning or a failure. */
export type Tone = 'plain' | 'good' | 'warning' | 'bad';

/**
 * A person who is told about an event: one who watches the run, also with `--verbose`; one who reads its page, also with
 * details; one who reads it as Markdown. The page shows every entry, those for `details` only with them.
 */
export type AccountReader = 'watcher' | 'verbose' | 'page' | 'details' | 'markdown';

/** The words about an event. The faces lay them out, and each of them makes the texts safe, which may come from anywhere. */
export interface Account {
  readonly tone: Tone;
  /** Readers who are told this event, besides the log's readers, who are told every event. */
  readonly readers: readonly AccountReader[];
  /** Names an entry where its type is not shown. */
  readonly title?: string;
  /** Words before `text` where neither type nor title is shown. */
  readonly lead: string;
  /** A sign before `text`. */
  readonly mark: string;
  /** The event in a few words. */
  readonly text: string;
  /** The arguments of a call; a line shows their beginning. */
  readonly input?: string;
  /** The end of a call, after its arguments. */
  readonly outcome?: string;
  /** Why, as a sentence from elsewhere. */
  readonly reason?: string | undefined;
  /** The entry that `text` names. */
  readonly target?: string | null;
  /** The child thread that `text` names. */
  readonly child?: string;
  readonly parts: readonly Part[];
}

/** A whole text that an event holds. */
interface Part {
  readonly name: string;
  /** The member of the payload that it shows, and nothing else. */
  readonly member?: string;
  readonly text: string;
}

type Told = Partial<Account> & Pick<Account, 'text'>;

/** Characters of a value that a line may show. */
const MAX_VALUE = 200;

const NEWS: readonly AccountReader[] = ['watcher', 'page'];
const WATCHED: readonly AccountReader[] = ['watcher'];
const VERBOSE: readonly AccountReader[] = ['verbose'];
const PAGE: readonly AccountReader[] = ['page'];
const DETAILS: readonly AccountReader[] = ['details'];
const MARKDOWN: readonly AccountReader[] = ['markdown'];
const SHOWN: readonly AccountReader[] = ['watcher', 'markdown'];
/** The run takes another course. */
const SWERVE = { tone: 'warning', readers: WATCHED } as const;

function told(readers: readonly AccountReader[], text: string, more: Partial<Account> = {}): Told {
  return { readers, text, ...more };
}

function entry(title: string, text: string, more: Partial<Account> = {}): Told {
  return { title, text, ...more };
}

/** Returns lines about a custom entry, or about a custom message with this content and these details. */
export type CustomWords = (data: JsonObject, content?: string) => string | readonly string[];

/** Lines of a plug-in about one entry; the others are not shown. */
const MAX_LINES = 200;

/** The words of plug-ins about their custom entries, by the custom type. */
const CUSTOM = new Map<string, CustomWords>();

/** Takes words about custom entries, for all faces of this process. A custom type begins with the name of its plug-in. */
export function wordCustomEntries(words: Readonly<Record<string, CustomWords>>): void {
  for (const [type, about] of Object.entries(words)) CUSTOM.set(type, about);
}

/** The lines of the plug-in; undefined for words that fail, so that a log stays readable. */
function customLines(
  type: string,
  data: JsonObject,
  content?: string,
): readonly string[] | undefined {
  try {
    const words: unknown = CUSTOM.get(type)?.(data, content);
    const lines: readonly unknown[] = Array.isArray(words) ? words : [words];
    const isShown = lines.length > 0 && lines.every((line) => typeof line === 'string');
    return isShown ? lines.slice(0, MAX_LINES) : undefined;
  } catch {
    // the entry is shown as it is
    return undefined;
  }
}

function customEntry({ custom_type: type, data }: EventPayloads['custom']): Told {
  const lines = customLines(type, data);
  if (lines === undefined) {
    return entry('State', `${type} ${membersOf(data)}`.trim(), { readers: DETAILS });
  }
  const [text = '', ...rest] = lines;
  const parts = rest.length === 0 ? [] : [{ name: 'Lines', member: 'data', text: rest.join('\n') }];
  return entry('State', text, { readers: NEWS, parts });
}

function customMessage({
  custom_type: type,
  content,
  display,
  details = {},
  images = [],
}: EventPayloads['custom_message']): Told {
  const sent = type === DELIVERY_ENTRY ? deliveryOf(content) : undefined;
  const lines = customLines(type, details, content);
  const words = images.length === 0 ? type : `${type}, ${imagesText(images)}`;
  const shown = lines === undefined ? MARKDOWN : SHOWN;
  return entry(sent ? 'Message' : 'Injected', sent ? `from ${sent.from}` : words, {
    readers: display ? shown : DETAILS,
    parts: [{ name: 'Text', member: 'content', text: sent?.text ?? lines?.join('\n') ?? content }],
  });
}

function imagesText({ length }: readonly unknown[]): string {
  return length === 1 ? '1 image' : `${length} images`;
}

/** The words about each event: the one place for them. An event with an empty text is told by its type, or by what follows. */
const ACCOUNTS: { readonly [T in EventType]: (payload: EventPayloads[T]) => Told | string } = {
  message: ({ message }) =>
    message.role === 'assistant' && message.stop_reason === 'aborted'
      ? 'assistant (interrupted)'
      : message.role,
  system_prompt: ({ text, tools }) =>
    entry('System prompt', `${text.length} characters, ${tools.length} tools`, {
      parts: [
        { name: 'Instructions', member: 'text', text },
        { name: 'Tools', text: namesOf(tools, 'name') },
      ],
    }),
  context_injected: ({ position, blocks }) =>
    entry('Context', `${position}: ${blocks.length === 0 ? 'nothing' : namesOf(blocks, 'id')}`, {
      parts: blocks.map((one) => ({ name: `${one.id} (${one.source})`, text: one.content })),
    }),
  model_change: ({ provider, model }) =>
    entry('Model', `${provider}/${model}`, { lead: 'continuing with ', ...SWERVE }),
  thinking_change: ({ level }) => entry('Thinking', level),
  compaction: ({ summary: text, tokens_before: tokens }) =>
    entry('Compacted', `${tokens} tokens`, {
      readers: ['watcher', 'markdown'],
      lead: 'compacted the context of ',
      parts: [{ name: 'Summary', member: 'summary', text }],
    }),
  branch_summary: ({ from_id: target, summary: text }) =>
    entry('Summary of a branch that was left', `from ${target}`, {
      readers: MARKDOWN,
      target,
      parts: [{ name: 'Summary', member: 'summary', text }],
    }),
  custom: customEntry,
  custom_message: customMessage,
  label: ({ target_id: target, label }) => {
    const text = label === null || label === '' ? 'none' : `"${label}"`;
    return entry('Label', `${text} on ${target}`, { readers: DETAILS, target });
  },
  title: ({ title }) => entry('Title', title, { readers: DETAILS }),
  context_edit: ({ target_id: target, action, content: text, reason }) => {
    const words = action === 'omit' ? 'no longer sees' : 'sees another text in place of';
    const parts =
      text === undefined ? [] : [{ name: 'Text for the model', member: 'content', text }];
    return entry('Context edit', `the model ${words} ${target}`, {
      readers: MARKDOWN,
      reason,
      target,
      parts,
    });
  },
  rule_injection: ({ rules }) =>
    entry('Rules told', namesOf(rules, 'name'), { lead: 'interrupted by ', ...SWERVE }),
  leaf: ({ target_id: target }) => entry('Branch', `moved to ${target ?? 'the root'}`, { target }),
  thread_started: ({ directive, provider, model }) =>
    told(WATCHED, `${directive} on ${provider}/${model}`),
  thread_continued: ({ previous_thread_id: previous }) => told(PAGE, `continues ${previous}`),
  run_started: ({ run, reason, model }) => `run ${run} · ${reason} · ${model}`,
  plan_changed: ({ changes }) => changes.map(({ type, id }) => `${type} ${id}`).join(', '),
  turn_started: ({ turn, request: next }) =>
    told(next ? VERBOSE : [], `turn ${turn}`, {
      reason:
        next &&
        `request to ${next.provider}/${next.model}, up to ${next.input_tokens} tokens in, ${next.max_tokens} out`,
    }),
  request_started: ({ purpose, request: { provider, model } }) =>
    `${purpose} with ${provider}/${model}`,
  answer_started: ({ turn }) => `turn ${turn}`,
  token_delta: () => '',
  thinking_delta: () => '',
  toolcall_delta: () => '',
  tool_call_start: ({ tool, input }) =>
    told(WATCHED, tool, { mark: '→ ', input: membersOf(input) }),
  tool_call_progress: ({ text }) => text,
  tool_settled: ({ tool, outcome: end, duration_ms: ms, reason }) => {
    const took = formatSeconds(ms / 1000);
    if (end === 'ok') return told(WATCHED, tool, { tone: 'good', mark: '✓ ', outcome: took });
    const isCancelled = end === 'aborted' && ms > 0;
    return told(WATCHED, tool, {
      tone: 'bad',
      mark: '✗ ',
      outcome: isCancelled
        ? `cancelled after ${took} (may have had side effects)`
        : `${end} ${took}`,
      reason: isCancelled || reason === undefined ? undefined : shortReason(end, reason),
    });
  },
  file_change: ({ path, before }) => `${before === null ? 'creates' : 'changes'} ${path}`,
  files_restored: ({ files }) => namesOf(files, 'path'),
  approval_requested: ({ request: { id, tool }, input }) =>
    told([], `${id} ${tool}`, { input: membersOf(input) }),
  approval_decided: ({ approval_id: id, outcome, reason }) =>
    told([], `${id} ${outcome}`, { reason }),
  changes_collected: ({ status, files }) => `${status} ${namesOf(files, 'path')}`.trim(),
  worktree_saved: () => '',
  hook_fired: ({ id, event, matched, outcome, duration_ms: ms, error: reason }) => {
    const text = `${id} on ${event}: ${outcome}, ${formatSeconds(ms / 1000)}`;
    return reason === undefined
      ? told(matched ? ['verbose', 'details'] : [], text, { lead: 'hook ' })
      : told(['verbose', 'page'], text, { tone: 'bad', lead: 'hook ', reason });
  },
  rule_matched: ({ rule, stream, path, interrupted: isCut }) => {
    const text = `${wordsOf(rule)} matched the ${wordsOf(stream, path)} stream`;
    return isCut === true
      ? told(PAGE, `${text} and cut the answer`, { tone: 'warning', lead: 'rule ' })
      : told(PAGE, text, { lead: 'rule ' });
  },
  limit_reached: ({ code, current, max, needed, left }) => {
    const text =
      needed === undefined || left === undefined
        ? `${current} of ${max}`
        : `the next call could cost ${formatUsd(needed)}, ${formatUsd(left)} left`;
    return told(NEWS, `${code} (${text})`, { tone: 'warning', lead: 'limit reached: ' });
  },
  limit_raised: ({ limit, to }) => `${limit} to ${to}`,
  mcp_server_started: (start) =>
    `${start.server} ${'error' in start ? start.error : `with ${start.tools} tools`} ${formatSeconds(start.duration_ms / 1000)}`,
  mcp_list_changed: (change) => membersOf(change),
  skill_activated: ({ skill, via }) =>
    `${skill} by ${{ model: 'the model', resume: 'the resume', host: 'a person or program' }[via]}`,
  skill_deactivated: ({ skill, reason }) =>
    `${skill} ${reason === 'host' ? 'by a person or program' : 'at the end of the run'}`,
  tool_budget_exceeded: ({ tool, count, max }) => `${tool}: call ${count} of ${max}`,
  output_budget_exceeded: ({ bytes, budget }) => `${bytes} of ${budget} bytes`,
  error_classified: ({ category, retryable, message: reason }) =>
    told(NEWS, category, { tone: retryable ? 'warning' : 'bad', reason }),
  retry_scheduled: (wait) => told(NEWS, waitText(wait, wait.delay_ms), { tone: 'warning' }),
  cost: ({ turn, total }) => told(VERBOSE, `turn ${turn} done: ${formatCost(total)} so far`),
  child_thread_started: ({ child_thread_id: child, directive, label = directive }) =>
    told(NEWS, `started ${child} (${label})`, { mark: '↳ ', child }),
  child_thread_finished: ({ child_thread_id: child, status, spend }) =>
    told(NEWS, `${status} ${child} ${formatUsd(spend)}`, {
      tone: status === 'completed' ? 'good' : 'bad',
      mark: '↳ ',
      child,
    }),
  delivery: ({ decision, kind, source, run_id: run, reason }) =>
    told(PAGE, wordsOf(decision, kind, source && `from ${toText(source)}`, run), {
      lead: 'delivery: ',
      reason: wordsOf(reason),
    }),
  budget: ({ max_usd: max, parent_thread_id: parent }) =>
    `${formatUsd(max)}${parent === undefined ? '' : ` of ${parent}`}`,
  thread_finished: ({ status, error, cost }) =>
    told([], `${status} (${formatCost(cost)})`, {
      reason: error && `${error.message} [${error.code}]`,
    }),
  checkpoint: ({ from, to, sha256, key_id: key }) =>
    told(DETAILS, `bytes ${from}-${to}, sha256 ${sha256.slice(0, 12)}…, signed by ${key}`, {
      tone: 'good',
    }),
  log_quarantined: ({ bytes, file }) =>
    told(PAGE, `${bytes} unverified bytes were moved to ${file}`, { tone: 'warning' }),
  note: ({ text }) => told(NEWS, text),
};

/** Returns the account of an event; undefined if its type tells all, or nothing is known about it. */
export function accountOf(event: LogEvent | UnknownEvent): Account | undefined {
  const rows: Readonly<Record<string, (payload: never) => Told | string>> = ACCOUNTS;
  const row = Object.hasOwn(rows, event.event_type) ? rows[event.event_type] : undefined;
  try {
    const given = row?.(event.payload as never) ?? '';
    const { parts = [], ...rest } = typeof given === 'object' ? given : { text: given };
    const isSound = [rest, ...parts].every(({ text }) => typeof text === 'string');
    if (!isSound || rest.text === '') return undefined;
    const whole = parts.filter(({ text }) => text !== '');
    return { tone: 'plain', readers: [], lead: '', mark: '', ...rest, parts: whole };
  } catch {
    // the payload of a foreign log need not match its type
    return undefined;
  }
}

/** Returns an account as one text, for a reader who sees the type or the title of the event beside it. */
export function factsOf({ mark, text, input = '', outcome = '', reason = '' }: Account): string {
  const words = [`${mark}${text}`, input, outcome].filter((part) => part !== '').join(' ');
  return reason === '' ? words : `${words}: ${reason}`;
}

/** Returns an account as one text, with the beginning of the whole text that the event holds. */
export function lineOf(account: Account): string {
  const [part] = account.parts;
  return part === undefined
    ? factsOf(account)
    : `${factsOf(account)}: ${headChars(part.text, MAX_VALUE)}`;
}

/** Formats `overloaded, retry 3 in 12 s`. */
export function waitText(
  { attempt, reason = 'failed' }: EventPayloads['retry_scheduled'],
  leftMs: number,
): string {
  return `${reason}, retry ${attempt} in ${Math.max(0, Math.ceil(leftMs / 1000))} s`;
}

/** The last line of a list of problems that `tools/schema.ts` has cut. */
const MORE = /^- and (\d+) more$/;

/** Returns the reason of a failed call; of wrong arguments, only the first problem: the list of them is for the model. */
export function shortReason(outcome: ToolOutcome, reason: string): string {
  const problems = reason.split('\n').filter((line) => line.startsWith('- '));
  const [first] = problems;
  if (outcome !== 'invalid' || first === undefined) return reason;
  const unlisted = MORE.exec(problems.at(-1) ?? '')?.[1];
  const others = problems.length - 1 + (unlisted === undefined ? 0 : Number(unlisted) - 1);
  return `${first.slice(2)}${others === 0 ? '' : ` (and ${others} more)`}`;
}

/** Joins one member of each object in a list, where it is a text. */
function namesOf(list: readonly object[], name: string): string {
  const texts = list.map((one) => (one as JsonObject)[name]);
  return texts.filter((text) => typeof text === 'string').join(', ');
}

function wordsOf(...values: readonly (JsonValue | undefined)[]): string {
  return values
    .filter((value) => value !== undefined)
    .map(toText)
    .join(' ');
}

/** Returns the members of an object on one line, each with the beginning of its value. */
export function membersOf(values: object): string {
  return Object.entries(values as JsonObject)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value = null]) => `${name}=${headChars(toText(value), MAX_VALUE)}`)
    .join(' ');
}

/** The text that another thread or a person sent to a running thread, and who sent it. */
export interface DeliveredText {
  readonly from: string;
  readonly isPerson: boolean;
  readonly text: string;
}

/** The envelope that `threads/family/delivery-log.ts` writes. */
const DELIVERY =
  /^<delivery marker="([0-9a-f]+)" kind="[^"]*" from="([^"]*)">\n([^\n]*)\n([\s\S]*)\n<\/delivery marker="\1">$/;

/** Extracts a message from the envelope in which the model gets it; undefined for any other text. */
export function deliveryOf(content: string): DeliveredText | undefined {
  if (!content.startsWith('<delivery ')) return undefined;
  const [, , from, preface = '', text] = DELIVERY.exec(content) ?? [];
  if (from === undefined || text === undefined) return undefined;
  const isPerson = preface.startsWith('A message from the person');
  return { from, isPerson, text: text.replaceAll('&lt;', '<') };
}
