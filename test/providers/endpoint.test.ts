import { describe, expect, test } from 'vitest';
import {
  endpointOf,
  isSetUp,
  missingVariables,
  usedVariables,
  variablesOf,
} from '../../src/kernel/providers/endpoint.ts';
import { providerConfig } from './fixtures.ts';

const AZURE = providerConfig({
  baseUrl: '{AZURE_OPENAI_ENDPOINT}/openai/v1',
  baseUrlEnv: null,
  apiKeyEnv: 'AZURE_OPENAI_API_KEY',
  authTokenEnv: null,
});
const BEDROCK = providerConfig({
  baseUrl: 'https://bedrock-mantle.{AWS_REGION:us-east-1}.api.aws/anthropic',
  baseUrlEnv: null,
  apiKeyEnv: null,
  authTokenEnv: 'AWS_BEARER_TOKEN_BEDROCK',
  awsService: 'bedrock-mantle',
});

describe('an address with variables', () => {
  test.each([
    ['https://n.openai.azure.com'],
    ['https://n.openai.azure.com/'],
    ['https://n.openai.azure.com/openai/v1'],
    ['https://n.openai.azure.com/openai/v1/'],
  ])('takes %s for the endpoint of a resource', (endpoint) => {
    const { baseURL } = endpointOf(AZURE, { AZURE_OPENAI_ENDPOINT: endpoint }, 'https://x');
    expect(baseURL).toBe('https://n.openai.azure.com/openai/v1');
  });

  test('uses the default of a variable, and AWS_DEFAULT_REGION for AWS_REGION', () => {
    const at = (env: Record<string, string>) => endpointOf(BEDROCK, env, 'https://x').baseURL;
    expect(at({})).toBe('https://bedrock-mantle.us-east-1.api.aws/anthropic');
    expect(at({ AWS_DEFAULT_REGION: 'eu-west-1' })).toContain('.eu-west-1.');
    expect(at({ AWS_DEFAULT_REGION: 'eu-west-1', AWS_REGION: 'us-west-2' })).toContain(
      '.us-west-2.',
    );
  });
});

test('AWS access keys make a provider callable, and do not set it up', () => {
  const env = { AWS_ACCESS_KEY_ID: 'a', AWS_SECRET_ACCESS_KEY: 'b' };
  expect(missingVariables(BEDROCK, env)).toEqual([]);
  expect(isSetUp(BEDROCK, env)).toBe(false);
  expect(isSetUp(BEDROCK, { AWS_BEARER_TOKEN_BEDROCK: 't' })).toBe(true);
  expect(endpointOf(BEDROCK, env, '').aws).toMatchObject({ region: 'us-east-1' });
  expect(endpointOf(BEDROCK, { ...env, AWS_BEARER_TOKEN_BEDROCK: 't' }, '').aws).toBeUndefined();
  expect(missingVariables(BEDROCK, { AWS_ACCESS_KEY_ID: 'a' })).toEqual([
    'AWS_BEARER_TOKEN_BEDROCK',
  ]);
});

test('a key without the address does not set a provider up', () => {
  expect(isSetUp(AZURE, { AZURE_OPENAI_API_KEY: 'k' })).toBe(false);
  expect(isSetUp(AZURE, { AZURE_OPENAI_API_KEY: 'k', AZURE_OPENAI_ENDPOINT: 'https://x' })).toBe(
    true,
  );
});

test('a server with an optional key is set up by its address or its key', () => {
  const server = providerConfig({ keyOptional: true, apiKeyEnv: 'K', authTokenEnv: null });
  expect(missingVariables(server, {})).toEqual([]);
  expect(isSetUp(server, {})).toBe(false);
  expect(isSetUp(server, { ANTHROPIC_BASE_URL: 'http://x' })).toBe(true);
  expect(isSetUp(server, { K: 'k' })).toBe(true);
});

test('every variable of a provider is known, so that a detached thread gets it', () => {
  expect(variablesOf(AZURE)).toEqual(['AZURE_OPENAI_API_KEY', 'AZURE_OPENAI_ENDPOINT']);
  expect(variablesOf(BEDROCK)).toEqual([
    'AWS_BEARER_TOKEN_BEDROCK',
    'AWS_REGION',
    'AWS_ACCESS_KEY_ID',
    'AWS_SECRET_ACCESS_KEY',
    'AWS_SESSION_TOKEN',
    'AWS_DEFAULT_REGION',
  ]);
});

test.each<[string, Parameters<typeof providerConfig>[0], Record<string, string>, object]>([
  ['none is set', {}, {}, { key: undefined, address: undefined }],
  [
    'a key and a token are set',
    { apiKeyEnv: 'KEY', authTokenEnv: 'TOKEN', baseUrlEnv: 'URL' },
    { KEY: 'k', TOKEN: 't' },
    { key: 'KEY', address: undefined },
  ],
  [
    'a token and an address are set',
    { apiKeyEnv: 'KEY', authTokenEnv: 'TOKEN', baseUrlEnv: 'URL' },
    { TOKEN: 't', URL: 'http://x' },
    { key: 'TOKEN', address: 'URL' },
  ],
  [
    'an AWS provider has a token and access keys',
    BEDROCK,
    { AWS_BEARER_TOKEN_BEDROCK: 't', AWS_ACCESS_KEY_ID: 'a' },
    { key: 'AWS_BEARER_TOKEN_BEDROCK', address: undefined },
  ],
  [
    'an AWS provider has access keys alone',
    BEDROCK,
    { AWS_ACCESS_KEY_ID: 'a', AWS_SECRET_ACCESS_KEY: 'b' },
    { key: 'AWS_ACCESS_KEY_ID', address: undefined },
  ],
  [
    'another provider has access keys of AWS',
    { apiKeyEnv: 'KEY' },
    { AWS_ACCESS_KEY_ID: 'a', AWS_SECRET_ACCESS_KEY: 'b' },
    { key: undefined, address: undefined },
  ],
  [
    'a variable is empty',
    { apiKeyEnv: 'KEY' },
    { KEY: '' },
    { key: undefined, address: undefined },
  ],
])('the variables that are used where %s', (_, config, env, expected) => {
  expect(usedVariables(providerConfig(config), env)).toEqual(expected);
});
