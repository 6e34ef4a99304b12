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
} from '../../src/policy/error-class.ts';
import { errorPattern } from '../../src/schemas/policy.ts';

const FILE = new URL('../../.ai/config/agent/error_classification.yaml', import.meta.url);
const { patterns } = parse(readFileSync(FILE, 'utf8')) as { patterns: unknown[] };
const RULES = parseErrorRules(patterns, 'error_classification.yaml');

function facts(more: Partial<FailureFacts>): FailureFacts {
  return { phase: more.status === undefined ? 'connect' : 'response', message: 'failed', ...more };
}

describe('the shipped patterns', () => {
  test.for<[Partial<FailureFacts>, string, boolean]>([
    [{ status: 429, type: 'rate_limit_error', message: 'Rate limited' }, 'rate_limited', true],
    [{ status: 429 }, 'rate_limited', true],
    [{ status: 429, type: 'insufficient_quota' }, 'quota', false],
    [{ status: 429, message: 'You exceeded your CURRENT quota, check billing' }, 'quota', false],
    [{ status: 400, message: 'Your credit balance is too low to access the API' }, 'quota', false],
    [{ status: 402 }, 'quota', false],
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
    [exponential, 1, 0.5, undefined, 500],
    [exponential, 2, 0.5, undefined, 1000],
    [exponential, 3, 0.5, undefined, 2000],
    [exponential, 60, 0.5, undefined, 5000],
    [exponential, 5000, 0.5, undefined, 5000],
    [exponential, 1, 0, undefined, 0],
    [exponential, 1, 0.5, 9000, 500],
    [{ kind: 'fixed', delayMs: 700 }, 4, 0.9, undefined, 700],
    [{ kind: 'use_header', fallback: exponential }, 1, 0.5, 3000, 3000],
    [{ kind: 'use_header', fallback: exponential }, 1, 0.5, 0, 0],
    [{ kind: 'use_header', fallback: exponential }, 2, 0.5, undefined, 1000],
    [{ kind: 'none' }, 1, 0.5, 3000, 0],
  ] as const)(
    '%j attempt %i with %d and header %s: %i ms',
    ([policy, attempt, random, header, expected]) => {
      expect(ask(policy, attempt, random, header)).toBe(expected);
    },
  );

  test('never below zero and never above the maximum', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2000 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (attempt, random) => {
          const delay = ask(exponential, attempt, random);
          expect(delay >= 0 && delay <= 10_000).toBe(true);
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
