import { describe, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import {
  type AssistantMessage,
  type Message,
  type ToolResultMessage,
  userText,
} from '../../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../../src/kernel/core/usage.ts';
import { wireName } from '../../../src/kernel/providers/acceptable.ts';
import { CAPABILITIES, type Dialect } from '../../../src/kernel/providers/catalog.ts';
import { DIALECT_TRAITS } from '../../../src/kernel/providers/openai/dialect.ts';
import { buildRequest, type ModelTraits } from '../../../src/kernel/providers/openai/request.ts';
import { THINKING_LEVELS } from '../../../src/kernel/providers/provider.ts';
import { aRequest } from '../../../testing/conformance/provider.ts';
import { type ChatBody, checkChatRequest } from '../../helpers/chat-rules.ts';
import { shippedRules } from '../../helpers/shipped-rules.ts';

const DIALECTS = Object.keys(DIALECT_TRAITS) as readonly Dialect[];
const WIRE = shippedRules('openai');
const TRAITS: ModelTraits = {
  provider: 'openai',
  dialect: 'openai',
  capabilities: CAPABILITIES,
  wire: WIRE,
};
const MODEL = 'gpt-6-sol';

function built(request: Parameters<typeof aRequest>[0] = {}, traits: Partial<ModelTraits> = {}) {
  const body = buildRequest(aRequest({ model: MODEL, ...request }), {
    ...TRAITS,
    wire: shippedRules(traits.dialect ?? 'openai'),
    ...traits,
  });
  const plain = JSON.parse(JSON.stringify(body)) as ChatBody;
  expect(checkChatRequest(plain, traits.dialect)).toEqual([]);
  return plain;
}

function answers(...content: AssistantMessage['content']): AssistantMessage {
  const reason = content.some(({ type }) => type === 'tool_call') ? 'tool_calls' : 'end';
  return {
    role: 'assistant',
    content,
    provider: 'openai',
    model: MODEL,
    stop_reason: reason,
    usage: NO_USAGE,
  };
}

function call(call_id: string, name = 'rye_first') {
  return { type: 'tool_call', call_id, name, input: { b: 1, a: [2] } } as const;
}

function result(call_id: string, content: ToolResultMessage['content']): ToolResultMessage {
  return { role: 'tool_result', call_id, name: 'rye_first', content, outcome: 'ok' };
}

const IMAGE = { type: 'image', media_type: 'image/png', data: 'iVBORw0KGgo=' } as const;
const TEXT = { type: 'text', text: 'fine' } as const;

describe('messages', () => {
  // Requirement: images-after-results
  test('results follow their answer at once, images and other text come after them', () => {
    const messages: Message[] = [
      userText('go'),
      answers({ type: 'text', text: 'Look.' }, call('x'), call('y')),
      userText('by the way'),
      result('x', [TEXT, IMAGE]),
      result('y', []),
    ];
    expect(built({ messages }).messages.slice(1)).toEqual([
      { role: 'user', content: 'go' },
      {
        role: 'assistant',
        content: 'Look.',
        tool_calls: [call('x'), call('y')].map(({ call_id }) => ({
          id: call_id,
          type: 'function',
          function: { name: 'rye_first', arguments: '{"b":1,"a":[2]}' },
        })),
      },
      { role: 'tool', tool_call_id: 'x', content: 'fine\n[an image of the type image/png]' },
      { role: 'tool', tool_call_id: 'y', content: '(no output)' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Images of the result of rye_first (x):' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
        ],
      },
      { role: 'user', content: 'by the way' },
    ]);
  });

  // Requirement: image-marker, marker-at-request
  test('a model without images reads that an image exists', () => {
    const messages: Message[] = [
      { role: 'user', content: [TEXT, IMAGE] },
      answers(call('x')),
      result('x', [IMAGE]),
    ];
    const { messages: wire } = built({ messages }, { capabilities: ['tools'] });
    expect(JSON.stringify(wire)).not.toContain('image_url');
    expect(wire[1]?.content).toBe('fine\n\n[an image of the type image/png]');
  });

  test('a malformed call goes back without its text, which no server could parse', () => {
    const messages = [
      userText('go'),
      answers({ ...call('x'), input: {}, malformed: '{"a"' }),
      result('x', [TEXT]),
    ];
    expect(built({ messages }).messages[2]?.tool_calls?.[0]?.function.arguments).toBe('{}');
  });

  test.each([
    ['openrouter', { reasoning_details: [{ type: 'reasoning.text', index: 0 }] }],
    ['vllm', { reasoning_content: 'hm' }],
    ['llamacpp', { reasoning_content: 'hm' }],
    ['ollama', { reasoning: 'hm' }],
    ['openai', {}],
    ['compatible', {}],
  ] as const)('%s gets its own reasoning back where it wants it', (dialect, members) => {
    const signature = '[{"type":"reasoning.text","index":0}]';
    const own = answers({ type: 'thinking', text: 'hm', signature }, { type: 'text', text: 'a' });
    const reasoning = (message: AssistantMessage): JsonObject => {
      const wire = built({ messages: [userText('go'), message, userText('on')] }, { dialect })
        .messages[2];
      const { role: _role, content: _content, ...rest } = wire as unknown as JsonObject;
      return rest;
    };
    expect(reasoning(own)).toEqual(members);
    expect(reasoning({ ...own, model: 'another' })).toEqual({});
  });

  test('long names of tools are cut alike in definitions, calls and choices', () => {
    const name = `rye_${'deep_'.repeat(20)}end`;
    const body = built({
      tools: [{ name, description: '', input_schema: {} }],
      messages: [userText('go'), answers(call('x', name)), result('x', [TEXT])],
      tool_choice: { name },
    });
    const short = wireName(name, WIRE);
    expect(short).toHaveLength(64);
    expect(body.tools?.[0]?.function.name).toBe(short);
    expect(body.messages[2]?.tool_calls?.[0]?.function.name).toBe(short);
    expect(body.tool_choice).toEqual({ type: 'function', function: { name: short } });
    expect(wireName(`${name}x`, WIRE)).not.toBe(short);
  });
});

describe('members', () => {
  // Requirement: usage-not-requested
  test('what every request has', () => {
    expect(built()).toMatchObject({
      model: MODEL,
      stream: true,
      stream_options: { include_usage: true },
      max_completion_tokens: 1000,
    });
    expect(built({}, { dialect: 'vllm' })).toMatchObject({ max_tokens: 1000 });
    for (const member of ['temperature', 'top_p', 'tool_choice', 'response_format'])
      expect(built()).not.toHaveProperty(member);
  });

  test.each([
    ['any', 'required'],
    ['none', 'none'],
    ['auto', undefined],
  ] as const)('tool_choice %s', (choice, wire) => {
    expect(built({ tool_choice: choice }).tool_choice).toEqual(wire);
  });

  test('a call is not forced where the model cannot be', () => {
    expect(built({ tool_choice: 'any' }, { capabilities: ['tools'] }).tool_choice).toBeUndefined();
  });

  test.each([
    ['openai', 'gpt-6-sol', 'off', { reasoning_effort: 'none' }],
    ['openai', 'gpt-6-sol', 'high', { reasoning_effort: 'high' }],
    ['openai', 'gpt-5-mini', 'off', { reasoning_effort: 'low' }],
    ['openai', 'o4-mini', 'minimal', { reasoning_effort: 'minimal' }],
    ['openai', 'gpt-4o', 'high', {}],
    ['openrouter', 'x/y', 'off', { reasoning: { enabled: false } }],
    ['openrouter', 'x/y', 'low', { reasoning: { effort: 'low' } }],
    ['ollama', 'qwen3:8b', 'high', {}],
    ['compatible', 'm', 'high', {}],
  ] as const)('%s thinks with %s at %s', (dialect, model, thinking, members) => {
    const { reasoning_effort, reasoning, chat_template_kwargs } = built(
      { model, thinking },
      { dialect },
    );
    const sent = JSON.stringify({ reasoning_effort, reasoning, chat_template_kwargs });
    expect(JSON.parse(sent)).toEqual(members);
  });

  test.each([
    ['ollama', { reasoning_effort: 'medium' }],
    ['vllm', { chat_template_kwargs: { enable_thinking: true, reasoning_effort: 'medium' } }],
    ['llamacpp', { chat_template_kwargs: { enable_thinking: true, reasoning_effort: 'medium' } }],
  ] as const)('%s thinks if the configuration allows it for the model', (dialect, members) => {
    expect(built({ thinking: 'medium' }, { dialect, thinking: 'adaptive' })).toMatchObject(members);
  });

  const STRICT: JsonObject = {
    type: 'object',
    properties: { n: { type: 'integer' } },
    required: ['n'],
    additionalProperties: false,
  };

  test('a schema is asked for natively, strictly where the schema allows it', () => {
    const format = (schema: JsonObject) => built({ output_schema: schema }).response_format;
    expect(format(STRICT)).toEqual({
      type: 'json_schema',
      json_schema: { name: 'output', schema: STRICT, strict: true },
    });
    const loose = { type: 'object', properties: { n: { type: 'integer' } } };
    expect(format(loose)).toMatchObject({ json_schema: { strict: false } });
    expect(format({ ...STRICT, properties: { n: loose } })).toMatchObject({
      json_schema: { strict: false },
    });
  });

  test('a model that cannot hold a schema gets none', () => {
    const body = built({ output_schema: STRICT }, { capabilities: ['tools', 'forced_tools'] });
    expect(body.response_format).toBeUndefined();
  });

  test('a server that takes no format beside tools gets it in place of the return', () => {
    const dialect = 'ollama';
    const returning = { name: 'rye_directive_return', description: '', input_schema: STRICT };
    const reading = { name: 'rye_read', description: '', input_schema: STRICT };
    const request = { output_schema: STRICT, tools: [reading, returning] };
    const working = built(request, { dialect });
    expect(working.response_format).toBeUndefined();
    expect(working.tools).toHaveLength(2);
    const tool_choice = { name: 'rye_directive_return' };
    for (const last of [
      built({ ...request, tool_choice }, { dialect }),
      built({ ...request, tools: [returning] }, { dialect }),
    ]) {
      expect(last.response_format).toMatchObject({ type: 'json_schema' });
      expect([last.tools, last.tool_choice]).toEqual([undefined, undefined]);
    }
  });
});

describe('the prompt cache', () => {
  const TURNS: Message[] = [
    userText('go'),
    answers({ type: 'text', text: 'Look.' }, call('x')),
    result('x', [TEXT]),
    answers(call('y')),
    result('y', [TEXT, IMAGE]),
    userText('more'),
    answers({ type: 'text', text: 'Done.' }),
    userText('again'),
  ];

  test.each(DIALECTS)('%s: what was sent comes again byte for byte, turn after turn', (dialect) => {
    const bytes = [1, 3, 6, 8].map((count) => {
      const { messages, tools } = built({ messages: TURNS.slice(0, count) }, { dialect });
      const text = JSON.stringify({ tools, messages }).replaceAll(
        ',"cache_control":{"type":"ephemeral"}',
        '',
      );
      return text.slice(0, -2); // the end of the list and of the object
    });
    for (const [index, later] of bytes.slice(1).entries()) {
      expect(later.startsWith(bytes[index] ?? 'missing')).toBe(true);
    }
  });

  // Requirement: cache-marks-by-provider
  test('marks are on the system text, the newest message and the newest of the request before, if the server reads them', () => {
    const marked = (dialect: ModelTraits['dialect'], cache = true, messages = TURNS) =>
      built({ messages, cache }, { dialect }).messages.flatMap((message, index) =>
        JSON.stringify(message).includes('cache_control') ? [index] : [],
      );
    expect(marked('openrouter')).toEqual([0, 7, 9]);
    // in a loop of tools: the end of the request before
    expect(marked('openrouter', true, TURNS.slice(0, 5))).toEqual([0, 3, 6]);
    expect(marked('openrouter', true, TURNS.slice(0, 3))).toEqual([0, 1, 3]);
    expect(marked('openrouter', false)).toEqual([]);
    expect(marked('openai')).toEqual([]);
  });

  test.each(DIALECTS)('%s keeps the rules of the API at every level of thinking', (dialect) => {
    const bodies = THINKING_LEVELS.map((thinking) =>
      built({ messages: TURNS, thinking }, { dialect }),
    );
    expect(bodies.flatMap((body) => checkChatRequest(body, dialect))).toEqual([]);
  });
});
