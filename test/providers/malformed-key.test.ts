import { expect, test } from 'vitest';
import { anthropicProvider } from '../../src/kernel/providers/anthropic/provider.ts';
import { openAiProvider } from '../../src/kernel/providers/openai/provider.ts';
import { aRequest, collect, failureIn } from '../../testing/conformance/provider.ts';
import { startWireServer } from '../helpers/wire-server.ts';
import { providerConfig, systemClock } from './fixtures.ts';

const KEYS: readonly (readonly [string, string])[] = [
  ['a space', 'sk-two words'],
  ['a line feed', 'sk-one\ntwo'],
  ['a character outside ASCII', 'sk-schlüssel'],
];

/** A server counts what it is asked; the provider has its address, and a key in the variable KEY. */
async function askedWith(
  kind: 'anthropic' | 'openai',
  name: 'apiKeyEnv' | 'authTokenEnv',
  key: string,
) {
  const server = await startWireServer([]);
  try {
    const dialect = kind === 'openai' ? { kind, name: kind, dialect: kind } : { kind };
    const config = providerConfig({
      ...dialect,
      baseUrlEnv: 'URL',
      apiKeyEnv: null,
      authTokenEnv: null,
      [name]: 'KEY',
    });
    const setup = { config, env: { URL: server.url, KEY: key }, clock: systemClock };
    const open = kind === 'openai' ? openAiProvider : anthropicProvider;
    const events = await collect(open({ ...setup, stallSeconds: 60 }), aRequest());
    return { failure: failureIn(events), asked: server.requests.length };
  } finally {
    await server.close();
  }
}

const ROWS = (['anthropic', 'openai'] as const).flatMap((kind) =>
  (['apiKeyEnv', 'authTokenEnv'] as const).flatMap((name) =>
    KEYS.map(([what, key]) => [kind, name, what, key] as const),
  ),
);

test.each(ROWS)('%s refuses a key (%s) with %s before it asks', async (kind, name, _, key) => {
  const { failure, asked } = await askedWith(kind, name, key);
  expect(failure).toMatchObject({ phase: 'connect', type: 'provider_key_malformed' });
  expect(failure.message).toContain('the key in KEY');
  expect(failure.message).not.toContain(key);
  expect(asked).toBe(0);
});
