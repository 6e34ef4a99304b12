import { isJsonObject, type JsonObject, type JsonValue, toText } from '../core/json.ts';
import { inputsLabel, threadLabel } from '../core/label.ts';
import {
  type AssistantBlock,
  type ContentBlock,
  isErrorOutcome,
  type Message,
  type ToolCallBlock,
  textOf,
  toolCallsOf,
} from '../core/message.ts';
import { headChars } from '../core/text.ts';
import { accountOf, deliveryOf, lineOf } from './account.ts';
import { isKnown, type TreeEntry } from './tree.ts';

const MAX_TEXT = 200;
const MAX_ARGUMENTS = 60;
const MAX_CALL = 80;

/** Describes an entry in one line of at most 200 characters. A result is described with its call, if that is known. */
export function describeEntry(
  entry: TreeEntry,
  { call, isAnswered = false }: { readonly call?: ToolCallBlock; readonly isAnswered?: boolean },
): string {
  if (!isKnown(entry, 'message')) {
    const account = accountOf(entry);
    return account ? inOneLine(lineOf(account)) : '';
  }
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
  return shortened(line, MAX_TEXT);
}

function shortened(text: string, max: number): string {
  return text.length <= max ? text : `${headChars(text, max - 1)}…`;
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

function callText({ name, input, malformed }: ToolCallBlock): string {
  const text =
    malformed === undefined ? callLabel(name, input) : `${shortToolName(name)} ${malformed}`;
  return shortened(text, MAX_CALL);
}

/** The inputs that identify a call, in order of preference. */
const SUBJECTS = [
  'path',
  'pattern',
  'command',
  'query',
  'item_id',
  'operation',
  'url',
  'title',
] as const;

/** Names a call as `read src/a.js` or `bash npm test`; one that starts a thread by its label, or its directive and inputs. */
export function callLabel(name: string, input: JsonObject): string {
  const child = directiveCall(name, input);
  const { label } = input;
  const own = typeof label === 'string' ? threadLabel(label) : '';
  if (child) return own === '' ? inputsLabel(child.directive, child.inputs) : own;
  const tool = shortToolName(name);
  // a tool that is not built in has every argument
  const subjects = SUBJECTS.flatMap((key) => {
    const value = input[key];
    const isSubject = isBuiltIn(name) && typeof value === 'string' && value !== '';
    return isSubject ? [key === 'pattern' ? quoted(value) : value] : [];
  });
  const named = subjects.slice(0, tool === 'grep' ? 2 : 1).toReversed();
  const what = subjects.length > 0 ? named : Object.values(input).map(shortValue);
  return [tool, ...(tool === 'ls' && what.length === 0 ? ['.'] : what)].join(' ');
}

function quoted(pattern: string): string {
  return /^[\w./*?{},[\]-]+$/.test(pattern) ? pattern : JSON.stringify(pattern);
}

function shortValue(value: JsonValue = ''): string {
  return shortened(toText(value), MAX_ARGUMENTS);
}

/** Returns the directive that a call runs as a child thread. */
export function directiveCall(
  name: string,
  { item_type: type, item_id: id, parameters }: JsonObject,
): { readonly directive: string; readonly inputs: JsonObject } | undefined {
  if (!/^rye[_/]execute$/.test(name) || type !== 'directive' || typeof id !== 'string')
    return undefined;
  return { directive: id, inputs: isJsonObject(parameters) ? parameters : {} };
}

/** Prefixes of the built-in tools, whose last word is enough: `rye/file-system/read` is `read`. */
const BUILT_IN = /^rye\/(?:file-system\/|agent\/(?:threads\/)?)?(?=[^/]+$)/;
/** The same prefixes in wire names, which are all that is known of a call that has not begun. */
const BUILT_IN_WIRE = /^rye_(?:file_system_|agent_(?:threads_)?)?(?!core_|examples_)/;

function isBuiltIn(name: string): boolean {
  return BUILT_IN.test(name) || BUILT_IN_WIRE.test(name);
}

/** Returns the name of a tool for people, from its ID or its wire name: `read`, but `rye/core/greet` and `notes/words`. */
export function shortToolName(name: string): string {
  // a damaged log may have anything for a name
  return toText(name).replace(BUILT_IN, '').replace(BUILT_IN_WIRE, '') || name;
}

/** The task in the first message of a thread, and the rest: the directive's markup and the standard instructions. */
export interface DirectiveTask {
  readonly name: string;
  /** The body; the description of a directive without one. */
  readonly task: string;
  readonly instructions: string;
}

const DIRECTIVE = /(?:^|\n)<directive name="([^"\n]{0,200})">\n/;
const END = '\n</directive>';
const DESCRIPTION = /^<description>([\s\S]*?)<\/description>\n?/;
const PERMISSIONS = /^<permissions\b[^>]*\/>\n?|^<permissions\b[\s\S]*?<\/permissions>\n?/;
const RETURN_INSTRUCTION = '\nWhen you have completed all steps, call the `rye_directive_return`';

/** Extracts the task from a message that a directive was rendered to; undefined for any other message. */
export function taskOf(message: Message): DirectiveTask | undefined {
  const [block] = message.content;
  return message.role === 'user' && block?.type === 'text' ? taskIn(block.text) : undefined;
}

/** Returns the text of a person in an entry, without the markup of a directive and the envelope of a delivery. */
export function personTextOf(entry: TreeEntry): string | undefined {
  if (isKnown(entry, 'custom_message')) {
    const delivered = deliveryOf(entry.payload.content);
    return delivered?.isPerson === true ? delivered.text : undefined;
  }
  if (!isKnown(entry, 'message') || entry.payload.message.role !== 'user') return undefined;
  const { message } = entry.payload;
  return taskOf(message)?.task ?? textOf(message.content);
}

/** Extracts the task from the text of a message; undefined for any text without a directive. */
export function taskIn(text: string): DirectiveTask | undefined {
  const opening = DIRECTIVE.exec(text);
  const end = text.lastIndexOf(END);
  const start = opening === null ? 0 : opening.index + opening[0].length;
  if (opening === null || end < start - 1) return undefined;
  const inner = text.slice(start, Math.max(start, end));
  const description = DESCRIPTION.exec(inner)?.[1] ?? '';
  const body = `\n${inner.replace(DESCRIPTION, '').replace(PERMISSIONS, '')}`;
  const cut = body.lastIndexOf(RETURN_INSTRUCTION);
  const own = (cut === -1 ? body : body.slice(0, cut)).trim();
  const rest = [
    text.slice(0, opening.index),
    cut === -1 ? '' : body.slice(cut + 1),
    text.slice(end + END.length),
  ];
  return {
    name: opening[1] ?? '',
    task: own === '' ? description.trim() : own,
    instructions: rest.join('\n').trim(),
  };
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
  } else if (isKnown(entry, 'custom_message')) {
    const { images: _images, ...payload } = entry.payload;
    yield* stringsOf(payload);
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
