import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import type { HttpTemplate } from '../../../src/kernel/items/tool-http.ts';
import { type HttpCall, sendRequest } from '../../../src/kernel/tools/item/http-request.ts';
import type { ToolOutput } from '../../../src/kernel/tools/tool.ts';

const KEY = 'k-0123456789abcdef';

/** Starts a server; returns its address. */
async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function sent(
  request: Partial<HttpTemplate> & { readonly url: string },
  more: Partial<HttpCall> = {},
): Promise<ToolOutput> {
  return await sendRequest({
    id: 't/x',
    request: { method: 'GET', headers: {}, timeoutSeconds: 10, ...request },
    input: {},
    secrets: [],
    timeoutSeconds: 10,
    env: { API_KEY: KEY },
    context: {
      callId: 'c',
      threadId: 't',
      projectPath: '/',
      signal: new AbortController().signal,
      progress: () => undefined,
    },
    ...more,
  });
}

const textOfOutput = ({ content, data }: ToolOutput): string => JSON.stringify({ content, data });

it('a redirect is not followed, and its target is told without the secret in it', async () => {
  const seen: string[] = [];
  const elsewhere = await serve((_request, response) => {
    seen.push('elsewhere');
    response.end('stolen');
  });
  const url = await serve(({ headers }, response) => {
    const location = `${elsewhere}/?key=${String(headers['authorization'])}`;
    response.writeHead(302, { location }).end();
  });
  const output = await sent({ url, headers: { authorization: '${API_KEY}' } });
  expect(output).toMatchObject({ is_error: true, data: { status: 302 } });
  expect(textOfOutput(output)).toContain(`${elsewhere}/?key=***`);
  expect(seen).toEqual([]);
});

it.each<[string, RequestListener, object]>([
  [
    'text',
    ({ headers }, response) => response.end(`it is ${String(headers['authorization'])}`),
    {},
  ],
  [
    'JSON',
    ({ headers }, response) =>
      response.end(JSON.stringify({ [String(headers['authorization'])]: headers })),
    {},
  ],
  [
    'an error',
    ({ headers }, response) =>
      response.writeHead(403).end(`no ${String(headers['authorization'])}`),
    { is_error: true, data: { status: 403 } },
  ],
])('the value of a variable does not come back in an answer: %s', async (_, listener, expected) => {
  const output = await sent({
    url: await serve(listener),
    headers: { authorization: '${API_KEY}' },
  });
  expect(output).toMatchObject(expected);
  expect(textOfOutput(output)).not.toContain(KEY);
  expect(textOfOutput(output)).toContain('***');
});

it('a failed connection does not show the value of a variable', async () => {
  const { content } = await sent({ url: 'http://127.0.0.1:1/${API_KEY}' });
  expect(JSON.stringify(content)).toContain('got no answer');
  expect(JSON.stringify(content)).not.toContain(KEY);
});

it.each<[string, string, Partial<HttpCall>, string]>([
  ['a credential over plain HTTP', 'http://example.org/', { secrets: ['s'] }, 'invalid_input'],
  ['a variable over plain HTTP', 'http://example.org/${API_KEY}', {}, 'invalid_input'],
  [
    'a host that the sandbox does not list',
    'http://127.0.0.1/',
    { allowDomains: ['a.org'] },
    'sandbox_unavailable',
  ],
  [
    'a host above a listed domain',
    'https://example.org/',
    { allowDomains: ['*.example.org'] },
    'sandbox_unavailable',
  ],
  [
    'a host that parameters choose',
    'https://{host}/',
    { input: { host: 'a.org' } },
    'invalid_input',
  ],
  [
    'a parameter that climbs out of the path',
    'https://a.org/x/{p}/y',
    { input: { p: '..' } },
    'invalid_input',
  ],
  ['a variable that is not set', 'https://a.org/${NONE}', {}, 'invalid_input'],
])('a request is refused before it is sent: %s', async (_, url, more, code) => {
  await expect(sent({ url }, more)).rejects.toMatchObject({ code });
});

it('an answer that is too long, late or cancelled is an error', async () => {
  const long = await serve((_request, response) => response.end('x'.repeat(1024 * 1024 + 1)));
  expect(await sent({ url: long })).toMatchObject({ is_error: true, data: { status: 200 } });
  const whole = await serve((_request, response) => response.end('x'.repeat(1024 * 1024)));
  expect((await sent({ url: whole })).is_error).toBeFalsy();
  const silent = await serve(() => undefined);
  const late = await sent({ url: silent }, { timeoutSeconds: 0.05 });
  expect(textOfOutput(late)).toContain('got no answer within 0.05 seconds');
  const context = { callId: 'c', threadId: 't', projectPath: '/', progress: () => undefined };
  const stopped = await sent(
    { url: silent },
    { context: { ...context, signal: AbortSignal.abort() } },
  );
  expect(textOfOutput(stopped)).toContain('was cancelled');
});
