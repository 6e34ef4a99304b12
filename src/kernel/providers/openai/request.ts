import type {
  ChatCompletionCreateParamsStreaming,
  ChatCompletionMessageParam,
  ChatCompletionTool,
} from 'openai/resources/chat/completions';
import type { JsonObject } from '../../core/json.ts';
import { DIRECTIVE_RETURN } from '../../core/return-schema.ts';
import { wireName, wireSchema } from '../acceptable.ts';
import { isStrictSchema } from '../answer-format.ts';
import type { Dialect, ModelCapability, ThinkingStyle } from '../catalog.ts';
import type { ModelRequest } from '../provider.ts';
import type { WireRules } from '../wire-rules.ts';
import { textToolsPrompt } from './answer-text.ts';
import { DIALECT_TRAITS, styleOfId, thinkingMembers } from './dialect.ts';
import { wireMessages } from './messages.ts';

/** The properties of a model and its server that decide the form of a request. */
export interface ModelTraits {
  readonly provider: string;
  readonly dialect: Dialect;
  readonly capabilities: readonly ModelCapability[];
  /** Absent: decided by the model's id. */
  readonly thinking?: ThinkingStyle;
  readonly wire: WireRules;
}

/** The body, with the members of servers that the SDK has no types for. */
type WireRequest = ChatCompletionCreateParamsStreaming & Readonly<Record<string, unknown>>;

/**
 * The request body of one streamed call of chat completions. It sets no sampling parameter, since reasoning models
 * refuse them, and depends on nothing but the arguments, so that equal prefixes stay byte-identical.
 */
export function buildRequest(request: ModelRequest, traits: ModelTraits): WireRequest {
  const { model, output_schema: schema } = request;
  const dialect = DIALECT_TRAITS[traits.dialect];
  const can = (capability: ModelCapability): boolean => traits.capabilities.includes(capability);
  const isFormatted =
    can('structured_output') && (dialect.formatBesideTools || asksResult(request));
  const isNative = schema !== undefined && isFormatted;
  const { tool_choice: _choice, ...withoutChoice } = request;
  const asked = isNative && !dialect.formatBesideTools ? { ...withoutChoice, tools: [] } : request;
  const nativeTools = can('tools');
  const messages = wireMessages(asked.messages, {
    dialect,
    wire: traits.wire,
    images: can('images'),
    nativeTools,
    isOwn: (message) => message.provider === traits.provider && message.model === model,
  });
  const system = nativeTools ? asked.system : withTextTools(asked);
  if (system.trim() !== '') messages.unshift({ role: 'system', content: system });
  if (request.cache && dialect.cacheMarks) markMessages(messages);
  const style = traits.thinking ?? styleOfId(model, traits.dialect);
  return {
    model,
    messages,
    stream: true,
    // without it most servers report no usage of a stream
    ...(dialect.usageOption ? { stream_options: { include_usage: true } } : {}),
    [dialect.maxTokens]: request.max_tokens,
    ...(nativeTools ? toolMembers(asked, can('forced_tools'), traits) : {}),
    ...(isNative ? { response_format: responseFormat(schema) } : {}),
    ...thinkingMembers(request.thinking, { style, model }, dialect),
  };
}

/** True if the model can do nothing but return: a format then takes the place of the tools. */
function asksResult({ tools, tool_choice: choice }: ModelRequest): boolean {
  const isForced = typeof choice === 'object' && choice.name === DIRECTIVE_RETURN;
  return isForced || tools.every(({ name }) => name === DIRECTIVE_RETURN);
}

function withTextTools({ system, tools, tool_choice }: ModelRequest): string {
  if (tools.length === 0 || tool_choice === 'none') return system;
  return [system, textToolsPrompt(tools)].filter((part) => part.trim() !== '').join('\n\n');
}

function toolMembers(
  { tools, tool_choice: choice = 'auto' }: ModelRequest,
  canForce: boolean,
  { dialect, wire }: ModelTraits,
): Pick<ChatCompletionCreateParamsStreaming, 'tools' | 'tool_choice'> {
  if (tools.length === 0) return {};
  const { force } = DIALECT_TRAITS[dialect];
  const functions = tools.map(
    ({ name, description, input_schema }): ChatCompletionTool => ({
      type: 'function',
      function: {
        name: wireName(name, wire),
        description,
        parameters: wireSchema(input_schema, wire),
      },
    }),
  );
  if (choice === 'none') return { tools: functions, tool_choice: 'none' };
  if (choice === 'auto' || !canForce) return { tools: functions };
  if (choice === 'any' || !force.byName) {
    // `any` is Mistral's word, which the SDK has no type for
    return { tools: functions, tool_choice: force.any as 'required' };
  }
  return {
    tools: functions,
    tool_choice: { type: 'function', function: { name: wireName(choice.name, wire) } },
  };
}

function responseFormat(
  schema: JsonObject,
): NonNullable<ChatCompletionCreateParamsStreaming['response_format']> {
  return {
    type: 'json_schema',
    json_schema: { name: 'output', schema: { ...schema }, strict: isStrictSchema(schema) },
  };
}

/**
 * Marks the system text, the newest message and the newest message of the previous request. Every text becomes a list of parts, marked
 * or not, so that a mark that moves on leaves the bytes before it as they were.
 */
function markMessages(messages: ChatCompletionMessageParam[]): void {
  const newest = messages.length - 1;
  // the last message of the request before, whose end the server has in its cache
  const previous = messages.findLastIndex(({ role }) => role === 'assistant') - 1;
  for (const [index, message] of messages.entries()) {
    const isMarked = index === 0 || index === previous || index === newest;
    messages[index] = inParts(message, isMarked);
  }
}

/** The mark goes to the last text: on other parts it is not read everywhere. */
function inParts(
  message: ChatCompletionMessageParam,
  isMarked: boolean,
): ChatCompletionMessageParam {
  const { content } = message;
  const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);
  if (parts.length === 0) return message;
  const at = isMarked ? parts.findLastIndex(({ type }) => type === 'text') : -1;
  const marked = parts.map((part, index) =>
    index === at ? { ...part, cache_control: { type: 'ephemeral' } } : part,
  );
  return { ...message, content: marked } as ChatCompletionMessageParam;
}
