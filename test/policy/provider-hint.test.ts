import { expect, test } from 'vitest';
import { type FailedCall, providerHint } from '../../src/kernel/policy/provider-hint.ts';

const facts = { access: 'key: SOME_KEY, from ~/.ai/.env' };
const CALL = { category: 'transient', message: 'no', threadId: 'hello-7f3k', facts } as const;

test.each([
  [{ category: 'auth' }, 'Correct the key. Then: rye threads resume hello-7f3k'],
  [
    { category: 'auth', type: 'provider_key_missing' },
    'Set the key in the environment or in ~/.ai/.env. Then: rye threads resume hello-7f3k',
  ],
  [
    { category: 'permanent', status: 400, message: 'API key not valid.' },
    'Correct the key. Then: rye threads resume hello-7f3k',
  ],
  [
    { category: 'quota' },
    'Check the plan and billing of the account. Then: rye threads resume hello-7f3k',
  ],
  [{}, 'When the provider answers again: rye threads resume hello-7f3k'],
  [
    { message: 'cannot reach localhost:11434: ECONNREFUSED' },
    'Start the server. Then: rye threads resume hello-7f3k',
  ],
  [
    { message: 'cannot reach api.example.org: ECONNREFUSED' },
    'When the provider answers again: rye threads resume hello-7f3k',
  ],
  [
    { category: 'rate_limited' },
    'Wait, or configure a fallback model. Then: rye threads resume hello-7f3k',
  ],
  [
    { category: 'rate_limited', after: '05:42 UTC' },
    'Wait until 05:42 UTC, or configure a fallback model. Then: rye threads resume hello-7f3k',
  ],
  [
    { category: 'context_exceeded' },
    'Compact it (rye threads compact hello-7f3k), or choose a model with a larger context window. Then: rye threads resume hello-7f3k',
  ],
  [
    { category: 'content_filtered' },
    'Change the question or its context. Then: rye threads resume hello-7f3k',
  ],
  [
    { category: 'permanent' },
    'Check the model (rye models list) and the address of its provider. Then: rye threads resume hello-7f3k',
  ],
  [
    {
      category: 'permanent',
      status: 404,
      message: 'model: x',
      facts: { ...facts, near: 'Did you mean y?' },
    },
    'Did you mean y? Pass --model with one of: rye models list. If the directive names the model, correct it. Then: rye threads resume hello-7f3k --refresh',
  ],
] as const satisfies readonly (readonly [Partial<FailedCall>, string])[])(
  'the hint for %j names what to do, the command and the key',
  (call, expected) => {
    expect(providerHint({ ...CALL, ...call })).toBe(`${expected} (${facts.access})`);
  },
);

test('a call of no thread can be repeated', () => {
  expect(providerHint({ category: 'transient', message: 'no' })).toBe(
    'When the provider answers again: run the command again',
  );
});

test.each([
  ['messages.3.content.0: bad', 400, true],
  ["Invalid type for 'messages[7].content'", 400, true],
  ['messages.3.content.0: bad', 529, false],
  ['no messages', 400, false],
])('a refusal of %j (%d) leads to a branch before it: %s', (message, status, isAbout) => {
  const hint = providerHint({ ...CALL, category: 'permanent', message, status });
  expect(hint.includes('rye threads resume hello-7f3k --from ENTRY')).toBe(isAbout);
});
