import type { EventDraft } from '../../kernel/core/events.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../../kernel/core/json.ts';
import type {
  AssistantBlock,
  AssistantMessage,
  ContentBlock,
  StopReason,
  ToolCallBlock,
} from '../../kernel/core/message.ts';
import type { Usage } from '../../kernel/core/usage.ts';

/** The entry that a pi message becomes; undefined where its shape is not pi's. */
export function messageDraft(message: JsonObject): EventDraft | undefined {
  return BY_ROLE.get(message['role'])?.(message);
}

const BY_ROLE: ReadonlyMap<unknown, (message: JsonObject) => EventDraft | undefined> = new Map([
  ['user', ({ content }: JsonObject) => userDraft(content)],
  ['assistant', assistantDraft],
  ['toolResult', resultDraft],
  ['bashExecution', bashDraft],
  ['custom', customMessageDraft],
  // its name in version 2
  ['hookMessage', customMessageDraft],
]);

/** Text of an extension; its images follow it. */
export function customMessageDraft(value: JsonObject): EventDraft | undefined {
  const content = contentOf(value['content']);
  const { customType } = value;
  if (!content || typeof customType !== 'string') return undefined;
  const images = content.filter((block) => block.type === 'image');
  const text = content.flatMap((block) => (block.type === 'text' ? [block.text] : []));
  const { details, display } = value;
  return {
    event_type: 'custom_message',
    payload: {
      custom_type: customType,
      content: text.join('\n'),
      ...(images.length === 0 ? {} : { images }),
      display: display !== false,
      ...(isJsonObject(details) ? { details } : {}),
    },
  };
}

/** Text and image blocks; a plain text is one block. Undefined where a block is neither. */
export function contentOf(content: JsonValue | undefined): readonly ContentBlock[] | undefined {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  if (!Array.isArray(content)) return undefined;
  const blocks = content.map(contentBlock);
  return blocks.every((block) => block !== undefined) ? blocks : undefined;
}

function contentBlock(block: JsonValue): ContentBlock | undefined {
  if (!isJsonObject(block)) return undefined;
  const { type, text, data, mimeType } = block;
  if (type === 'text' && typeof text === 'string') return { type, text };
  return type === 'image' && typeof data === 'string' && typeof mimeType === 'string'
    ? { type, media_type: mimeType, data }
    : undefined;
}

function userDraft(value: JsonValue | undefined): EventDraft | undefined {
  const content = contentOf(value);
  return content && { event_type: 'message', payload: { message: { role: 'user', content } } };
}

const STOP_REASONS: Readonly<Record<string, StopReason>> = {
  stop: 'end',
  length: 'max_tokens',
  toolUse: 'tool_calls',
  error: 'aborted',
  aborted: 'aborted',
};

function assistantDraft(value: JsonObject): EventDraft | undefined {
  const { content, provider, model, stopReason } = value;
  if (!Array.isArray(content)) return undefined;
  const blocks = content.map(answerBlock);
  if (!blocks.every((block) => block !== undefined)) return undefined;
  const message: AssistantMessage = {
    role: 'assistant',
    content: blocks,
    provider: typeof provider === 'string' ? provider : 'unknown',
    model: typeof model === 'string' ? model : 'unknown',
    stop_reason: (typeof stopReason === 'string' ? STOP_REASONS[stopReason] : undefined) ?? 'end',
    usage: usageOf(value['usage']),
  };
  return { event_type: 'message', payload: { message } };
}

function answerBlock(block: JsonValue): AssistantBlock | undefined {
  if (!isJsonObject(block)) return undefined;
  const { type, text, thinking } = block;
  if (type === 'text' && typeof text === 'string') return { type, text };
  if (type === 'toolCall') return toolCall(block);
  return type === 'thinking' && typeof thinking === 'string'
    ? { type, text: thinking, ...signatureOf(block) }
    : undefined;
}

/** pi keeps what a provider redacted in the place of the signature. */
function signatureOf({ thinkingSignature: signature, redacted }: JsonObject) {
  if (typeof signature !== 'string') return {};
  return redacted === true ? { redacted: signature } : { signature };
}

function toolCall({ id, name, arguments: input }: JsonObject): ToolCallBlock | undefined {
  if (typeof id !== 'string' || typeof name !== 'string') return undefined;
  const call = { type: 'tool_call', call_id: id, name } as const;
  return isJsonObject(input)
    ? { ...call, input }
    : { ...call, input: {}, malformed: JSON.stringify(input ?? null) };
}

function usageOf(usage: JsonValue | undefined): Usage {
  const counts = isJsonObject(usage) ? usage : {};
  return {
    input_tokens: count(counts['input']),
    output_tokens: count(counts['output']),
    cache_read_tokens: count(counts['cacheRead']),
    cache_write_tokens: count(counts['cacheWrite']),
  };
}

function count(value: JsonValue | undefined): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : 0;
}

function resultDraft(value: JsonObject): EventDraft | undefined {
  const { toolCallId, toolName, isError } = value;
  const content = contentOf(value['content']);
  if (!content || typeof toolCallId !== 'string') return undefined;
  return {
    event_type: 'message',
    payload: {
      message: {
        role: 'tool_result',
        call_id: toolCallId,
        name: typeof toolName === 'string' ? toolName : 'unknown',
        content,
        outcome: isError === true ? 'error' : 'ok',
      },
    },
  };
}

/** A command that a person ran: told to the model in pi's words, unless they kept it from it. */
function bashDraft(value: JsonObject): EventDraft | undefined {
  const { command, output } = value;
  if (typeof command !== 'string' || typeof output !== 'string') return undefined;
  if (value['excludeFromContext'] === true) {
    const data = { command };
    return { event_type: 'custom', payload: { custom_type: 'pi/bashExecution', data } };
  }
  const content = `Ran \`${command}\`\n${output === '' ? '(no output)' : `\`\`\`\n${output}\n\`\`\``}${bashEnd(value)}`;
  return {
    event_type: 'custom_message',
    payload: { custom_type: 'pi/bashExecution', content, display: true },
  };
}

function bashEnd({ cancelled, exitCode, truncated, fullOutputPath }: JsonObject): string {
  const end =
    cancelled === true
      ? '\n\n(command cancelled)'
      : typeof exitCode === 'number' && exitCode !== 0
        ? `\n\nCommand exited with code ${exitCode}`
        : '';
  const cut =
    truncated === true && typeof fullOutputPath === 'string'
      ? `\n\n[Output truncated. Full output: ${fullOutputPath}]`
      : '';
  return end + cut;
}
