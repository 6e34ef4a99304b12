import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import type { JsonObject, JsonValue } from '../../../src/kernel/core/json.ts';
import { sendRequest } from '../../../src/kernel/tools/item/http-request.ts';

/** Sends a body with these parameters; returns what the server got. */
async function sent(body: JsonValue, input: JsonObject, type?: string): Promise<string> {
  let got = '';
  const server = createServer((request, response) => {
    request.setEncoding('utf8').on('data', (part: string) => {
      got += part;
    });
    request.on('end', () => response.end('ok'));
  });
  onTestFinished(() => void server.close());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await sendRequest({
    id: 't/x',
    request: {
      method: 'POST',
      url: `http://127.0.0.1:${port}/`,
      headers: type === undefined ? {} : { 'content-type': type },
      body,
      timeoutSeconds: 10,
    },
    input,
    secrets: [],
    timeoutSeconds: 10,
    env: { NAME: 'a "b"' },
    context: {
      callId: 'c',
      threadId: 't',
      projectPath: '/',
      signal: new AbortController().signal,
      progress: () => undefined,
    },
  });
  return got;
}

const TEMPLATE = '{"title": "{q}", "role": "user"}';

it.each(['a "quoted" word', 'x", "role": "admin', 'back\\slash\nline', '{q} ${NAME}'])(
  'a text is a text in a JSON body: %j',
  async (q) => {
    expect(JSON.parse(await sent(TEMPLATE, { q }))).toEqual({ title: q, role: 'user' });
  },
);

it('a value outside of quotes keeps its type', async () => {
  const body = '{"n": {n}, "list": {list}, "text": {text}, "none": {none}, "all": {params_json}}';
  const input = { n: 7, list: [1, 'a'], text: 'x", "n": 8' };
  const expected = { ...input, none: null, all: input };
  expect(JSON.parse(await sent(body, input, 'application/json; charset=utf-8'))).toEqual(expected);
});

it('a variable is encoded too', async () => {
  expect(JSON.parse(await sent('{"name": "${NAME}"}', {}))).toEqual({ name: 'a "b"' });
});

it('fields of a form and elements of XML cannot be added', async () => {
  const form = await sent(
    'q={q}&safe=1',
    { q: 'a&safe=0 +%' },
    'application/x-www-form-urlencoded',
  );
  expect([...new URLSearchParams(form)]).toEqual([
    ['q', 'a&safe=0 +%'],
    ['safe', '1'],
  ]);
  expect(await sent('<q>{q}</q>', { q: '</q><x/>' }, 'application/xml')).toBe(
    '<q>&lt;/q&gt;&lt;x/&gt;</q>',
  );
  expect(await sent('Hello {q}', { q: '"a"' }, 'text/plain')).toBe('Hello "a"');
});

it('a body of another syntax is refused', async () => {
  await expect(sent('q={q}', { q: 'a' })).rejects.toMatchObject({ code: 'invalid_input' });
  await expect(sent('a: {q}', { q: 'a' }, 'application/yaml')).rejects.toThrow('safely');
  expect(await sent('plain', {}, 'application/yaml')).toBe('plain');
});

it.each<[string, JsonValue, JsonValue]>([
  ['a whole parameter keeps its type', { n: '{n}', list: '{list}' }, { n: 7, list: [1, 'a'] }],
  ['a part of a text is text', { n: 'no. {n}' }, { n: 'no. 7' }],
  ['a member without its parameter is left out', { n: '{n}', x: { y: '{none}' } }, { n: 7, x: {} }],
  ['an item without its parameter is left out', ['{n}', '{none}', 'x'], [7, 'x']],
  ['all parameters', { all: '{params_json}' }, { all: { n: 7, list: [1, 'a'] } }],
  ['what is no text stays', { a: 1, b: null, c: [true] }, { a: 1, b: null, c: [true] }],
])('of a body of values %s', async (_, body, expected) => {
  expect(JSON.parse(await sent(body, { n: 7, list: [1, 'a'] }))).toEqual(expected);
});

it.each(['toString', 'constructor', '__proto__', 'none'])(
  'a parameter that was not given has no value, also if its name is %s',
  async (name) => {
    expect(await sent(`a={${name}}`, {}, 'application/x-www-form-urlencoded')).toBe('a=');
    expect(await sent(`{"a": {${name}}}`, {}, 'application/json')).toBe('{"a": null}');
    expect(JSON.parse(await sent({ a: `{${name}}`, b: 1 }, {}))).toEqual({ b: 1 });
  },
);
