import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import { shippedKinds } from '../../src/kernel/app/models.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { classify, parseErrorRules } from '../../src/kernel/policy/error-class.ts';
import {
  type Catalog,
  type ProviderConfig,
  parseCatalog,
} from '../../src/kernel/providers/catalog.ts';
import { kindNamed, type ModelProvider } from '../../src/kernel/providers/provider.ts';
import {
  aRequest,
  collect,
  describeProvider,
  failureIn,
  type Opened,
} from '../../testing/conformance/provider.ts';
import { type ChatTurn, chatText, startChatServer } from '../helpers/chat-server.ts';
import { spoken } from '../helpers/vendor-wires.ts';
import { startWireServer, text, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import { planOf } from '../loop/scripted.ts';
import { systemClock } from './fixtures.ts';

const SHIPPED = new URL('../../.ai/config/agent/', import.meta.url);
const FOLDER = new URL('providers/', SHIPPED);
const KINDS = shippedKinds();
const CATALOG = shipped();
const KEY = 'sk-vendor-51c7';
const AWS = {
  AWS_ACCESS_KEY_ID: 'AKIDEXAMPLE',
  AWS_SECRET_ACCESS_KEY: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
};

function shipped(): Catalog {
  const files = readdirSync(FOLDER).map((file) => {
    const value = parse(readFileSync(new URL(file, FOLDER), 'utf8')) as JsonObject;
    return [file.replace('.yaml', ''), { value, origins: new Map<string, string>() }] as const;
  });
  return parseCatalog(Object.fromEntries(files), KINDS);
}

function configOf(name: string): ProviderConfig {
  const config = CATALOG[name];
  if (config === undefined) throw new Error(`${name} is not shipped`);
  return config;
}

function modelOf(name: string): string {
  return configOf(name).tiers['general'] ?? '';
}

/** The shipped provider as a user sets it up, except for its address. */
function vendor(name: string, url: string, env: Readonly<Record<string, string>> = {}) {
  const config = configOf(name);
  const { apiKeyEnv, authTokenEnv, baseUrlEnv, kind } = config;
  const address = { [baseUrlEnv ?? 'AZURE_OPENAI_ENDPOINT']: url };
  const variable = apiKeyEnv ?? authTokenEnv;
  const key = variable === null || 'AWS_ACCESS_KEY_ID' in env ? {} : { [variable]: KEY };
  return kindNamed(KINDS, kind).open({
    config,
    catalog: CATALOG,
    plan: planOf({}),
    env: { ...address, ...key, ...env },
    clock: systemClock,
    stallSeconds: 60,
  });
}

async function chat(name: string, turn: ChatTurn): Promise<Opened> {
  const server = await startChatServer(() => turn, configOf(name).dialect);
  return {
    provider: vendor(name, server.url),
    request: aRequest({ model: modelOf(name) }),
    close: server.close,
    disconnected: async () => (await server.request(0)).closed,
  };
}

async function messages(name: string, turn: WireTurn): Promise<Opened> {
  const server = await startWireServer(() => turn);
  return {
    provider: vendor(name, server.url, name === 'bedrock' ? AWS : {}),
    request: aRequest({ model: modelOf(name) }),
    close: server.close,
    disconnected: async () => (await server.request(0)).closed,
  };
}

const FOREVER = { kind: 'wait', until: new Promise(() => undefined) } as const;
const SKIPS = { flooding: 'the adapters of both wires pass it in conformance.test.ts' };

for (const { name, kind, dialect } of Object.values(CATALOG)) {
  describeProvider(
    `the shipped provider ${name}`,
    kind === 'openai'
      ? {
          answering: async (scenario) => await chat(name, spoken(dialect, scenario, modelOf(name))),
          failing: async () => await chat(name, { status: 500, error: { message: 'broken here' } }),
          hanging: async () => await chat(name, { steps: [...chatText('a'), FOREVER] }),
          skips: SKIPS,
        }
      : {
          answering: async ({ text: words, calls }) =>
            await messages(name, {
              steps: [text(words), ...calls.map((call) => toolUse(call.name, call.input))],
            }),
          failing: async () =>
            await messages(name, { status: 500, error: { type: 'api_error', message: 'broken' } }),
          hanging: async () => await messages(name, { steps: [text('a'), FOREVER] }),
          skips: SKIPS,
        },
  );
}

describe('where the shipped providers send a request, and with which credential', () => {
  async function asked(name: string, options: Readonly<Record<string, string>> = {}) {
    const isChat = configOf(name).kind === 'openai';
    const server = isChat
      ? await startChatServer(() => ({ steps: chatText('x') }), configOf(name).dialect)
      : await startWireServer(() => ({ steps: [text('x')] }));
    onTestFinished(async () => await server.close());
    const url = name === 'azure' ? server.url.replace(/\/v1$/, '') : server.url;
    const provider: ModelProvider = vendor(name, url, options);
    const events = await collect(provider, aRequest({ model: modelOf(name) }));
    expect(events.at(-1)).toMatchObject({ type: 'finish' });
    const [request] = server.requests;
    return { path: request?.path, headers: request?.headers ?? {} };
  }

  test.each(['gemini', 'groq', 'mistral', 'openai', 'openrouter', 'vllm', 'lmstudio'])(
    '%s: chat completions with a bearer key',
    async (name) => {
      const { path, headers } = await asked(name);
      expect(path).toBe('/v1/chat/completions');
      expect(headers.authorization).toBe(`Bearer ${KEY}`);
    },
  );

  test('azure: below the endpoint of the resource, with the header api-key', async () => {
    const { path, headers } = await asked('azure');
    expect(path).toBe('/openai/v1/chat/completions');
    expect(headers).toMatchObject({ 'api-key': KEY });
    expect(headers.authorization).toBeUndefined();
  });

  test('azure: a token of Entra is a bearer token', async () => {
    const token = { AZURE_OPENAI_API_KEY: '', AZURE_OPENAI_AD_TOKEN: 'entra-77' };
    const { headers } = await asked('azure', token);
    expect(headers.authorization).toBe('Bearer entra-77');
    expect(headers).not.toHaveProperty('api-key');
  });

  test('ollama, vllm and lmstudio are asked without a key', async () => {
    for (const [name, variable] of [
      ['ollama', 'NONE'],
      ['vllm', 'VLLM_API_KEY'],
      ['lmstudio', 'LM_API_TOKEN'],
    ] as const) {
      const { headers } = await asked(name, { [variable]: '' });
      expect(headers.authorization).toBeUndefined();
    }
  });

  test('bedrock: a Bedrock API key is a bearer token', async () => {
    const { path, headers } = await asked('bedrock');
    expect(path).toBe('/v1/messages');
    expect(headers.authorization).toBe(`Bearer ${KEY}`);
    expect(headers).not.toHaveProperty('x-api-key');
  });

  test.each(['bedrock', 'bedrock-open'])('%s: access keys sign the request', async (name) => {
    const { headers } = await asked(name, {
      ...AWS,
      AWS_SESSION_TOKEN: 'st',
      AWS_REGION: 'eu-x-1',
    });
    expect(headers.authorization).toMatch(
      /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/\d{8}\/eu-x-1\/bedrock-mantle\/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature=[0-9a-f]{64}$/,
    );
    expect(headers).toMatchObject({ 'x-amz-security-token': 'st' });
    expect(headers).not.toHaveProperty('x-api-key');
  });
});

const { patterns } = parse(readFileSync(new URL('error_classification.yaml', SHIPPED), 'utf8')) as {
  patterns: unknown[];
};
const RULES = parseErrorRules(patterns, 'error_classification.yaml');

interface Reported {
  readonly vendor: string;
  readonly what: string;
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: unknown;
  readonly category: string;
  readonly waitMs?: number;
}

/** Errors as the vendors document or send them. */
const ERRORS: readonly Reported[] = [
  {
    vendor: 'gemini',
    what: 'a limit per minute, with the time to wait in the body',
    status: 429,
    body: [
      {
        error: {
          code: 429,
          message: 'You exceeded your current quota, please check your plan and billing details.',
          status: 'RESOURCE_EXHAUSTED',
          details: [
            { '@type': 'type.googleapis.com/google.rpc.QuotaFailure', violations: [] },
            { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '34.5s' },
          ],
        },
      },
    ],
    category: 'rate_limited',
    waitMs: 34_500,
  },
  {
    vendor: 'gemini',
    what: 'a quota per day, with a time to wait that does not help',
    status: 429,
    body: [
      {
        error: {
          code: 429,
          message: 'You exceeded your current quota. Please retry in 34.5s.',
          status: 'RESOURCE_EXHAUSTED',
          details: [
            {
              '@type': 'type.googleapis.com/google.rpc.QuotaFailure',
              violations: [{ quotaId: 'GenerateRequestsPerDayPerProjectPerModel-FreeTier' }],
            },
            { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '34.5s' },
          ],
        },
      },
    ],
    category: 'quota',
    waitMs: 34_500,
  },
  {
    vendor: 'openai',
    what: 'a limit of requests per day, with the time to wait in the message alone',
    status: 429,
    body: {
      error: {
        message:
          'Rate limit reached for gpt-6 on requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in 7m12s.',
        type: 'requests',
        code: 'rate_limit_exceeded',
      },
    },
    category: 'rate_limited',
    waitMs: 432_000,
  },
  {
    vendor: 'openai',
    what: 'an exhausted account',
    status: 429,
    body: {
      error: {
        message: 'You exceeded your current quota, please check your plan and billing details.',
        type: 'insufficient_quota',
        code: 'insufficient_quota',
      },
    },
    category: 'quota',
  },
  {
    vendor: 'gemini',
    what: 'a prompt that is too long',
    status: 400,
    body: [
      {
        error: {
          code: 400,
          message:
            'The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).',
          status: 'INVALID_ARGUMENT',
        },
      },
    ],
    category: 'context_exceeded',
  },
  {
    vendor: 'gemini',
    what: 'a wrong key',
    status: 400,
    body: [{ error: { code: 400, message: 'API key not valid.', status: 'INVALID_ARGUMENT' } }],
    category: 'permanent',
  },
  {
    vendor: 'azure',
    what: 'a limit of tokens',
    status: 429,
    headers: { 'retry-after': '7', 'retry-after-ms': '6400' },
    body: {
      error: { code: '429', message: 'Requests to this deployment have exceeded the limit' },
    },
    category: 'rate_limited',
    waitMs: 6400,
  },
  {
    vendor: 'azure',
    what: 'a filtered prompt',
    status: 400,
    body: {
      error: {
        message: 'The response was filtered.',
        type: null,
        param: 'prompt',
        code: 'content_filter',
        status: 400,
        innererror: { code: 'ResponsibleAIPolicyViolation' },
      },
    },
    category: 'content_filtered',
  },
  {
    vendor: 'azure',
    what: 'a deployment that does not exist',
    status: 404,
    body: { error: { code: 'DeploymentNotFound', message: 'The API deployment does not exist.' } },
    category: 'permanent',
  },
  {
    vendor: 'mistral',
    what: 'a limit',
    status: 429,
    body: {
      object: 'error',
      message: 'Rate limit exceeded',
      type: 'rate_limited',
      param: null,
      code: '1300',
    },
    category: 'rate_limited',
  },
  {
    vendor: 'mistral',
    what: 'a prompt that is too long',
    status: 400,
    body: {
      object: 'error',
      message:
        'Prompt contains 300001 tokens and 0 draft tokens, too large for model with 262144 maximum context length',
      type: 'invalid_request_error',
      param: null,
      code: '3051',
    },
    category: 'context_exceeded',
  },
  {
    vendor: 'mistral',
    what: 'members that it refuses, as a list',
    status: 422,
    body: { detail: [{ type: 'extra_forbidden', loc: ['body', 'x'], msg: 'not permitted' }] },
    category: 'permanent',
  },
  {
    vendor: 'groq',
    what: 'a limit',
    status: 429,
    headers: { 'retry-after': '2' },
    body: {
      error: {
        message: 'Rate limit reached for model in organization on tokens per minute (TPM)',
        type: 'tokens',
        code: 'rate_limit_exceeded',
      },
    },
    category: 'rate_limited',
    waitMs: 2000,
  },
  {
    vendor: 'groq',
    what: 'a call that the model wrote wrongly',
    status: 400,
    body: {
      error: {
        message: 'Failed to call a function. Please adjust your prompt.',
        type: 'invalid_request_error',
        code: 'tool_use_failed',
        failed_generation: '<function=ls>',
      },
    },
    category: 'transient',
  },
  {
    vendor: 'groq',
    what: 'a prompt that is too long',
    status: 400,
    body: {
      error: {
        message: 'Please reduce the length of the messages or completion.',
        type: 'invalid_request_error',
        code: 'context_length_exceeded',
      },
    },
    category: 'context_exceeded',
  },
  {
    vendor: 'vllm',
    what: 'a prompt that is too long',
    status: 400,
    body: {
      error: {
        message:
          "This model's maximum context length is 32768 tokens. However, you requested more.",
        type: 'BadRequestError',
        param: 'input_tokens',
        code: 400,
      },
    },
    category: 'context_exceeded',
  },
  {
    vendor: 'lmstudio',
    what: 'a prompt that is too long, as a text',
    status: 400,
    body: {
      error:
        'The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length.',
    },
    category: 'context_exceeded',
  },
  {
    vendor: 'bedrock',
    what: 'a limit',
    status: 429,
    body: {
      type: 'error',
      error: { type: 'rate_limit_error', message: 'Too many tokens, please wait before retrying.' },
    },
    category: 'rate_limited',
  },
  {
    vendor: 'bedrock',
    what: 'a signature that AWS refuses',
    status: 403,
    body: { message: 'The security token included in the request is invalid.' },
    category: 'auth',
  },
];

describe('what an error of a vendor means', () => {
  test.each(ERRORS)('$vendor: $what is $category', async (reported) => {
    const { vendor: name, status, headers = {}, category, waitMs } = reported;
    const answer = { status, headers, body: JSON.stringify(reported.body) };
    const turn = { ...answer, headers: { ...headers, 'content-type': 'application/json' } };
    const { provider, request, close } = await (configOf(name).kind === 'openai'
      ? chat(name, turn)
      : messages(name, turn));
    onTestFinished(async () => await close?.());
    const failure = failureIn(await collect(provider, request));
    expect(classify(failure, RULES)).toMatchObject({ category });
    expect(failure.retry_after_ms).toBe(waitMs);
    expect(failure.message.length).toBeGreaterThan(10);
    expect(JSON.stringify(failure)).not.toContain(KEY);
  });
});

describe('a provider that is not set up', () => {
  const ask = async (name: string, env: Readonly<Record<string, string>>) => {
    const { kind } = configOf(name);
    const provider = kindNamed(KINDS, kind).open({
      config: configOf(name),
      catalog: CATALOG,
      plan: planOf({}),
      env,
      clock: systemClock,
      stallSeconds: 60,
    });
    return failureIn(await collect(provider, aRequest({ model: modelOf(name) })));
  };

  test.each([
    ['gemini', {}, 'the provider gemini has no key: set GEMINI_API_KEY'],
    [
      'azure',
      {},
      'the provider azure has no key: set AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT',
    ],
    [
      'azure',
      { AZURE_OPENAI_API_KEY: KEY },
      'the provider azure has no address: set AZURE_OPENAI_ENDPOINT',
    ],
    [
      'bedrock',
      { AWS_ACCESS_KEY_ID: 'A' },
      'the provider bedrock has no key: set AWS_BEARER_TOKEN_BEDROCK',
    ],
  ] as const)('%s with %j asks for its variables', async (name, env, message) => {
    expect(await ask(name, env)).toMatchObject({ type: 'provider_key_missing', message });
  });
});
