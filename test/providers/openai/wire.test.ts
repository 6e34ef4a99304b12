import { readFileSync } from 'node:fs';
import { describe, expect, onTestFinished, test } from 'vitest';
import type {
  AssistantMessage,
  Message,
  ToolResultMessage,
} from '../../../src/kernel/core/message.ts';
import { userText } from '../../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../../src/kernel/core/usage.ts';
import type { ModelConfig, ProviderConfig } from '../../../src/kernel/providers/catalog.ts';
import type { ModelRequest } from '../../../src/kernel/providers/provider.ts';
import { aRequest, collect, contentIn } from '../../../testing/conformance/provider.ts';
import { startChatServer } from '../../helpers/chat-server.ts';
import { CATALOG } from '../../helpers/shipped-rules.ts';
import { chatAt } from '../fixtures.ts';

const FOLDER = new URL('../../fixtures/wire/openai/', import.meta.url);

/** The configuration of the model of each recorded answer. */
function server(
  dialect: ProviderConfig['dialect'],
  model: string,
  more: Partial<ModelConfig> = {},
): { readonly name: string; readonly model: string; readonly config: Partial<ProviderConfig> } {
  const config: ModelConfig = {
    contextWindow: 100_000,
    maxOutputTokens: 10_000,
    pricing: null,
    capabilities: ['tools', 'images', 'forced_tools', 'structured_output'],
    ...more,
  };
  const { wire = {} } = CATALOG[dialect] ?? {};
  const models = { [model]: config };
  return { name: dialect, model, config: { name: dialect, dialect, models, wire } };
}

const SERVERS = [
  server('openai', 'gpt-6-sol'),
  server('openrouter', 'anthropic/claude-sonnet-5.5'),
  server('ollama', 'gpt-oss:20b', { thinking: 'always' }),
  server('vllm', 'Qwen/Qwen3-32B', { thinking: 'adaptive' }),
  server('llamacpp', 'gpt-oss-20b-mxfp4', {
    thinking: 'adaptive',
    capabilities: ['tools', 'forced_tools'],
  }),
  server('azure', 'gpt-6-sol'),
  server('gemini', 'gemini-3.8-flash', { thinking: 'always' }),
  server('groq', 'openai/gpt-oss-120b', { capabilities: ['tools', 'forced_tools'] }),
  server('lmstudio', 'openai/gpt-oss-20b', { capabilities: ['tools'] }),
  server('mistral', 'mistral-large-4', { thinking: 'always' }),
];

const IMAGE = { type: 'image', media_type: 'image/png', data: 'iVBORw0KGgo=' } as const;

function result(call_id: string, name: string, more: Partial<ToolResultMessage>): Message {
  return { role: 'tool_result', call_id, name, content: [], outcome: 'ok', ...more };
}

/** The results of the two calls that every recorded answer makes, then a word of the user. */
function followUp({ content }: AssistantMessage): readonly Message[] {
  const ids = content.flatMap((block) => (block.type === 'tool_call' ? [block.call_id] : []));
  const [first = '', second = ''] = ids;
  return [
    result(first, 'rye_file_system_ls', { content: [{ type: 'text', text: 'ä.ts' }, IMAGE] }),
    result(second, 'rye_file_system_glob', {
      outcome: 'error',
      content: [{ type: 'text', text: 'no pattern' }],
    }),
    userText('Go on.'),
  ];
}

describe.each(SERVERS)('the whole wire of $name', ({ name, model, config }) => {
  test('what is sent first, and after the recorded answer, is as recorded', async () => {
    const wire = await startChatServer(
      [{ pieces: [readFileSync(new URL(`${name}.sse`, FOLDER))] }, { steps: [] }],
      name,
    );
    onTestFinished(() => wire.close());
    const provider = chatAt(wire.url, config);
    const request: ModelRequest = aRequest({
      model,
      thinking: 'medium',
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Größe?' }, IMAGE] }],
      tools: [
        {
          name: 'rye_file_system_ls',
          description: 'Lists a folder.',
          input_schema: {
            type: 'object',
            properties: { path: { type: 'string' }, depth: { type: 'integer' } },
            required: ['path'],
          },
        },
        {
          name: 'rye_file_system_glob',
          description: 'Finds files.',
          input_schema: { type: 'object', properties: {} },
        },
      ],
    });
    const answer: AssistantMessage = {
      role: 'assistant',
      content: contentIn(await collect(provider, request)),
      provider: provider.name,
      model,
      stop_reason: 'tool_calls',
      usage: NO_USAGE,
    };
    const messages = [...request.messages, answer, ...followUp(answer)];
    await collect(provider, { ...request, messages });
    const sent = wire.requests.map(({ path, headers, body }) => ({
      path,
      content_type: headers['content-type'],
      accept: headers.accept,
      body,
    }));
    const recorded = new URL(`${name}.requests.json`, FOLDER);
    await expect(`${JSON.stringify(sent, null, 1)}\n`).toMatchFileSnapshot(recorded.pathname);
  });
});
