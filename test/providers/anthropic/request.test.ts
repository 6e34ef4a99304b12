import { describe, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import type { AssistantBlock, Message, ToolOutcome } from '../../../src/kernel/core/message.ts';
import { userText } from '../../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../../src/kernel/core/usage.ts';
import {
  buildRequest,
  requestText,
  traitsOfId,
} from '../../../src/kernel/providers/anthropic/request.ts';
import type { ModelRequest, ThinkingLevel } from '../../../src/kernel/providers/provider.ts';
import { aRequest } from '../../../testing/conformance/provider.ts';
import { shippedRules } from '../../helpers/shipped-rules.ts';
import { checkRequest, type WireBlock, type WireBody } from '../../helpers/wire-rules.ts';

const WIRE = shippedRules('anthropic');

function build(overrides: Partial<ModelRequest>, name = 'anthropic'): WireBody {
  const request = aRequest(overrides);
  return buildRequest(request, traitsOfId(request.model), {
    name,
    wire: WIRE,
  }) as unknown as WireBody;
}

function reply(content: readonly AssistantBlock[], model = 'claude-sonnet-5-5'): Message {
  return {
    role: 'assistant',
    content,
    provider: 'anthropic',
    model,
    stop_reason: 'tool_calls',
    usage: NO_USAGE,
  };
}

function call(call_id: string): AssistantBlock {
  return { type: 'tool_call', call_id, name: 'rye_first', input: { a: 1 } };
}

function result(call_id: string, text: string, outcome: ToolOutcome = 'ok'): Message {
  return {
    role: 'tool_result',
    call_id,
    name: 'rye_first',
    content: [{ type: 'text', text }],
    outcome,
  };
}

function blocksOf(body: WireBody, index: number): readonly WireBlock[] {
  const content = body.messages[index]?.content;
  return typeof content === 'string' || content === undefined ? [] : content;
}

function marks(prefix: string, blocks: unknown): string[] {
  if (!Array.isArray(blocks)) return [];
  return blocks.flatMap((block: WireBlock, index) =>
    block.cache_control ? [`${prefix}.${index}`] : [],
  );
}

/** Lists the paths of the cache marks, such as `system.0` or `messages.2.0`. */
function marksOf(body: WireBody): string[] {
  return [
    ...marks('system', body.system),
    ...marks('tools', body.tools),
    ...body.messages.flatMap(({ content }, index) => marks(`messages.${index}`, content)),
  ];
}

describe('turns', () => {
  test('results precede other user content, and turns of one role become one', () => {
    const body = build({
      messages: [
        userText('go'),
        userText('now'),
        reply([{ type: 'text', text: 'ok' }, call('a'), call('b')]),
        userText('by the way'),
        result('b', 'second'),
        result('a', 'first', 'timeout'),
      ],
    });
    expect(checkRequest(body)).toEqual([]);
    expect(body.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'user']);
    expect(blocksOf(body, 2)).toMatchObject([
      { type: 'tool_result', tool_use_id: 'b' },
      { type: 'tool_result', tool_use_id: 'a', is_error: true },
      { type: 'text', text: 'by the way' },
    ]);
    expect(blocksOf(body, 2)[0]?.is_error).toBeUndefined();
  });

  test('blank texts and messages without content are skipped', () => {
    const body = build({
      messages: [
        userText('go'),
        reply([{ type: 'text', text: ' \n' }]),
        userText(''),
        userText('on'),
      ],
    });
    expect(checkRequest(body)).toEqual([]);
    expect(body.messages).toHaveLength(1);
  });

  test('an empty result is a result', () => {
    const body = build({ messages: [userText('go'), reply([call('a')]), result('a', '')] });
    expect(checkRequest(body)).toEqual([]);
    expect(blocksOf(body, 2)[0]).toMatchObject({ type: 'tool_result', content: [] });
  });

  // Requirement: images-in-results
  test('images go along in messages and results; an unknown kind is named', () => {
    const image = { type: 'image', media_type: 'image/jpeg', data: 'iVBORw0KGgo=' } as const;
    const odd = { type: 'image', media_type: 'image/tiff', data: 'SUkqAA==' } as const;
    const body = build({
      messages: [
        { role: 'user', content: [image] },
        reply([call('a')]),
        {
          role: 'tool_result',
          call_id: 'a',
          name: 'rye_first',
          outcome: 'ok',
          content: [image, odd],
        },
      ],
    });
    const source = { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' };
    expect(blocksOf(body, 0)).toMatchObject([{ type: 'image', source }]);
    expect(blocksOf(body, 2)[0]?.content).toMatchObject([
      { type: 'image', source },
      { type: 'text', text: '[an image of the type image/tiff]' },
    ]);
  });

  test('images of a failed call follow the results, in which an error is only text', () => {
    const image = { type: 'image', media_type: 'image/png', data: 'iVBORw0KGgo=' } as const;
    const failed = (id: string, content: readonly (typeof image)[]): Message => ({
      role: 'tool_result',
      call_id: id,
      name: 'rye_first',
      outcome: 'error',
      content: [...content, ...(id === 'a' ? [{ type: 'text', text: 'no button' } as const] : [])],
    });
    const body = build({
      messages: [
        userText('go'),
        reply([call('a'), call('b')]),
        failed('a', [image]),
        failed('b', [image]),
      ],
    });
    expect(checkRequest(body)).toEqual([]);
    expect(blocksOf(body, 2).map(({ type, text }) => text ?? type)).toEqual([
      'tool_result',
      'tool_result',
      'Images of the result of rye_first (a):',
      'image',
      'Images of the result of rye_first (b):',
      'image',
    ]);
  });

  test.each([
    ['adaptive', 'claude-sonnet-5-5'],
    ['budget', 'claude-haiku-4-5'],
    ['none', 'claude-3-5-haiku-latest'],
  ])('a %s model takes over the tool loop of another one', (_style, model) => {
    const thought: AssistantBlock = { type: 'thinking', text: 't', signature: 's' };
    const body = build({
      model,
      thinking: 'high',
      messages: [userText('go'), reply([thought, call('a')], 'claude-opus-4-1'), result('a', 'x')],
    });
    expect(checkRequest(body)).toEqual([]);
    const own = build({
      model,
      thinking: 'high',
      messages: [userText('go'), reply([thought, call('a')], model), result('a', 'x')],
    });
    expect(checkRequest(own)).toEqual([]);
  });

  test('call ids of other providers are made fit, on both sides alike', () => {
    const body = build({
      messages: [userText('go'), reply([call('a:b/c.1')]), result('a:b/c.1', 'x')],
    });
    expect(checkRequest(body)).toEqual([]);
    expect(blocksOf(body, 1)[0]?.id).toMatch(/^a_b_c_1_[0-9a-f]{12}$/);
  });
});

describe('thinking of earlier answers', () => {
  const signed: AssistantBlock = { type: 'thinking', text: 'why', signature: 'sig' };
  const hidden: AssistantBlock = { type: 'thinking', text: '', signature: 'sig2' };
  const redacted: AssistantBlock = { type: 'thinking', text: '', redacted: 'opaque' };
  const unsigned: AssistantBlock = { type: 'thinking', text: 'why' };
  const history = (model: string): Message[] => [
    userText('go'),
    reply([signed, hidden, redacted, unsigned, call('a')], model),
    result('a', 'x'),
  ];

  test.for(['claude-sonnet-5-5', 'claude-sonnet-5-5-20260928'])(
    'goes back verbatim to %s',
    (model) => {
      expect(blocksOf(build({ messages: history(model) }), 1)).toMatchObject([
        { type: 'thinking', thinking: 'why', signature: 'sig' },
        { type: 'thinking', thinking: '', signature: 'sig2' },
        { type: 'redacted_thinking', data: 'opaque' },
        { type: 'tool_use', id: 'a' },
      ]);
    },
  );

  test('is not shown to another model or provider, which would refuse it', () => {
    const otherModel = build({ messages: history('claude-opus-5-5') });
    const otherProvider = build({ messages: history('claude-sonnet-5-5') }, 'proxy');
    for (const body of [otherModel, otherProvider]) {
      expect(blocksOf(body, 1).map(({ type }) => type)).toEqual(['tool_use']);
    }
  });
});

function turn(id: string): Message[] {
  return [reply([{ type: 'text', text: 'x' }, call(id)]), result(id, 'y')];
}

describe('cache marks', () => {
  // Requirement: cache-marks, cache-mark-system, cache-mark-tools
  test('mark system, last tool, newest message and the newest user turn before it', () => {
    const body = build({ messages: [userText('go'), ...turn('a'), ...turn('b')] });
    expect(marksOf(body)).toEqual(['system.0', 'tools.1', 'messages.2.0', 'messages.4.0']);
    expect(checkRequest(body)).toEqual([]);
  });

  // Requirement: cache-mark-newest
  test('the mark of the last call is kept by the next one, so that its cache is found', () => {
    const first = build({ messages: [userText('go'), ...turn('a')] });
    const second = build({ messages: [userText('go'), ...turn('a'), ...turn('b')] });
    expect(marksOf(first)).toContain('messages.2.0');
    expect(marksOf(second)).toContain('messages.2.0');
  });

  // Requirement: cache-mark-newest
  test('skip thinking at the end of the newest message', () => {
    const thought: AssistantBlock = { type: 'thinking', text: 'hm', signature: 's' };
    const body = build({
      messages: [userText('go'), reply([{ type: 'text', text: 'x' }, thought])],
    });
    expect(marksOf(body)).toEqual(['system.0', 'tools.1', 'messages.0.0', 'messages.1.0']);
  });

  test('are absent where nothing can carry them, and without cache', () => {
    expect(marksOf(build({ system: ' ', tools: [] }))).toEqual(['messages.0.0']);
    expect(marksOf(build({ cache: false }))).toEqual([]);
    expect(build({ system: '' })).not.toHaveProperty('system');
  });

  test('equal arguments give equal bytes, and arguments are not touched', () => {
    const messages = [userText('go'), ...turn('a')];
    const before = structuredClone(messages);
    expect(JSON.stringify(build({ messages }))).toBe(JSON.stringify(build({ messages })));
    expect(messages).toEqual(before);
  });
});

describe('thinking and effort', () => {
  test.for([
    ['claude-fable-5-1', 'off', { type: 'adaptive', display: 'summarized' }, 'low'],
    ['claude-opus-5-5', 'off', { type: 'adaptive', display: 'summarized' }, 'low'],
    ['claude-opus-5-5', 'high', { type: 'adaptive', display: 'summarized' }, 'high'],
    ['claude-sonnet-5-5', 'off', { type: 'between_tools' }, undefined],
    ['claude-sonnet-5-5', 'minimal', { type: 'adaptive', display: 'summarized' }, 'low'],
    ['claude-haiku-5-5', 'off', { type: 'disabled' }, undefined],
    ['claude-opus-4-6', 'medium', { type: 'adaptive', display: 'summarized' }, 'medium'],
    ['claude-sonnet-4-5-20250929', 'off', undefined, undefined],
    ['claude-sonnet-4-5-20250929', 'low', { type: 'enabled', budget_tokens: 4096 }, undefined],
    ['claude-haiku-4-5', 'high', { type: 'enabled', budget_tokens: 12_000 }, undefined],
    ['glm-5', 'high', undefined, undefined],
  ] as const)('%s at %s', ([model, thinking, expected, effort]) => {
    const body = build({ model, thinking, max_tokens: 16_000 });
    expect(body.thinking).toEqual(expected);
    expect(body.output_config?.effort).toBe(effort);
    expect(body).not.toHaveProperty('temperature');
    expect(checkRequest(body)).toEqual([]);
  });

  test('a budget that does not fit into max_tokens is not asked for', () => {
    for (const max_tokens of [256, 1024, 1300]) {
      expect(build({ model: 'claude-haiku-4-5', thinking: 'high', max_tokens })).not.toHaveProperty(
        'thinking',
      );
    }
  });
});

describe('tool choice', () => {
  const levels: ThinkingLevel = 'high';

  test('none and a named tool are sent, auto is not', () => {
    expect(build({ tool_choice: 'none' }).tool_choice).toEqual({ type: 'none' });
    expect(build({ tool_choice: 'auto' })).not.toHaveProperty('tool_choice');
    expect(
      build({ tool_choice: { name: 'rye_first' }, model: 'claude-haiku-5-5' }).tool_choice,
    ).toEqual({
      type: 'tool',
      name: 'rye_first',
    });
  });

  test('a forced call disables thinking, which it excludes', () => {
    const body = build({ model: 'claude-opus-5', tool_choice: 'any', thinking: levels });
    expect(body.tool_choice).toEqual({ type: 'any' });
    expect(body.thinking).toEqual({ type: 'disabled' });
  });

  test('models that refuse forced calls are asked instead, and think on', () => {
    const body = build({ model: 'claude-opus-5-5', tool_choice: 'any', thinking: levels });
    expect(body).not.toHaveProperty('tool_choice');
    expect(body.thinking).toMatchObject({ type: 'adaptive' });
  });

  test('without tools there is nothing to choose', () => {
    const body = build({ tools: [], tool_choice: 'any' });
    expect(body).not.toHaveProperty('tools');
    expect(body).not.toHaveProperty('tool_choice');
  });
});

describe('an answer that must match a schema', () => {
  const schema = {
    type: 'object',
    properties: { n: { type: 'integer' } },
    required: ['n'],
    additionalProperties: false,
  };
  const wire = (overrides: Partial<ModelRequest>) =>
    build(overrides) as unknown as {
      readonly output_config?: unknown;
      readonly thinking?: unknown;
      readonly tool_choice?: unknown;
      readonly tools: readonly { readonly name: string }[];
    };

  test('is asked for natively, beside the effort', () => {
    const body = wire({ model: 'claude-opus-5-5', output_schema: schema, thinking: 'high' });
    expect(body.output_config).toEqual({ effort: 'high', format: { type: 'json_schema', schema } });
  });

  test('is asked for as far as a grammar can express it', () => {
    const open = {
      type: 'object',
      properties: {
        verdict: { enum: ['ok', 'bad'] },
        score: { type: ['number', 'null'], minimum: 0 },
        findings: {
          type: 'array',
          maxItems: 9,
          items: { type: 'object', properties: { file: { type: 'string', minLength: 1 } } },
        },
      },
      required: ['verdict'],
    };
    const body = wire({ model: 'claude-opus-5-5', output_schema: open });
    expect(body.output_config).toMatchObject({
      format: {
        schema: {
          type: 'object',
          properties: {
            verdict: { enum: ['ok', 'bad'] },
            score: { anyOf: [{ type: 'number' }, { type: 'null' }] },
            findings: {
              type: 'array',
              items: {
                type: 'object',
                properties: { file: { type: 'string' } },
                required: [],
                additionalProperties: false,
              },
            },
          },
          required: ['verdict'],
          additionalProperties: false,
        },
      },
    });
    expect(JSON.stringify(body.output_config)).not.toMatch(/minimum|maxItems|minLength/);
  });

  test.each<[string, string, JsonObject]>([
    ['a model without it', 'claude-haiku-3-5', schema],
    ['an object with any members', 'claude-sonnet-5', { type: 'object' }],
    ['members of any type', 'claude-sonnet-5', { type: 'object', properties: { n: {} } }],
    [
      'keywords that no grammar has',
      'claude-sonnet-5',
      { type: 'object', properties: {}, patternProperties: {} },
    ],
  ])('is left to the return tool for %s', (_name, model, output_schema) => {
    expect(wire({ model, output_schema }).output_config ?? {}).not.toHaveProperty('format');
  });
});

describe('the text of a request', () => {
  const step = (id: string): Message[] => [reply([call(id)]), result(id, `result of ${id}`)];

  test('is that of its object, for each request of a conversation that grows and is marked', () => {
    const messages: Message[] = [userText('go')];
    for (const id of ['a', 'b', 'c']) {
      const request = aRequest({ messages, cache: true });
      const body = () =>
        buildRequest(request, traitsOfId(request.model), { name: 'anthropic', wire: WIRE });
      expect(JSON.parse(requestText(body()))).toEqual(JSON.parse(JSON.stringify(body())));
      messages.push(...step(id));
    }
  });

  test('repeats what was sent, byte for byte', () => {
    const first = aRequest({ messages: [userText('go'), ...step('a')], cache: false });
    const second = { ...first, messages: [...first.messages, ...step('b')] };
    const texts = [first, second].map((request) =>
      requestText(
        buildRequest(request, traitsOfId(request.model), { name: 'anthropic', wire: WIRE }),
      ),
    );
    expect(texts[1]?.startsWith((texts[0] ?? '').slice(0, -']}'.length))).toBe(true);
  });
});
