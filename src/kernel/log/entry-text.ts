import { isJsonObject } from '../core/json.ts';
import { inputsLabel, threadLabel } from '../core/label.ts';
import {
  type AssistantBlock,
  type ContentBlock,
  isErrorOutcome,
  type Message,
  type ToolCallBlock,
  toolCallsOf,
} from '../core/message.ts';
import { headChars } from '../core/text.ts';
import { isKnown, type TreeEntry } from './tree.ts';

const MAX_TEXT = 200;
const MAX_ARGUMENTS = 60;

/** Describes an entry in one line of at most 200 characters. A result is described with its call, if that is known. */
export function describeEntry(
  entry: TreeEntry,
  { call, isAnswered = false }: { readonly call?: ToolCallBlock; readonly isAnswered?: boolean },
): string {
  if (!isKnown(entry, 'message')) return inOneLine(entryText(entry));
  const { message } = entry.payload;
  switch (message.role) {
    case 'user':
      return inOneLine(taskOf(message)?.task ?? startOf(message.content));
    case 'tool_result':
      return inOneLine(resultText(message, call));
    case 'assistant':
      return inOneLine(answerText(message, isAnswered));
  }
}

function inOneLine(text: string): string {
  const line = text
    .replaceAll(/^#{1,6} |\*\*|^```\w*$/gm, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
  return line.length <= MAX_TEXT ? line : `${headChars(line, MAX_TEXT - 1)}…`;
}

function startOf(content: readonly (ContentBlock | AssistantBlock)[]): string {
  return content
    .map((block) => {
      if (block.type === 'image') return `[${block.media_type}]`;
      return block.type === 'text' ? block.text.slice(0, MAX_TEXT * 2) : '';
    })
    .join(' ');
}

function resultText(
  { name, outcome, content }: Extract<Message, { role: 'tool_result' }>,
  call: ToolCallBlock | undefined,
): string {
  const mark = isErrorOutcome(outcome) ? '✗' : '→';
  const named = outcome === 'ok' ? mark : `${mark} ${outcome}:`;
  const text = outcomeText(content) ?? startOf(content);
  return `${call ? callText(call) : shortToolName(name)} ${named} ${text}`;
}

/** Describes the result of a call that started a thread by the status and the result of that thread. */
function outcomeText([block]: readonly ContentBlock[]): string | undefined {
  if (block?.type !== 'text' || !THREAD_ID.test(block.text)) return undefined;
  try {
    const { thread_id: id, status = 'started', result = '' } = JSON.parse(block.text);
    return `${status}: ${result === '' ? id : String(result).slice(0, MAX_TEXT * 2)}`;
  } catch {
    return undefined;
  }
}

/** Omits calls that the rows of their results show. */
function answerText(message: Extract<Message, { role: 'assistant' }>, isAnswered: boolean): string {
  const text = startOf(message.content).trim();
  const calls = isAnswered && text !== '' ? [] : toolCallsOf(message).map(callText);
  const parts = [text, calls.length === 0 ? '' : `→ ${calls.join(', ')}`];
  if (message.stop_reason === 'aborted') parts.push('(interrupted)');
  return parts.filter((part) => part !== '').join(' ');
}

/** Arguments that hold what is written, of the built-in tools and of pi's. */
const CONTENTS = new Set(['old_string', 'new_string', 'edits', 'oldText', 'newText', 'content']);

/** Shows a call as `name(arguments…)`, without contents of files; a lone text argument without its name. */
function callText({ name, input, malformed }: ToolCallBlock): string {
  const child = malformed === undefined ? childText(name, input) : undefined;
  if (child !== undefined) return child;
  const hidden = input['item_type'] === 'directive' ? 'item_type' : undefined;
  const members = Object.entries(input).filter(([key]) => key !== hidden && !CONTENTS.has(key));
  const [[, only] = []] = members;
  const text =
    malformed ??
    (members.length === 1 && typeof only === 'string'
      ? only
      : members.map(([key, value]) => `${key}=${valueText(value)}`).join(', '));
  const line = text.slice(0, MAX_ARGUMENTS * 2).replaceAll(/\s+/g, ' ');
  const isCut = line.length > MAX_ARGUMENTS || text.length > MAX_ARGUMENTS * 2;
  return `${shortToolName(name)}(${isCut ? `${headChars(line, MAX_ARGUMENTS - 1)}…` : line})`;
}

/** Shows a call that starts a thread as its label, or its directive and inputs. */
function childText(name: string, input: ToolCallBlock['input']): string | undefined {
  const { item_type: type, item_id: id, parameters, label } = input;
  if (!name.endsWith('execute') || type !== 'directive' || typeof id !== 'string') return undefined;
  const own = typeof label === 'string' ? threadLabel(label) : '';
  return own === '' ? inputsLabel(id, isJsonObject(parameters) ? parameters : {}) : own;
}

function valueText(value: unknown): string {
  if (typeof value === 'string') return value.slice(0, MAX_ARGUMENTS * 2);
  return JSON.stringify(value).slice(0, MAX_ARGUMENTS * 2);
}

/** Returns the name of a tool without the prefix of the built-in ones. */
function shortToolName(name: string): string {
  return name.replace(/^rye_(?:file_system_)?(?=.)/, '');
}

/** The task in the first message of a thread, and the rest: the directive's markup and the standard instructions. */
export interface DirectiveTask {
  readonly name: string;
  readonly task: string;
  readonly instructions: string;
}

const WORK_ORDER = /^<directive name="([^"]*)">\n([\s\S]*?)\n<\/directive>\n*/;
const DESCRIPTION = /^<description>([\s\S]*?)<\/description>\n?/;
const PERMISSIONS = /^<permissions\b[^>]*>[\s\S]*?<\/permissions>\n?/;
const RETURN_INSTRUCTION = '\nWhen you have completed all steps, call the `rye_directive_return`';

/** Extracts the task from a message that a directive was rendered to; undefined for any other message. */
export function taskOf(message: Message): DirectiveTask | undefined {
  const [block] = message.content;
  if (message.role !== 'user' || block?.type !== 'text') return undefined;
  if (!block.text.startsWith('<directive name="')) return undefined;
  const [whole, name = '', inner = ''] = WORK_ORDER.exec(block.text) ?? [];
  if (whole === undefined) return undefined;
  const description = DESCRIPTION.exec(inner)?.[1] ?? '';
  const body = inner.replace(DESCRIPTION, '').replace(PERMISSIONS, '');
  const end = body.indexOf(RETURN_INSTRUCTION);
  const own = (end === -1 ? body : body.slice(0, end)).trim();
  const instructions = `${end === -1 ? '' : body.slice(end)}\n${block.text.slice(whole.length)}`;
  return { name, task: own === '' ? description : own, instructions: instructions.trim() };
}

/** The text that another thread or a person sent to a running thread, and who sent it. */
export interface DeliveredText {
  readonly from: string;
  readonly isPerson: boolean;
  readonly text: string;
}

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

/** Yields every text that a search looks in: the whole content, arguments and results; no image data. */
export function* searchedTexts(
  entry: TreeEntry,
  call: ToolCallBlock | undefined,
): Generator<string> {
  if (call) yield* stringsOf([call.name, call.input]);
  if (isKnown(entry, 'message')) {
    const { message } = entry.payload;
    if (message.role === 'tool_result') yield* [message.name, message.outcome];
    for (const block of message.content) {
      if (block.type === 'image') yield block.media_type;
      else if (block.type !== 'tool_call') yield block.text;
      else yield* stringsOf([block.name, block.malformed ?? block.input]);
    }
  } else if (!isKnown(entry, 'system_prompt')) yield* stringsOf(entry.payload);
  else yield entry.payload.text;
}

/** Yields the names and the texts in a value. */
function* stringsOf(value: unknown): Generator<string> {
  if (typeof value === 'string') yield value;
  else if (Array.isArray(value)) for (const item of value) yield* stringsOf(item);
  else if (typeof value === 'object' && value !== null) {
    for (const [key, member] of Object.entries(value)) {
      yield key;
      yield* stringsOf(member);
    }
  } else if (value !== undefined) yield JSON.stringify(value);
}

const THREAD_ID = /^\s*\{\s*(?:"success":\s*\w+,\s*)?"thread_id":\s*"([^"]+)"/;

/** Returns the thread that the call of a result started; undefined if it started none. */
export function childThreadOf(entry: TreeEntry): string | undefined {
  if (!isKnown(entry, 'message')) return undefined;
  const { message } = entry.payload;
  if (message.role !== 'tool_result' || !message.name.endsWith('execute')) return undefined;
  const id = message.data?.['thread_id'];
  if (typeof id === 'string') return id;
  const [block] = message.content;
  return block?.type === 'text' ? THREAD_ID.exec(block.text)?.[1] : undefined;
}

function entryText(entry: TreeEntry): string {
  if (isKnown(entry, 'custom_message')) {
    const { custom_type: type, content } = entry.payload;
    const delivered = deliveryOf(content);
    if (delivered?.isPerson === true) return delivered.text;
    const [name, text] = delivered ? [`from ${delivered.from}`, delivered.text] : [type, content];
    return `${name}: ${headChars(text, MAX_TEXT)}`;
  }
  if (isKnown(entry, 'compaction')) {
    return `${entry.payload.tokens_before} tokens: ${headChars(entry.payload.summary, MAX_TEXT)}`;
  }
  if (isKnown(entry, 'branch_summary')) return headChars(entry.payload.summary, MAX_TEXT);
  if (isKnown(entry, 'label')) {
    return `${entry.payload.target_id}: ${entry.payload.label ?? '(cleared)'}`;
  }
  if (isKnown(entry, 'title')) return entry.payload.title;
  if (isKnown(entry, 'leaf')) return `to ${entry.payload.target_id ?? 'the root'}`;
  return otherText(entry);
}

function otherText(entry: TreeEntry): string {
  if (isKnown(entry, 'model_change')) return `${entry.payload.provider}/${entry.payload.model}`;
  if (isKnown(entry, 'thinking_change')) return entry.payload.level;
  if (isKnown(entry, 'custom')) return entry.payload.custom_type;
  if (isKnown(entry, 'context_edit')) return `${entry.payload.action} ${entry.payload.target_id}`;
  if (isKnown(entry, 'system_prompt')) {
    const { text, tools } = entry.payload;
    return `${tools.length} tools ${headChars(text, MAX_TEXT)}`;
  }
  if (isKnown(entry, 'rule_injection')) {
    return entry.payload.rules.map(({ name }) => name).join(', ');
  }
  return '';
}
