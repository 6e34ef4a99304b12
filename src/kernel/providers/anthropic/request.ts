import type {
  ContentBlockParam,
  ImageBlockParam,
  MessageCreateParamsStreaming,
  MessageParam,
  TextBlockParam,
  ToolResultBlockParam,
} from '@anthropic-ai/sdk/resources/messages';
import {
  type AssistantBlock,
  type AssistantMessage,
  type ContentBlock,
  isErrorOutcome,
  type ToolResultMessage,
  type UserMessage,
} from '../../core/message.ts';
import {
  imageNote,
  isRefusedText,
  wireId,
  wireImage,
  wireName,
  wireSchema,
} from '../acceptable.ts';
import { closedSchema } from '../answer-format.ts';
import type { ThinkingStyle } from '../catalog.ts';
import { type ModelRequest, THINKING_TOKENS, type ThinkingLevel } from '../provider.ts';
import type { WireRules } from '../wire-rules.ts';

/** The properties of a model that decide the form of a request. */
export interface ModelTraits {
  readonly thinking: ThinkingStyle;
  /** True if `tool_choice` may force a call. */
  readonly forcedTools: boolean;
  /** True if `output_config.format` makes an answer match a schema. */
  readonly structuredOutput: boolean;
}

/** The provider that is asked, and what it accepts. */
interface Receiver {
  readonly name: string;
  readonly wire: WireRules;
}

const EFFORT = { off: 'low', minimal: 'low', low: 'low', medium: 'medium', high: 'high' } as const;
const MIN_BUDGET_TOKENS = 1024;
const EPHEMERAL = { type: 'ephemeral' } as const;

/**
 * Traits of a Claude model by its id, for models that no configuration describes: 4.6 and newer think adaptively,
 * older ones by budget, and since the 5.x Fable and the 5.5 family thinking cannot be fully switched off.
 * An id that is no Claude's gets no thinking parameters at all.
 */
export function traitsOfId(model: string): ModelTraits {
  const match = /claude-(fable|mythos|opus|sonnet|haiku)-(\d+)(?:[-.](\d{1,2})(?!\d))?/.exec(model);
  if (match === null) return { thinking: 'none', forcedTools: true, structuredOutput: false };
  const [, family = '', major = '0', minor = '0'] = match;
  const version = Number(major) + Number(minor) / 100;
  const structuredOutput = version >= 4.05;
  if (family === 'fable' || family === 'mythos')
    return { thinking: 'always', forcedTools: version < 5.01, structuredOutput };
  if (family === 'opus' && version >= 5.05)
    return { thinking: 'always', forcedTools: false, structuredOutput };
  if (family === 'sonnet' && version >= 5.05)
    return { thinking: 'between_tools', forcedTools: false, structuredOutput };
  const thinking = version >= 4.06 ? 'adaptive' : 'budget';
  return { thinking, forcedTools: true, structuredOutput };
}

/**
 * The request body of one streamed call. Never sets a sampling parameter: models from
 * 4.7 on reject them. The result depends on nothing but the arguments, so equal prefixes stay byte-identical and
 * the prompt cache holds.
 */
export function buildRequest(
  request: ModelRequest,
  traits: ModelTraits,
  receiver: Receiver,
): MessageCreateParamsStreaming {
  const { output_schema: asked } = request;
  // the API takes a format beside tools, but only for schemas that its grammar can express
  const schema = asked && traits.structuredOutput ? closedSchema(asked) : undefined;
  const forced = request.tool_choice === 'any' || typeof request.tool_choice === 'object';
  const messages = toMessages(request, receiver);
  if (request.cache) markMessages(messages);
  // a forced call leaves no room for thinking; if it cannot be forced, thinking stays on
  const level = forced && traits.forcedTools ? 'off' : request.thinking;
  const isOpen = traits.thinking === 'budget' && hasUnthoughtCalls(messages);
  const { thinking, output_config: effort } = thinkingOf(
    request,
    level,
    isOpen ? 'none' : traits.thinking,
  );
  const format = schema && { type: 'json_schema' as const, schema: { ...schema } };
  const output = { ...effort, ...(format === undefined ? {} : { format }) };
  return {
    model: request.model,
    max_tokens: request.max_tokens,
    stream: true,
    messages,
    ...systemOf(request),
    ...toolsOf(request, traits, receiver.wire),
    ...(thinking === undefined ? {} : { thinking }),
    ...(Object.keys(output).length === 0 ? {} : { output_config: output }),
  };
}

/**
 * True if the results of calls are the news and the answer with the calls has no thinking of this model, as after a change of
 * the model: the API then refuses a budget for thinking, which an answer in a tool loop must have begun with.
 */
function hasUnthoughtCalls(messages: readonly MessageParam[]): boolean {
  const { content: news = [] } = messages.at(-1) ?? {};
  const { content: answer = [] } = messages.at(-2) ?? {};
  if (typeof news === 'string' || typeof answer === 'string') return false;
  const [first] = answer;
  const isThought = first?.type === 'thinking' || first?.type === 'redacted_thinking';
  return news.some(({ type }) => type === 'tool_result') && !isThought;
}

/** The text of a block that later requests repeat; blocks never change. */
const BLOCK_TEXTS = new WeakMap<ContentBlockParam, string>();

/**
 * The JSON of a request. Only what is new in a conversation is written: a request with 100 turns repeats 99 of them,
 * byte for byte.
 */
export function requestText({ messages, ...rest }: MessageCreateParamsStreaming): string {
  const head = JSON.stringify(rest);
  return `${head.slice(0, -1)},"messages":[${messages.map(messageText).join(',')}]}`;
}

function messageText({ role, content }: MessageParam): string {
  const text =
    typeof content === 'string' ? JSON.stringify(content) : `[${content.map(blockText).join(',')}]`;
  return `{"role":"${role}","content":${text}}`;
}

function blockText(block: ContentBlockParam): string {
  let text = BLOCK_TEXTS.get(block);
  if (text === undefined) {
    text = JSON.stringify(block);
    // a marked block is made for one request
    if (!('cache_control' in block)) BLOCK_TEXTS.set(block, text);
  }
  return text;
}

function systemOf({ system, cache }: ModelRequest): Pick<MessageCreateParamsStreaming, 'system'> {
  if (system.trim() === '') return {};
  return {
    system: [{ type: 'text', text: system, ...(cache ? { cache_control: EPHEMERAL } : {}) }],
  };
}

function toolsOf(
  { tools, tool_choice = 'auto', cache }: ModelRequest,
  { forcedTools }: ModelTraits,
  wire: WireRules,
): Pick<MessageCreateParamsStreaming, 'tools' | 'tool_choice'> {
  if (tools.length === 0) return {};
  const last = tools.length - 1;
  return {
    tools: tools.map(({ name, description, input_schema }, index) => ({
      name: wireName(name, wire),
      description,
      input_schema: wireSchema(input_schema, wire),
      ...(cache && index === last ? { cache_control: EPHEMERAL } : {}),
    })),
    ...choiceOf(tool_choice, forcedTools, wire),
  };
}

function choiceOf(
  choice: NonNullable<ModelRequest['tool_choice']>,
  forcedTools: boolean,
  wire: WireRules,
): Pick<MessageCreateParamsStreaming, 'tool_choice'> {
  if (choice === 'none') return { tool_choice: { type: 'none' } };
  if (choice === 'auto' || !forcedTools) return {};
  return {
    tool_choice:
      choice === 'any' ? { type: 'any' } : { type: 'tool', name: wireName(choice.name, wire) },
  };
}

type ThinkingParams = Pick<MessageCreateParamsStreaming, 'thinking' | 'output_config'>;

function thinkingOf(
  request: ModelRequest,
  level: ThinkingLevel,
  style: ThinkingStyle,
): ThinkingParams {
  // newer models keep thinking to themselves unless asked for a summary
  const adaptive = { type: 'adaptive', display: 'summarized' } as const;
  switch (style) {
    case 'always':
      return { thinking: adaptive, output_config: { effort: EFFORT[level] } };
    case 'adaptive':
      return level === 'off'
        ? { thinking: { type: 'disabled' } }
        : { thinking: adaptive, output_config: { effort: EFFORT[level] } };
    case 'between_tools':
      return level === 'off'
        ? { thinking: { type: 'between_tools' } }
        : { thinking: adaptive, output_config: { effort: EFFORT[level] } };
    case 'budget': {
      // the budget counts against max_tokens, and the answer needs its share
      const budget = Math.min(THINKING_TOKENS[level], Math.floor(request.max_tokens * 0.75));
      return budget < MIN_BUDGET_TOKENS
        ? {}
        : { thinking: { type: 'enabled', budget_tokens: budget } };
    }
    case 'none':
      break;
  }
  return {};
}

/** Our messages as alternating user and assistant turns; tool results come first in the user turn after their calls. */
function toMessages(
  { messages, model }: ModelRequest,
  { name: provider, wire }: Receiver,
): MessageParam[] {
  const made = madeFor(wire);
  const turns: {
    role: 'user' | 'assistant';
    results: ToolResultBlockParam[];
    content: ContentBlockParam[];
  }[] = [];
  const turnOf = (role: 'user' | 'assistant') => {
    const current = turns.at(-1);
    if (current?.role === role) return current;
    const next = { role, results: [], content: [] };
    turns.push(next);
    return next;
  };
  for (const message of messages) {
    if (message.role === 'tool_result') {
      const turn = turnOf('user');
      turn.results.push(made.result(message));
      turn.content.push(...made.images(message));
    } else if (message.role === 'user') {
      add(turnOf, 'user', made.asked(message));
    } else {
      const isOwn = message.provider === provider && isSameModel(message, model);
      add(turnOf, 'assistant', isOwn ? made.own(message) : made.foreign(message));
    }
  }
  return turns.map(({ role, results, content }) => ({
    role,
    content: results.length === 0 ? content : [...results, ...content],
  }));
}

/** Converted messages: messages never change, and a conversation sends all of them again with each turn. */
const MADE = new WeakMap<WireRules, ReturnType<typeof converters>>();

function madeFor(wire: WireRules): ReturnType<typeof converters> {
  const made = MADE.get(wire) ?? converters(wire);
  MADE.set(wire, made);
  return made;
}

function converters(wire: WireRules) {
  return {
    result: remembered((message: ToolResultMessage) => toToolResult(message, wire)),
    images: remembered((message: ToolResultMessage) => imagesOfError(message, wire)),
    asked: remembered(({ content }: UserMessage) => toContent(content, wire)),
    own: remembered(({ content }: AssistantMessage) =>
      content.flatMap((block) => toAssistantBlock(block, true, wire)),
    ),
    foreign: remembered(({ content }: AssistantMessage) =>
      content.flatMap((block) => toAssistantBlock(block, false, wire)),
    ),
  };
}

function remembered<K extends object, V>(make: (key: K) => V): (key: K) => V {
  const known = new WeakMap<K, V>();
  return (key) => {
    const value = known.get(key) ?? make(key);
    known.set(key, value);
    return value;
  };
}

function add(
  turnOf: (role: 'user' | 'assistant') => { content: ContentBlockParam[] },
  role: 'user' | 'assistant',
  blocks: readonly ContentBlockParam[],
): void {
  // an empty turn is refused by the API, and so it must not open one
  if (blocks.length > 0) turnOf(role).content.push(...blocks);
}

/** An alias and its dated id are one model: `claude-haiku-4-5` answers as `claude-haiku-4-5-20251001`. */
function isSameModel({ model }: AssistantMessage, requested: string): boolean {
  return (
    model === requested ||
    model.startsWith(`${requested}-20`) ||
    requested.startsWith(`${model}-20`)
  );
}

function toAssistantBlock(
  block: AssistantBlock,
  sameModel: boolean,
  wire: WireRules,
): ContentBlockParam[] {
  switch (block.type) {
    case 'text':
      return isRefusedText(block.text, wire) ? [] : [{ type: 'text', text: block.text }];
    case 'thinking':
      // signed for one model: another one rejects it, and an unsigned one is rejected by all
      if (!sameModel) return [];
      if (block.redacted) return [{ type: 'redacted_thinking', data: block.redacted }];
      if (!block.signature) return [];
      return [{ type: 'thinking', thinking: block.text, signature: block.signature }];
    case 'tool_call':
      break;
  }
  return [
    {
      type: 'tool_use',
      id: wireId(block.call_id, wire),
      name: wireName(block.name, wire),
      input: block.input,
    },
  ];
}

/** The API refuses anything but text in the result of a failed call; its images follow the results. */
function toToolResult(
  { call_id, content, outcome }: ToolResultMessage,
  wire: WireRules,
): ToolResultBlockParam {
  const blocks = toContent(content, wire);
  const result = { type: 'tool_result', tool_use_id: wireId(call_id, wire) } as const;
  if (!isErrorOutcome(outcome)) return { ...result, content: blocks };
  const texts = blocks.filter(({ type }) => type === 'text');
  const shown = texts.length > 0 ? texts : [{ type: 'text' as const, text: '(no text)' }];
  return { ...result, content: shown, is_error: true };
}

function imagesOfError(message: ToolResultMessage, wire: WireRules): readonly ContentBlockParam[] {
  const { name, call_id: callId, content, outcome } = message;
  const images = isErrorOutcome(outcome)
    ? toContent(content, wire).filter(({ type }) => type === 'image')
    : [];
  if (images.length === 0) return [];
  return [{ type: 'text', text: `Images of the result of ${name} (${callId}):` }, ...images];
}

function toContent(
  content: readonly ContentBlock[],
  wire: WireRules,
): (TextBlockParam | ImageBlockParam)[] {
  return content.flatMap((block): (TextBlockParam | ImageBlockParam)[] => {
    if (block.type === 'text')
      return isRefusedText(block.text, wire) ? [] : [{ type: 'text', text: block.text }];
    const image = wireImage(block, wire);
    if (image === undefined) return [{ type: 'text', text: imageNote(block) }];
    const { type: media_type, data } = image;
    return [{ type: 'image', source: { type: 'base64', media_type, data } }];
  });
}

/**
 * Marks the newest message, and the newest user turn before it: that is where the previous request wrote its cache
 * entry, so that a large batch in between cannot push it out of the server's look-back of 20 blocks.
 */
function markMessages(messages: readonly MessageParam[]): void {
  const newest = messages.length - 1;
  const previous = messages.findLastIndex(({ role }, index) => role === 'user' && index < newest);
  for (const index of [newest, previous]) {
    const content = messages[index]?.content;
    if (!Array.isArray(content)) continue;
    const marked = content.findLastIndex(
      ({ type }) => type !== 'thinking' && type !== 'redacted_thinking',
    );
    const block = content[marked];
    // the block itself is kept for later requests, in which it bears no mark
    if (block !== undefined) content[marked] = markedBlock(block);
  }
}

function markedBlock(block: ContentBlockParam): ContentBlockParam {
  return block.type === 'thinking' || block.type === 'redacted_thinking'
    ? block
    : { ...block, cache_control: EPHEMERAL };
}
