import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../src/kernel/app/system.ts';
import { NO_USAGE } from '../../../src/kernel/core/usage.ts';
import type { Dialect } from '../../../src/kernel/providers/catalog.ts';
import { openAiProvider } from '../../../src/kernel/providers/openai/provider.ts';
import { usageOfRecord } from '../../../src/kernel/providers/openai/stream.ts';
import { providerConfig } from '../fixtures.ts';

/** A server that has the record of one answer; returns the requests that it got. */
async function recordOf(id: string, data: object) {
  const asked: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url} ${request.headers.authorization}`);
    const isKnown = request.url?.endsWith(`?id=${id}`) === true;
    response.writeHead(isKnown ? 200 : 404, { 'content-type': 'application/json' });
    response.end(JSON.stringify(isKnown ? { data } : { error: { code: 404, message: 'none' } }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/api/v1`, asked };
}

function providerAt(baseUrl: string, dialect: Dialect) {
  const config = providerConfig({
    kind: 'openai',
    dialect,
    baseUrl,
    baseUrlEnv: null,
    apiKeyEnv: 'KEY',
  });
  return openAiProvider({ config, env: { KEY: 'k' }, clock: systemClock, stallSeconds: 5 });
}

const { signal } = new AbortController();

it('OpenRouter tells what an answer cost whose connection was cut', async () => {
  const tokens = { native_tokens_prompt: 100, native_tokens_completion: 40 };
  const more = { native_tokens_cached: 70, native_tokens_reasoning: 12, cancelled: true };
  const { url, asked } = await recordOf('gen-1', { ...tokens, ...more });
  const provider = providerAt(url, 'openrouter');
  const usage = { ...NO_USAGE, input_tokens: 30, cache_read_tokens: 70, output_tokens: 40 };
  expect(await provider.settle?.('gen-1', signal)).toEqual(usage);
  expect(asked).toEqual(['GET /api/v1/generation?id=gen-1 Bearer k']);
  await expect(provider.settle?.('gen-2', signal)).rejects.toMatchObject({ status: 404 });
});

it('servers that have no such record are not asked', () => {
  for (const dialect of ['compatible', 'openai', 'groq'] as const) {
    expect(providerAt('http://127.0.0.1:9', dialect).settle).toBeUndefined();
  }
});

it.each([null, {}, { data: null }, { data: {} }, { data: { native_tokens_prompt: null } }])(
  'a record without counts is none: %j',
  (raw) => expect(usageOfRecord(raw)).toBeUndefined(),
);
