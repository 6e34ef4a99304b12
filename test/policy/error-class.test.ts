import { readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import {
  classify,
  type FailureFacts,
  failureCode,
  parseErrorRules,
  type RetryPolicy,
  retryDelayMs,
} from '../../src/kernel/policy/error-class.ts';
import { errorPattern } from '../../src/kernel/schemas/policy.ts';

const FILE = new URL('../../.ai/config/agent/error_classification.yaml', import.meta.url);
const { patterns } = parse(readFileSync(FILE, 'utf8')) as { patterns: unknown[] };
const RULES = parseErrorRules(patterns, 'error_classification.yaml');

function facts(more: Partial<FailureFacts>): FailureFacts {
  return { phase: more.status === undefined ? 'connect' : 'response', message: 'failed', ...more };
}

const OVERFLOWS = [
  'input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000, decrease input length or `max_tokens` and try again',
  "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
  'Input is too long for requested model.',
  'The model returned the following errors: input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000',
  'prompt token count of 136872 exceeds the limit of 128000',
  'Invalid request: Your request exceeded model token limit: 262144 (requested: 270100)',
  'Prompt exceeds max length',
  "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens",
  'Requested input length 33000 exceeds maximum allowed input length of 32768 tokens',
  "Input (40000 tokens) is longer than the model's context length (32769 tokens).",
  'prompt too long; exceeded max context length by 102 tokens',
  'prompt too long; exceeded context length by 9 tokens',
  "the model's context length is only 8192 tokens",
  '<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]',
  "The input (33212 tokens) is longer than the model's context length (32768 tokens).",
  'Input length (70000 tokens) exceeds the maximum allowed length (65536 tokens)',
  'context window exceeds limit (2013)',
  'too many tokens: total number of tokens in the prompt exceeds the limit of 128000',
  'Prompt has 300123 tokens, but the configured limit is 256000 tokens',
  'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192',
  'Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192',
  'The prompt is too long: 200000, model maximum context length: 131072',
  'The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).',
  'litellm.ContextWindowExceededError: context_length_exceeded',
  'The prompt (total length 140000) is too long to fit into the model (context length 131072).',
  'The total number of tokens (prompt + completion) exceeds the limit 65536',
  'tokens limit exceeded: input 70000, limit 65536',
  'Total tokens of image and text exceed max message tokens',
  'input token limit exceeded',
  'input too large for model context',
  'Conversation is too long. Please start a new one',
  'maximum context size 8192 exceeded: 9000 tokens',
  'The message you submitted was too long, please reload the conversation',
  'input is too large. The maximum number of input tokens is 128000',
  'model_max_prompt_tokens_exceeded',
  'exceeds maximum input length',
  "This model's max context is 32k tokens; your prompt has 40k tokens",
  'Token indices sequence length is longer than the specified maximum sequence length for this model',
  'Input text exceeds the max_seq_len',
  'inputs must have less than 32768 tokens. Given: 40000',
  'max_tokens must be at least 1, got -2000',
  'total message size 10176584 exceeds limit 2097152',
  'requested 16384 output tokens and your prompt contains at least 180225 input tokens. Please reduce the length of the input prompt; maximum context length is 196608',
  // openclaw#85921, pi#5930, openclaw#58839, pi#4943, senpi#1466, openclaw#64196, openclaw#20539
  "400 This endpoint's maximum context length is 262144 tokens. However, you requested about 284283 tokens (8963 of text input, 13176 of tool input, 262144 in the output). Please reduce the length of either one",
  "This model's maximum context length is 262144 tokens. However, you requested 0 output tokens and your prompt contains at least 262145 input tokens, for a total of at least 262145 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=262145)",
  'ValidationException: The input is too long',
  'ValidationException: Input exceeds the max input token limit',
  'ModelStreamErrorException: Input is too long',
  'ollama: context length exceeded for llama3',
  "total tokens exceeds the model's max of 4096",
  'input is too long for model gpt-5.4',
  'Input length 131393 exceeds the maximum allowed input length of 131040 tokens.',
  "Your input exceeds the model's context window",
  "The request exceeds this model's context window. Please adjust your input.",
  'request (66202 tokens) exceeds the available context size (65536 tokens), try increasing it',
  'LLM request rejected: input length and max_tokens exceed context limit: 170636 + 34048 > 200000, decrease input length or max_tokens and try again',
  // words that no list has: the numbers tell it
  'Sorry: 250,000 tokens were given, which is more than the 200,000 that fit',
  'window supports 32768 tokens, request has 40112',
  'prompt of 140_000 tokens > 131_072',
] as const;

describe('an overflow in the words of a vendor', () => {
  test.for(OVERFLOWS)('%s', (message) => {
    expect(classify(facts({ status: 400, message }), RULES).category).toBe('context_exceeded');
  });

  test.for<[number, string, string]>([
    [
      413,
      'Request too large for model in organization on tokens per minute (TPM): Limit 6000, Requested 11230',
      'rate_limited',
    ],
    [
      429,
      'Rate limit reached on tokens per minute (TPM): Limit 6000, Used 5900, Requested 400',
      'rate_limited',
    ],
    // senpi#1466
    [429, 'Too many tokens per minute', 'rate_limited'],
    [429, 'This request exceeds the limit of 30000 tokens per minute', 'rate_limited'],
    [429, 'Too many tokens, please wait before trying again.', 'rate_limited'],
    [
      400,
      'max_tokens is too large: 100000. This model supports at most 32000 completion tokens',
      'permanent',
    ],
    [
      400,
      'too many tools: 150, the limit is 128 tools and not more than 128000 tokens',
      'permanent',
    ],
    [400, 'messages.2: an image has 12000 bytes, more than 10000', 'permanent'],
    [500, 'token 200000 > 100000', 'transient'],
  ])('%d %s is none', ([status, message, category]) => {
    expect(classify(facts({ status, message }), RULES).category).toBe(category);
  });
});

describe('the shipped patterns', () => {
  test.for<[Partial<FailureFacts>, string, boolean]>([
    [{ status: 429, type: 'rate_limit_error', message: 'Rate limited' }, 'rate_limited', true],
    [{ status: 429 }, 'rate_limited', true],
    [{ status: 429, type: 'insufficient_quota' }, 'quota', false],
    [{ status: 429, message: 'You exceeded your CURRENT quota, check billing' }, 'quota', false],
    [{ status: 400, message: 'Your credit balance is too low to access the API' }, 'quota', false],
    [{ status: 402 }, 'quota', false],
    [{ phase: 'stream', message: 'insufficient balance' }, 'quota', false],
    [{ status: 429, should_retry: false }, 'rate_limited', false],
    [{ status: 529, should_retry: true }, 'transient', true],
    [{ status: 400, should_retry: true }, 'permanent', false],
    [{ phase: 'connect', type: 'ECONNREFUSED' }, 'transient', true],
    [{ phase: 'connect', type: 'EAI_AGAIN' }, 'transient', true],
    [{ phase: 'connect', type: 'ENOTFOUND' }, 'permanent', false],
    [{ phase: 'connect', type: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' }, 'permanent', false],
    [{ phase: 'connect', type: 'ERR_TLS_CERT_ALTNAME_INVALID' }, 'permanent', false],
    ...[408, 409, 425, 500, 502, 503, 504, 520, 529, 599].map(
      (status): [Partial<FailureFacts>, string, boolean] => [{ status }, 'transient', true],
    ),
    [
      {
        status: 400,
        type: 'invalid_request_error',
        message: 'prompt is too long: 210000 tokens > 200000',
      },
      'context_exceeded',
      false,
    ],
    [{ status: 400, type: 'context_length_exceeded' }, 'context_exceeded', false],
    [{ status: 400, type: 'exceed_context_size_error' }, 'context_exceeded', false],
    [{ status: 500, message: 'Context size has been exceeded.' }, 'context_exceeded', false],
    [
      { phase: 'stream', message: 'the request exceeds the available context size.' },
      'context_exceeded',
      false,
    ],
    [
      { status: 400, type: 'api_error', message: 'gemma does not support tools' },
      'permanent',
      false,
    ],
    [{ status: 429, type: 'api_error' }, 'rate_limited', true],
    [{ status: 409, type: 'api_error' }, 'transient', true],
    [{ status: 413, type: 'request_too_large' }, 'context_exceeded', false],
    [{ status: 400, type: 'invalid_request_error' }, 'permanent', false],
    [{ status: 404, type: 'not_found_error' }, 'permanent', false],
    [{ status: 422 }, 'permanent', false],
    [{ status: 401 }, 'auth', false],
    [{ status: 403, type: 'permission_error' }, 'auth', false],
    [{ type: 'provider_key_missing' }, 'auth', false],
    [{ phase: 'stream', type: 'overloaded_error' }, 'transient', true],
    [{ phase: 'stream', type: 'RATE_LIMIT_ERROR' }, 'rate_limited', true],
    [{ phase: 'stream', type: 'api_error' }, 'transient', true],
    [{ phase: 'stream', type: 'incomplete_stream' }, 'transient', true],
    [{ phase: 'stream', type: 'UND_ERR_SOCKET' }, 'transient', true],
    [{ phase: 'stream', type: 'ECONNRESET' }, 'transient', true],
    [{ phase: 'stream', type: 'malformed_event' }, 'transient', true],
    [{ phase: 'stream', type: 'invalid_request_error' }, 'permanent', false],
    [{ phase: 'stalled' }, 'transient', true],
    [{ phase: 'connect', type: 'ECONNREFUSED' }, 'transient', true],
    [{ phase: 'connect', type: 'ENOTFOUND' }, 'permanent', false],
    [{ phase: 'connect', type: 'ERR_INVALID_URL' }, 'permanent', false],
    [{ phase: 'aborted', status: 500 }, 'cancelled', false],
    [{ phase: 'response', type: 'literal_unsupported' }, 'permanent', false],
    [
      { phase: 'response', type: 'literal_step_failed', message: 'exceeds the context' },
      'permanent',
      false,
    ],
    [{ phase: 'response', type: 'replay_exhausted' }, 'permanent', false],
    [{ phase: 'response', status: 200, type: 'unexpected_content_type' }, 'permanent', false],
    [{ phase: 'response', type: 'content_filter' }, 'content_filtered', false],
    // Requirement: provider-failure-class
  ])('%j is %s', ([failure, category, retryable]) => {
    expect(classify(facts(failure), RULES)).toMatchObject({ category, retryable });
  });

  // Requirement: rate-limit-misread
  test.each([
    ['cannot reach 127.0.0.1:11434: ECONNREFUSED', 3],
    ['cannot reach localhost:8000: ECONNREFUSED', 3],
    ['cannot reach gpu.example.org:8000: ECONNREFUSED', undefined],
  ])('%s is retried %s times at most', (message, maxRetries) => {
    const failure = facts({ phase: 'connect', type: 'ECONNREFUSED', message });
    expect(classify(failure, RULES).maxRetries).toBe(maxRetries);
  });

  test('a 429 does as the server asks, else it backs off', () => {
    const { policy } = classify(facts({ status: 429 }), RULES);
    expect(policy).toEqual({
      kind: 'use_header',
      fallback: { kind: 'exponential', baseMs: 2000, maxMs: 60_000 },
    });
  });

  // Requirement: class-error-code
  test('anything at all gets a category', () => {
    const any = fc.record({
      message: fc.string(),
      phase: fc.string(),
      status: fc.integer({ min: 100, max: 700 }),
      type: fc.string(),
    });
    fc.assert(
      fc.property(any, (failure) => {
        expect(errorPattern.shape.category.options).toContain(classify(failure, RULES).category);
      }),
      { numRuns: 300, seed: 7 },
    );
  });

  test('without patterns everything is permanent', () => {
    expect(classify(facts({ status: 503 }), [])).toEqual({
      id: 'default',
      category: 'permanent',
      retryable: false,
      policy: { kind: 'none' },
    });
  });
});

describe('patterns', () => {
  test('any value within a key, all keys, the first pattern that fits', () => {
    const rules = parseErrorRules(
      [
        {
          id: 'both',
          match: { status: [400, 500], message: ['Alpha', 'beta'] },
          category: 'quota',
        },
        { id: 'one', match: { status: 500 }, category: 'transient', retryable: false },
      ],
      'x.yaml',
    );
    const idOf = (status: number, message: string): string =>
      classify(facts({ status, message }), rules).id;
    expect(idOf(400, 'ALPHA one')).toBe('both');
    expect(idOf(500, 'xbetax')).toBe('both');
    expect(idOf(500, 'gamma')).toBe('one');
    expect(idOf(400, 'gamma')).toBe('default');
    expect(classify(facts({ status: 500 }), rules).retryable).toBe(false);
  });

  test.for<[unknown, string]>([
    ['text', 'patterns[0] is not a mapping'],
    [{ category: 'auth' }, 'patterns[0].match is not a mapping'],
    [{ match: {}, category: 'auth' }, 'patterns[0].match has no condition'],
    [{ match: { status: [] }, category: 'auth' }, 'match.status is an empty list'],
    [{ match: { status: ['6xx'] }, category: 'auth' }, 'match.status[0] is "6xx"'],
    [{ match: { message: [''] }, category: 'auth' }, 'match.message[0] is "", not a text'],
    [{ match: { statsu: [1] }, category: 'auth' }, 'match has the unknown key statsu'],
    [{ match: { status: 400 }, category: 'annoying' }, 'category is "annoying"'],
    [
      { match: { status: 400 }, category: 'auth', retryable: 'no' },
      'retryable is not true or false',
    ],
    [
      { match: { status: 400 }, category: 'auth', retry: { policy: 'sometimes' } },
      'retry.policy is "sometimes"',
    ],
    [
      { match: { status: 400 }, category: 'auth', retry: { policy: 'fixed', delay_seconds: -1 } },
      'delay_seconds is -1',
    ],
    [
      {
        match: { status: 400 },
        category: 'auth',
        retry: { policy: 'exponential', jitter: 'half' },
      },
      'jitter is "half"',
    ],
    [
      { match: { status: 400 }, category: 'auth', retry: { policy: 'use_header', fallback: 7 } },
      'fallback is not a mapping',
    ],
  ])('%j is refused', ([pattern, message]) => {
    expect(() => parseErrorRules([pattern], 'x.yaml')).toThrow(
      expect.objectContaining({
        code: 'config_invalid',
        message: expect.stringContaining(message),
      }),
    );
  });
});

describe('delays', () => {
  const exponential: RetryPolicy = { kind: 'exponential', baseMs: 1000, maxMs: 10_000 };
  const ask = (
    policy: RetryPolicy,
    attempt: number,
    random: number,
    retryAfterMs?: number,
  ): number => retryDelayMs({ policy, attempt, retryAfterMs, random: () => random });

  test.for([
    [exponential, 1, 0.5, undefined, 750],
    [exponential, 2, 0.5, undefined, 1500],
    [exponential, 3, 0.5, undefined, 3000],
    [exponential, 60, 0.5, undefined, 7500],
    [exponential, 5000, 0.5, undefined, 7500],
    [exponential, 1, 0, undefined, 500],
    [exponential, 1, 1, undefined, 1000],
    [{ ...exponential, jitter: 'full' }, 1, 0, undefined, 0],
    [{ ...exponential, jitter: 'full' }, 3, 0.5, undefined, 2000],
    [exponential, 1, 0.5, 9000, 750],
    [{ kind: 'fixed', delayMs: 700 }, 4, 0.9, undefined, 700],
    [{ kind: 'use_header', fallback: exponential }, 1, 0.5, 3000, 3000],
    [{ kind: 'use_header', fallback: exponential }, 1, 0.5, 0, 0],
    [{ kind: 'use_header', fallback: exponential }, 2, 0.5, undefined, 1500],
    [{ kind: 'none' }, 1, 0.5, 3000, 0],
  ] as const)(
    '%j attempt %i with %d and header %s: %i ms',
    ([policy, attempt, random, header, expected]) => {
      expect(ask(policy, attempt, random, header)).toBe(expected);
    },
  );

  test('never below half of the exponential delay and never above the maximum', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2000 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (attempt, random) => {
          const delay = ask(exponential, attempt, random);
          const most = Math.min(10_000, 1000 * 2 ** (attempt - 1));
          expect(delay >= most / 2 && delay <= most).toBe(true);
        },
      ),
      { numRuns: 200, seed: 7 },
    );
  });
});

test.for([
  ['rate_limited', undefined, 'provider_rate_limited'],
  ['transient', 'ECONNRESET', 'provider_unreachable'],
  ['permanent', 'invalid_request_error', 'provider_rejected'],
  ['permanent', 'constructor', 'provider_rejected'],
  ['permanent', 'internal', 'provider_rejected'],
  ['permanent', 'literal_unsupported', 'literal_unsupported'],
  ['permanent', 'literal_step_failed', 'tool_failed'],
  ['permanent', 'replay_exhausted', 'replay_exhausted'],
  ['auth', 'provider_key_missing', 'provider_key_missing'],
  ['cancelled', undefined, 'cancelled'],
  // Requirement: class-error-code
] as const)('a failure of the category %s and the type %s ends as %s', ([category, type, code]) => {
  expect(failureCode(category, type)).toBe(code);
});
