import { toUSVString } from 'node:util';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import type { JsonObject, JsonValue } from '../../src/core/json.ts';
import type { AssistantBlock, ContentBlock, Message } from '../../src/core/message.ts';
import { NO_USAGE } from '../../src/core/usage.ts';
import { wellFormedJson } from '../../src/providers/acceptable.ts';
import { buildRequest as buildMessages } from '../../src/providers/anthropic/request.ts';
import type { Dialect } from '../../src/providers/catalog.ts';
import { buildRequest as buildChat } from '../../src/providers/openai/request.ts';
import type { ModelRequest } from '../../src/providers/provider.ts';
import { type ChatBody, checkChatRequest } from '../helpers/chat-rules.ts';
import { runs } from '../helpers/runs.ts';
import { checkRequest, type WireBody } from '../helpers/wire-rules.ts';

const PNG = Buffer.concat([
  Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
  Buffer.alloc(24),
]).toString('base64');

/** Texts that people, models, tools and imports bring along. */
const text = fc.oneof(
  fc.constantFrom('', ' ', '\n\t', '\u0000', '\ud83d', 'x\udc00y', '😀', '\u2028', 'plain words'),
  fc.string({ maxLength: 12, unit: 'binary' }),
);
const toolName = fc.oneof(
  fc.constantFrom('rye_bash', '', ' ', 'psql -c', 'functions.rye_bash', 'é', 'a'.repeat(457)),
  fc.string({ maxLength: 8 }),
);
const callId = fc.oneof(
  fc.constantFrom('toolu_1', 'call_a|fc_b', 'call_a_fc_b', '', 'ß', `call_${'x'.repeat(430)}`),
  fc.string({ maxLength: 10 }),
);
const image = fc.record({
  type: fc.constant('image' as const),
  media_type: fc.constantFrom('image/png', 'image/jpeg', 'image/jpg', 'IMAGE/PNG', 'text/html', ''),
  data: fc.constantFrom(
    PNG,
    '',
    `data:image/png;base64,${PNG}`,
    `${PNG.slice(0, 20)}\n${PNG.slice(20)}`,
    `${PNG}!`,
    Buffer.from('<html>').toString('base64'),
    '<svg/>',
  ),
});
const anyBlock: fc.Arbitrary<ContentBlock> = fc.oneof(
  fc.record({ type: fc.constant('text' as const), text }),
  image,
);
const contents = fc.array(anyBlock, { maxLength: 3 });
const thinking = fc.record(
  {
    type: fc.constant('thinking' as const),
    text,
    signature: fc.constantFrom('', 'signed'),
    redacted: fc.constantFrom('', 'hidden'),
  },
  { requiredKeys: ['type', 'text'] },
);
const MODELS = [
  ['anthropic', 'claude-sonnet-4-5'],
  ['anthropic', 'claude-haiku-4-5'],
  ['lab', 'm'],
  ['pi', 'gpt-5'],
] as const;

const call = fc.record(
  {
    type: fc.constant('tool_call' as const),
    call_id: callId,
    name: toolName,
    input: fc.dictionary(text, fc.jsonValue() as fc.Arbitrary<JsonValue>, { maxKeys: 2 }),
    malformed: text,
  },
  { requiredKeys: ['type', 'call_id', 'name', 'input'] },
);
const outcome = fc.constantFrom('ok' as const, 'error' as const, 'unknown' as const);

/** A turn as a log keeps it: a message of a person, an answer, and the results of its calls. */
const turn = fc.record({
  user: contents,
  blocks: fc.array(
    fc.oneof(fc.record({ type: fc.constant('text' as const), text }), thinking, call),
    {
      maxLength: 4,
    },
  ),
  model: fc.constantFrom(...MODELS),
  results: fc.array(fc.tuple(contents, outcome), { minLength: 4, maxLength: 4 }),
});
type Turn = typeof turn extends fc.Arbitrary<infer T> ? T : never;

/** A history of these turns with ids that occur once, as the log gives them, and one result for each call. */
function historyOf(turns: readonly Turn[]): Message[] {
  const taken = new Set<string>();
  const ask: Message = { role: 'user', content: [{ type: 'text', text: 'Begin.' }] };
  const messages: Message[] = [ask];
  for (const { user, blocks, model, results } of turns) {
    const content = blocks.filter((block) => {
      if (block.type !== 'tool_call') return true;
      const isNew = !taken.has(block.call_id);
      taken.add(block.call_id);
      return isNew;
    }) as AssistantBlock[];
    const [provider, model_id] = model;
    messages.push({ role: 'user', content: user });
    const end = { provider, model: model_id, stop_reason: 'end', usage: NO_USAGE } as const;
    messages.push({ role: 'assistant', content, ...end });
    const calls = content.filter((block) => block.type === 'tool_call');
    for (const [index, { call_id, name: of }] of calls.entries()) {
      const [given = [], how = 'ok' as const] = results[index] ?? [];
      messages.push({ role: 'tool_result', call_id, name: of, content: given, outcome: how });
    }
  }
  return [...messages, ask];
}

const schema: fc.Arbitrary<JsonObject> = fc.constantFrom<JsonObject>(
  { type: 'object' },
  {},
  {
    type: 'object',
    properties: { $top: {}, 'a[]': {}, ['x'.repeat(70)]: {} },
    required: ['a[]'],
  },
  { anyOf: [{ type: 'object', properties: { a: {} } }, { required: ['b'] }] },
  { $ref: '#/$defs/a', $defs: { a: { type: 'object', properties: { l: { type: 'array' } } } } },
  {
    type: 'object',
    properties: { l: { type: ['array', 'null'] }, o: { oneOf: [{ type: 'array' }] } },
  },
);
const tools = fc.uniqueArray(
  fc.record({ name: toolName, description: text, input_schema: schema }),
  {
    maxLength: 3,
    selector: (tool) => tool.name.replaceAll(/[^\w-]/g, '_') || 'unnamed',
  },
);

const request = fc.record({ turns: fc.array(turn, { maxLength: 5 }), tools, system: text });

function requestOf(
  { turns, tools: given, system }: typeof request extends fc.Arbitrary<infer T> ? T : never,
  model: string,
): ModelRequest {
  const rest = { system, tools: given, max_tokens: 9000, thinking: 'low', cache: true } as const;
  return { model, messages: historyOf(turns), ...rest };
}

/** Rules of every API, for all that is sent. */
function checkAll(
  sent: string,
  ids: readonly string[],
  names: readonly string[],
  rules: {
    readonly id: RegExp;
    readonly name: RegExp;
  },
): string[] {
  const problems: string[] = [];
  if (toUSVString(sent) !== sent || /(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(sent))
    problems.push('half a pair');
  for (const one of ids) if (!rules.id.test(one)) problems.push(`the id ${one}`);
  for (const one of names) if (!rules.name.test(one)) problems.push(`the name ${one}`);
  for (const [, type, data = ''] of sent.matchAll(/"media_type":"([^"]*)","data":"([^"]*)"/g))
    if (type !== 'image/png' || data !== PNG) problems.push(`an image of ${type}`);
  for (const [, url] of sent.matchAll(/"url":"([^"]*)"/g))
    if (url !== `data:image/png;base64,${PNG}`) problems.push(`the image ${url}`);
  return problems;
}

/** A list without `items`, or an object at the top without properties, which chat completions refuse. */
function listsWithoutItems(value: unknown): number {
  if (Array.isArray(value))
    return value.reduce((sum: number, one) => sum + listsWithoutItems(one), 0);
  if (typeof value !== 'object' || value === null) return 0;
  const { type, items } = value as { type?: unknown; items?: unknown };
  const isBad = [type].flat().includes('array') && items === undefined;
  return Object.values(value).reduce((sum, one) => sum + listsWithoutItems(one), Number(isBad));
}

test('the Messages API accepts every history', () => {
  const traits = { thinking: 'none', forcedTools: true, structuredOutput: true } as const;
  fc.assert(
    fc.property(request, (given) => {
      const asked = requestOf(given, 'claude-sonnet-4-5');
      const sent = wellFormedJson(JSON.stringify(buildMessages(asked, traits, 'anthropic')));
      const body = JSON.parse(sent) as WireBody;
      const blocks = body.messages.flatMap(({ content }) =>
        typeof content === 'string' ? [] : content,
      );
      const ids = blocks.flatMap(({ type, id, tool_use_id }) =>
        type.startsWith('tool_') ? [id ?? tool_use_id ?? ''] : [],
      );
      const names = [...blocks.filter(({ type }) => type === 'tool_use'), ...(body.tools ?? [])];
      const rules = { id: /^[a-zA-Z0-9_-]{1,64}$/, name: /^[a-zA-Z0-9_-]{1,128}$/ };
      const own = checkAll(
        sent,
        ids,
        names.map(({ name: one = '' }) => one),
        rules,
      );
      const keys = (body.tools ?? []).flatMap(({ input_schema }) => {
        const { properties = {}, required = [] } = input_schema as Record<string, object>;
        return [...Object.keys(properties), ...(required as string[])];
      });
      const badKeys = keys.filter((key) => !/^[a-zA-Z0-9_.-]{1,64}$/.test(key));
      const empty = blocks.filter(({ type, data }) => type === 'redacted_thinking' && !data);
      expect([...checkRequest(body), ...own, ...empty, ...badKeys]).toEqual([]);
    }),
    runs(300),
  );
});

const DIALECTS: readonly Dialect[] = [
  'openai',
  'azure',
  'openrouter',
  'gemini',
  'groq',
  'mistral',
  'vllm',
  'ollama',
  'lmstudio',
  'compatible',
];

test.each(DIALECTS)('chat completions of %s accept every history', (dialect) => {
  const capabilities = ['tools', 'forced_tools', 'images'] as const;
  fc.assert(
    fc.property(request, (given) => {
      const asked = requestOf(given, 'm');
      const built = buildChat(asked, { provider: 'lab', dialect, capabilities });
      const sent = wellFormedJson(JSON.stringify(built));
      const body = JSON.parse(sent) as ChatBody;
      const calls = body.messages.flatMap(({ tool_calls = [] }) => tool_calls);
      const ids = [
        ...calls.map((one) => one.id),
        ...body.messages.flatMap(({ tool_call_id }) => tool_call_id ?? []),
      ];
      const names = [...calls, ...(body.tools ?? [])].map((one) => one.function.name);
      const rules = { id: /^[\x21-\x7e]{1,40}$/, name: /^[a-zA-Z0-9_-]{1,64}$/ };
      const parameters = (body.tools ?? []).map((one) => one.function.parameters as JsonObject);
      const bad = parameters.filter((one) => !one['properties'] || listsWithoutItems(one) > 0);
      const problems = checkChatRequest(body, dialect).filter((one) => !one.startsWith('no usage'));
      expect([...problems, ...checkAll(sent, ids, names, rules), ...bad]).toEqual([]);
    }),
    runs(120),
  );
});
