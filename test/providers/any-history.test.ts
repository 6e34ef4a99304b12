import { toUSVString } from 'node:util';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import type { JsonObject, JsonValue } from '../../src/kernel/core/json.ts';
import type { AssistantBlock, ContentBlock, Message } from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { wellFormedJson } from '../../src/kernel/providers/acceptable.ts';
import { buildRequest as buildMessages } from '../../src/kernel/providers/anthropic/request.ts';
import type { Dialect } from '../../src/kernel/providers/catalog.ts';
import { buildRequest as buildChat } from '../../src/kernel/providers/openai/request.ts';
import type { ModelRequest } from '../../src/kernel/providers/provider.ts';
import { type ChatBody, checkChatRequest } from '../helpers/chat-rules.ts';
import { runs } from '../helpers/runs.ts';
import { SHIPPED, shippedRules } from '../helpers/shipped-rules.ts';
import { checkRequest, type WireBody } from '../helpers/wire-rules.ts';

/** An image with these first bytes, in base64. */
const imageOf = (first: string): string =>
  Buffer.concat([Buffer.from(first, 'latin1'), Buffer.alloc(24)]).toString('base64');
const IMAGES = {
  png: imageOf('\x89PNG\r\n\x1a\n'),
  jpeg: imageOf('\xff\xd8\xff\xe0'),
  gif: imageOf('GIF89a'),
  webp: imageOf('RIFF\x18\0\0\0WEBPVP8 '),
};
const { png: PNG } = IMAGES;

/** Texts that people, models, tools and imports bring along. */
const text = fc.oneof(
  fc.constantFrom('', ' ', '\n\t', '\u0000', '\ud83d', 'x\udc00y', '😀', '\u2028', 'plain words'),
  fc.string({ maxLength: 12, unit: 'binary' }),
);
const toolName = fc.oneof(
  fc.constantFrom(
    'rye_bash',
    '',
    ' ',
    'psql -c',
    'functions.rye_bash',
    'é',
    '21st_magic',
    '-x',
    'a'.repeat(100),
    'a'.repeat(457),
  ),
  fc.string({ maxLength: 8 }),
);
const callId = fc.oneof(
  fc.constantFrom(
    'toolu_1',
    'call_a|fc_b',
    'call_a_fc_b',
    'functions.x:0',
    '',
    'ß',
    'a'.repeat(64),
    `call_${'x'.repeat(430)}`,
  ),
  fc.string({ maxLength: 10 }),
);
const image = fc.record({
  type: fc.constant('image' as const),
  media_type: fc.constantFrom('image/png', 'image/jpeg', 'image/jpg', 'IMAGE/PNG', 'text/html', ''),
  data: fc.constantFrom(
    ...Object.values(IMAGES),
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

interface TextRule {
  readonly punctuation: string;
  readonly length: number;
  readonly exact?: boolean;
  readonly starts_with_letter?: boolean;
}

/** The rules that a provider's file states, else the rules of its kind of API: read here, not by the code that is tested. */
function stated({ kind, wire = {} }: JsonObject) {
  const rules = wire as JsonObject;
  const isChat = kind === 'openai';
  const form = (member: string, given: TextRule): RegExp => {
    const rule = { ...given, ...(rules[member] as Partial<TextRule> | undefined) };
    const { punctuation, length, exact = false, starts_with_letter: letter = false } = rule;
    const allowed = punctuation.replaceAll(/./g, String.raw`\$&`);
    const start = letter ? '(?=[a-zA-Z_])' : '';
    const least = exact ? length : 1;
    return new RegExp(`^${start}[a-zA-Z0-9${allowed}]{${least},${length}}$`);
  };
  const anyMark = Array.from({ length: 94 }, (_, at) => String.fromCharCode(33 + at))
    .filter((one) => !/[a-z0-9]/i.test(one))
    .join('');
  return {
    name: form('tool_name', { punctuation: '_-', length: isChat ? 64 : 128 }),
    id: form(
      'call_id',
      isChat ? { punctuation: anyMark, length: 40 } : { punctuation: '_-', length: 64 },
    ),
    key: isChat ? /^[^]*$/ : /^[a-zA-Z0-9_.-]{1,64}$/,
    images: (rules['images'] ?? ['png', 'jpeg', 'gif', 'webp']) as (keyof typeof IMAGES)[],
    afterResults: rules['after_results'] ?? 'user',
  };
}
type Stated = ReturnType<typeof stated>;

/** Rules of every API, for all that is sent. */
function checkAll(
  sent: string,
  ids: readonly string[],
  names: readonly string[],
  rules: Stated,
): string[] {
  const problems: string[] = [];
  if (toUSVString(sent) !== sent || /(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(sent))
    problems.push('half a pair');
  for (const one of ids) if (!rules.id.test(one)) problems.push(`the id ${one}`);
  for (const one of names) if (!rules.name.test(one)) problems.push(`the name ${one}`);
  const isShown = (type: string | undefined, data: string | undefined): boolean =>
    rules.images.some((known) => type === `image/${known}` && data === IMAGES[known]);
  for (const [, type, data] of sent.matchAll(/"media_type":"([^"]*)","data":"([^"]*)"/g))
    if (!isShown(type, data)) problems.push(`an image of ${type}`);
  for (const [, type, data] of sent.matchAll(/"url":"data:([^";]*);base64,([^"]*)"/g))
    if (!isShown(type, data)) problems.push(`the image ${type}`);
  return problems;
}

/** Schemas with a keyword at the top that APIs refuse there. */
function alternatives(schemas: readonly unknown[]): readonly unknown[] {
  const refused = /^(?:oneOf|anyOf|allOf|not|if|then|else|enum|const|\$ref)$/;
  return schemas.filter((one) => Object.keys(one as object).some((name) => refused.test(name)));
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

const OF_KIND = Object.entries(SHIPPED).map(([name, file]) => ({ name, file }));
const MESSAGES = OF_KIND.filter(({ file }) => file['kind'] === 'anthropic');
const CHAT = [
  ...OF_KIND.filter(({ file }) => file['kind'] === 'openai'),
  ...['compatible', 'llamacpp'].map((name) => ({ name, file: { kind: 'openai', dialect: name } })),
];

test.each(MESSAGES)('the Messages API of $name accepts every history', ({ name, file }) => {
  const traits = { thinking: 'none', forcedTools: true, structuredOutput: true } as const;
  const rules = stated(file);
  const receiver = { name: 'anthropic', wire: shippedRules(name) };
  fc.assert(
    fc.property(request, (given) => {
      const asked = requestOf(given, 'claude-sonnet-4-5');
      const sent = wellFormedJson(JSON.stringify(buildMessages(asked, traits, receiver)));
      const body = JSON.parse(sent) as WireBody;
      const blocks = body.messages.flatMap(({ content }) =>
        typeof content === 'string' ? [] : content,
      );
      const ids = blocks.flatMap(({ type, id, tool_use_id }) =>
        type.startsWith('tool_') ? [id ?? tool_use_id ?? ''] : [],
      );
      const names = [...blocks.filter(({ type }) => type === 'tool_use'), ...(body.tools ?? [])];
      const own = checkAll(
        sent,
        ids,
        names.map((block) => block.name ?? ''),
        rules,
      );
      const keys = (body.tools ?? []).flatMap(({ input_schema }) => {
        const { properties = {}, required = [] } = input_schema as Record<string, object>;
        return [...Object.keys(properties), ...(required as string[])];
      });
      const badKeys = keys.filter((key) => !rules.key.test(key));
      const bad = alternatives((body.tools ?? []).map(({ input_schema }) => input_schema));
      const empty = blocks.filter(({ type, data }) => type === 'redacted_thinking' && !data);
      expect([...checkRequest(body), ...own, ...empty, ...badKeys, ...bad]).toEqual([]);
    }),
    runs(300),
  );
});

test.each(CHAT)('chat completions of $name accept every history', ({ name, file }) => {
  const dialect = file['dialect'] as Dialect;
  const rules = stated(file);
  const capabilities = ['tools', 'forced_tools', 'images'] as const;
  fc.assert(
    fc.property(request, (given) => {
      const asked = requestOf(given, 'm');
      const wire = shippedRules(name);
      const built = buildChat(asked, { provider: 'lab', dialect, capabilities, wire });
      const sent = wellFormedJson(JSON.stringify(built));
      const body = JSON.parse(sent) as ChatBody;
      const calls = body.messages.flatMap(({ tool_calls = [] }) => tool_calls);
      const ids = [
        ...calls.map((one) => one.id),
        ...body.messages.flatMap(({ tool_call_id }) => tool_call_id ?? []),
      ];
      const names = [...calls, ...(body.tools ?? [])].map((one) => one.function.name);
      const parameters = (body.tools ?? []).map((one) => one.function.parameters as JsonObject);
      const bad = parameters.filter((one) => !one['properties'] || listsWithoutItems(one) > 0);
      const problems = checkChatRequest(body, dialect).filter((one) => !one.startsWith('no usage'));
      const late = body.messages.filter(
        ({ role }, at) =>
          role === 'user' && role !== rules.afterResults && body.messages[at - 1]?.role === 'tool',
      );
      const blank = body.messages.filter(
        ({ content }) => typeof content === 'string' && content.trim() === '',
      );
      const all = [...bad, ...alternatives(parameters), ...late, ...blank];
      expect([...problems, ...checkAll(sent, ids, names, rules), ...all]).toEqual([]);
    }),
    runs(120),
  );
});
