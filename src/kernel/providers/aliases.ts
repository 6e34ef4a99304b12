import type { AssistantBlock, Message } from '../core/message.ts';
import type { ModelEvent, ModelProvider, ModelRequest } from './provider.ts';

/**
 * Wraps a provider whose model knows tools by other names: `aliases` maps wire names to them. Only requests hold them;
 * answers have the wire names again, so that a record holds no alias and a changed one breaks no history.
 */
export function withAliases(
  provider: ModelProvider,
  aliases: ReadonlyMap<string, string>,
): ModelProvider {
  if (aliases.size === 0) return provider;
  const names = new Map([...aliases].map(([name, alias]) => [alias, name]));
  const outward = (name: string): string => aliases.get(name) ?? name;
  const inward = (name: string): string => names.get(name) ?? name;
  return {
    ...provider,
    stream: (request, signal) =>
      renamed(provider.stream(outgoing(request, outward), signal), inward),
  };
}

type Rename = (name: string) => string;

function outgoing(request: ModelRequest, rename: Rename): ModelRequest {
  const { tools, messages, tool_choice: choice } = request;
  return {
    ...request,
    tools: tools.map((tool) => ({ ...tool, name: rename(tool.name) })),
    messages: messages.map((message) => renamedMessage(message, rename)),
    ...(typeof choice === 'object' ? { tool_choice: { name: rename(choice.name) } } : {}),
  };
}

function renamedMessage(message: Message, rename: Rename): Message {
  if (message.role === 'user') return message;
  if (message.role === 'tool_result') return { ...message, name: rename(message.name) };
  return { ...message, content: renamedBlocks(message.content, rename) };
}

function renamedBlocks(
  content: readonly AssistantBlock[],
  rename: Rename,
): readonly AssistantBlock[] {
  return content.map((block) =>
    block.type === 'tool_call' ? { ...block, name: rename(block.name) } : block,
  );
}

async function* renamed(
  events: AsyncIterable<ModelEvent>,
  rename: Rename,
): AsyncGenerator<ModelEvent> {
  for await (const event of events) {
    if (event.type === 'toolcall_start') yield { ...event, name: rename(event.name) };
    else if (event.type === 'finish') {
      yield { ...event, content: renamedBlocks(event.content, rename) };
    } else yield event;
  }
}
