import { expect, test } from 'vitest';
import { type FailureContext, failureOf } from '../../src/kernel/providers/failure.ts';

const NOW = Date.UTC(2026, 10, 21, 12);
const KEY = 'sk-proj-Ab12Cd34Ef56Gh78';
const CONTEXT: FailureContext = {
  phase: 'connect',
  stalled: undefined,
  aborted: false,
  host: 'api.example.org',
  nowMs: NOW,
  secrets: [KEY],
};

function refused(status: number, headers: Record<string, string>, message = 'not now') {
  const error = { status, headers: new Headers(headers), error: { message } };
  return failureOf(error, CONTEXT);
}

const TEN_DAYS = 864_000;

test.for([
  [{ 'retry-after': String(TEN_DAYS) }, TEN_DAYS * 1000],
  [{ 'retry-after': 'Tue, 01 Dec 2026 12:00:00 GMT' }, TEN_DAYS * 1000],
  [{ 'retry-after': '-5' }, undefined],
  [{ 'retry-after': '1e400' }, undefined],
  [{ 'retry-after-ms': '-1' }, undefined],
  [{ 'retry-after': '' }, undefined],
] as const)('headers %j of a refusal ask to wait %s ms', ([headers, expected]) => {
  expect(refused(529, headers).retry_after_ms).toBe(expected);
});

test('an endless number of seconds is a finite wait', () => {
  const wait = refused(429, { 'retry-after': '9'.repeat(400) }).retry_after_ms ?? 0;
  expect(wait).toBeGreaterThan(TEN_DAYS * 1000);
  expect(new Date(NOW + wait).getTime()).not.toBeNaN();
});

test.for([
  ['Please try again in 7m12s. Visit the console.', 432_000],
  ['Please try again in 120ms.', 120],
  ['Please retry in 34.074s.', 34_074],
  ['Try again in 2 minutes', undefined],
  ['try again in 5smile', undefined],
] as const)('the message %j of a 429 asks to wait %s ms', ([message, expected]) => {
  expect(refused(429, {}, message).retry_after_ms).toBe(expected);
  expect(refused(400, {}, message).retry_after_ms).toBeUndefined();
});

test.for([
  ['the bucket that is empty', { requests: ['12', '1s'], tokens: ['0', '6m0s'] }, 360_000],
  ['the slowest of two', { requests: ['0', '90'], tokens: ['0', '1.5s'] }, 90_000],
  ['no bucket that has room', { requests: ['3', '1h'] }, undefined],
  ['no text that is no time', { requests: ['0', 'soon'] }, undefined],
] as const)('reset headers tell of %s', ([, buckets, expected]) => {
  const headers = Object.fromEntries(
    Object.entries(buckets).flatMap(([name, [remaining, reset]]) => [
      [`x-ratelimit-remaining-${name}`, remaining],
      [`x-ratelimit-reset-${name}`, reset],
    ]),
  );
  expect(refused(429, headers).reset_ms).toBe(expected);
  expect(refused(429, { ...headers, 'retry-after': '1' }).reset_ms).toBeUndefined();
  expect(refused(529, headers).reset_ms).toBeUndefined();
});

test.for([
  { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW + 3_600_000) },
  { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW / 1000 + 3600) },
  {
    'anthropic-ratelimit-input-tokens-remaining': '0',
    'anthropic-ratelimit-input-tokens-reset': '2026-11-21T13:00:00Z',
  },
])('a window that ends at a point in time is waited for: %j', (headers) => {
  expect(refused(429, headers as Record<string, string>).retry_after_ms).toBe(3_600_000);
});

test.for([
  ['false', false],
  ['true', true],
  ['maybe', undefined],
] as const)('x-should-retry: %s is told as %s', ([value, expected]) => {
  expect(refused(429, { 'x-should-retry': value }).should_retry).toBe(expected);
});

test.for([
  `Incorrect API key provided: ${KEY}.`,
  'Incorrect API key provided: sk-proj-********************Gh78. Find yours in the console.',
  'key sk-pr...Gh78 is not valid',
  'key ****Gh78 is not valid',
  'key sk-proj-Ab… is not valid',
])('%j repeats no part of the key', (message) => {
  const shown = refused(401, {}, message).message;
  for (const part of ['sk-p', 'Gh78', 'Ab12']) expect(shown).not.toContain(part);
  expect(shown).toContain('***');
});

test('a message with an ellipsis or a list of stars stays', () => {
  const message = 'one moment... see **bold** and sky*light';
  expect(refused(401, {}, message).message).toBe(message);
});
