import type {
  ChatCompletionContentPart,
  ChatCompletionContentPartText,
  ChatCompletionMessageParam,
  ChatCompletionMessageToolCall,
} from 'openai/resources/chat/completions';
import { parseJson } from '../../core/json.ts';
import {
  type AssistantBlock,
  type AssistantMessage,
  type ContentBlock,
  type Message,
  type ToolCallBlock,
  type ToolResultMessage,
  textOf,
} from '../../core/message.ts';
import { imageNote, isRefusedText, wireId, wireImage, wireName } from '../acceptable.ts';
import type { WireRules } from '../wire-rules.ts';
import { callAsText, resultAsText } from './answer-text.ts';
import { CallExtras, type DialectTraits, FOREIGN_CALL } from './dialect.ts';

/** The options that the wire form of messages depends on. */
export interface MessageTraits {
  readonly dialect: DialectTraits;
  readonly wire: WireRules;
  readonly images: boolean;
  /** `false`: calls and their results are written as text. */
  readonly nativeTools: boolean;
  /** True for answers of the model that is asked now: only it takes its own reasoning back. */
  readonly isOwn: (message: AssistantMessage) => boolean;
}

/**
 * Our messages in the wire's form. The results of an answer directly follow it, as servers demand; images of
 * results follow in a user message, since a result takes only text. A pure function of each message and
 * its place, so that a longer conversation begins with the same bytes.
 */
export function wireMessages(
  messages: readonly Message[],
  traits: MessageTraits,
): ChatCompletionMessageParam[] {
  const wire: ChatCompletionMessageParam[] = [];
  for (const { answer, results, users } of groups(messages)) {
    if (answer) wire.push(...assistantMessage(answer, traits));
    wire.push(
      ...(traits.nativeTools
        ? results.map((result) => toolMessage(result, traits))
        : textResults(results, traits.wire)),
    );
    const shown = results.flatMap((result) => imageParts(result, traits));
    const isFollowed = shown.length > 0 || users.length > 0;
    const isBridged = traits.wire.afterResults === 'assistant' && traits.nativeTools;
    if (isBridged && results.length > 0 && isFollowed) wire.push(BRIDGE);
    if (shown.length > 0) wire.push({ role: 'user', content: shown });
    for (const content of users) {
      const parts = content.flatMap((block) => part(block, traits));
      if (parts.length > 0) wire.push({ role: 'user', content: plainWherePossible(parts) });
    }
  }
  return wire;
}

/** Separates a result from a message of the user, which some servers refuse to take directly. */
const BRIDGE: ChatCompletionMessageParam = { role: 'assistant', content: 'Understood.' };

interface Group {
  readonly answer: AssistantMessage | undefined;
  readonly results: ToolResultMessage[];
  readonly users: (readonly ContentBlock[])[];
}

/** An answer with everything up to the next one. */
function groups(messages: readonly Message[]): readonly Group[] {
  const all: Group[] = [{ answer: undefined, results: [], users: [] }];
  for (const message of messages) {
    const current = all.at(-1);
    if (message.role === 'assistant') all.push({ answer: message, results: [], users: [] });
    else if (message.role === 'user') current?.users.push(message.content);
    else current?.results.push(message);
  }
  return all;
}

function assistantMessage(
  message: AssistantMessage,
  traits: MessageTraits,
): ChatCompletionMessageParam[] {
  const { content } = message;
  const calls = content.filter((block) => block.type === 'tool_call');
  const text = traits.nativeTools ? textOf(content) : content.map(asText).join('');
  const isBlank = isRefusedText(text, traits.wire);
  if (text.trim() === '' && calls.length === 0) return [];
  const isOwn = traits.isOwn(message);
  const wireCalls = calls.map(
    ({ call_id, name, input }): ChatCompletionMessageToolCall => ({
      id: wireId(call_id, traits.wire),
      type: 'function',
      // what was malformed is not repeated: servers parse the arguments of earlier calls
      function: { name: wireName(name, traits.wire), arguments: JSON.stringify(input) },
    }),
  );
  const hasCalls = traits.nativeTools && calls.length > 0;
  return [
    {
      role: 'assistant',
      content: isBlank ? null : text,
      ...(hasCalls ? { tool_calls: withExtras(wireCalls, calls, message, traits) } : {}),
      ...(isOwn ? reasoningMembers(content, isBlank ? '' : text, traits.dialect) : {}),
    },
  ];
}

/** Returns the calls with what the server wants back with each of them. */
function withExtras(
  wireCalls: readonly ChatCompletionMessageToolCall[],
  calls: readonly ToolCallBlock[],
  message: AssistantMessage,
  { dialect, isOwn }: MessageTraits,
): ChatCompletionMessageToolCall[] {
  if (dialect.reasoningBack !== 'extra_content') return [...wireCalls];
  const known = isOwn(message) ? CallExtras.parse(signatureIn(message)) : {};
  // the first call of an answer needs a signature
  return wireCalls.map((call, index) => {
    const extra = known[calls[index]?.call_id ?? ''] ?? (index === 0 ? FOREIGN_CALL : undefined);
    return extra === undefined ? call : { ...call, extra_content: extra };
  });
}

function signatureIn({ content }: AssistantMessage): string | undefined {
  const signed = content.find((block) => block.type === 'thinking' && block.signature);
  return signed?.type === 'thinking' ? signed.signature : undefined;
}

function asText(block: AssistantBlock): string {
  if (block.type === 'text') return block.text;
  return block.type === 'tool_call' ? callAsText(block) : '';
}

/** Returns the reasoning of an answer in the member that this server expects. */
function reasoningMembers(
  content: readonly AssistantBlock[],
  spoken: string,
  { reasoningBack }: DialectTraits,
): Readonly<Record<string, unknown>> {
  const thoughts = content.filter((block) => block.type === 'thinking');
  if (reasoningBack === null || reasoningBack === 'extra_content' || thoughts.length === 0) {
    return {};
  }
  if (reasoningBack === 'reasoning_details') {
    const details = thoughts.flatMap(({ signature }) => {
      const list = signature === undefined ? undefined : parseJson(signature);
      return Array.isArray(list) ? list : [];
    });
    return details.length === 0 ? {} : { reasoning_details: details };
  }
  const text = thoughts.map((thought) => thought.text).join('');
  if (text === '') return {};
  if (reasoningBack !== 'content') return { [reasoningBack]: text };
  const thinking = { type: 'thinking', thinking: [{ type: 'text', text }] };
  return { content: spoken === '' ? [thinking] : [thinking, { type: 'text', text: spoken }] };
}

function toolMessage(
  { call_id, content }: ToolResultMessage,
  { wire }: MessageTraits,
): ChatCompletionMessageParam {
  return {
    role: 'tool',
    tool_call_id: wireId(call_id, wire),
    content: resultText(content, wire),
  };
}

function textResults(
  results: readonly ToolResultMessage[],
  wire: WireRules,
): ChatCompletionMessageParam[] {
  if (results.length === 0) return [];
  const content = results.map((result) => resultAsText(result, resultText(result.content, wire)));
  return [{ role: 'user', content: content.join('\n') }];
}

function resultText(content: readonly ContentBlock[], wire: WireRules): string {
  const texts = content.map((block) => (block.type === 'text' ? block.text : imageNote(block)));
  const text = texts.filter((one) => one !== '').join('\n');
  return isRefusedText(text, wire) ? '(no output)' : text;
}

function imageParts(
  { name, call_id, content }: ToolResultMessage,
  traits: MessageTraits,
): ChatCompletionContentPart[] {
  const images = content.filter(({ type }) => type === 'image');
  if (!traits.images || images.length === 0) return [];
  const label = `Images of the result of ${name} (${call_id}):`;
  return [{ type: 'text', text: label }, ...images.flatMap((image) => part(image, traits))];
}

function part(block: ContentBlock, { images, wire }: MessageTraits): ChatCompletionContentPart[] {
  if (block.type === 'text')
    return isRefusedText(block.text, wire) ? [] : [{ type: 'text', text: block.text }];
  const image = images ? wireImage(block, wire) : undefined;
  if (image === undefined) return [{ type: 'text', text: imageNote(block) }];
  const url = `data:${image.type};base64,${image.data}`;
  return [{ type: 'image_url', image_url: { url } }];
}

/** Some servers know content only as a string. */
function plainWherePossible(
  parts: readonly ChatCompletionContentPart[],
): string | ChatCompletionContentPart[] {
  const texts = parts.filter((one): one is ChatCompletionContentPartText => one.type === 'text');
  return texts.length === parts.length ? texts.map(({ text }) => text).join('\n\n') : [...parts];
}
