import { expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import {
  environmentSecrets,
  scrubText,
  withoutSecrets,
  withoutSecretsIn,
} from '../../src/kernel/tools/secrets.ts';
import type { Tool } from '../../src/kernel/tools/tool.ts';

it('takes the values of variables for secrets, also with a slash at the beginning, but not paths and words', () => {
  const secrets = {
    AWS_SECRET_ACCESS_KEY: '/wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY',
    OTHER_SECRET: '/abc/def+1234567890',
    PGPASSWORD: 'hunter2hunter2xx',
    DEPLOY_TOKEN: 'abcdef123456',
  };
  const others = {
    TOKEN_FILE: '/run/secrets/deploy_token',
    SSH_KEY: '/home/me/.ssh/id_ed25519',
    KEY: 'short',
    SECRET_QUESTION: 'What is the name of it?',
    KEYBOARD: 'abcdef123456',
  };
  expect(environmentSecrets({ ...secrets, ...others })).toEqual(Object.values(secrets));
});

it('takes a secret out of addresses and of the hint of an error too', () => {
  const secret = 'a/b c+d"é';
  const text = `x ${secret} ${JSON.stringify(secret)} https://h/?k=${encodeURIComponent(secret)}`;
  expect(scrubText(text, [secret])).toBe('x *** "***" https://h/?k=***');
  const error = new RyeError('tool_failed', 'failed', { hint: `Try ${secret}` });
  expect(withoutSecretsIn(error, [secret])).toMatchObject({ message: 'failed', hint: 'Try ***' });
  expect(withoutSecretsIn(error, ['other'])).toBe(error);
});

it('looks for a secret that joins the list later, and makes the spellings of a frozen list once', () => {
  const secrets = ['a/b-secret-one'];
  const text = 'a/b-secret-one and c d-secret-two and c%20d-secret-two';
  const first = '*** and c d-secret-two and c%20d-secret-two';
  expect(scrubText(text, secrets)).toBe(first);
  secrets.push('c d-secret-two');
  expect(scrubText(text, secrets)).toBe('*** and *** and ***');
  const frozen = Object.freeze([...secrets]);
  expect([scrubText(text, frozen), scrubText(text, frozen)]).toEqual([
    '*** and *** and ***',
    '*** and *** and ***',
  ]);
  expect(scrubText(text, Object.freeze(['a/b-secret-one']))).toBe(first);
});

it.each([
  ['as it is', 'pä☃"x\u0001'],
  ['in JSON', JSON.stringify('pä☃"x\u0001').slice(1, -1)],
  ['in JSON of ASCII alone', 'p\\u00e4\\u2603\\"x\\u0001'],
  ['in an address', encodeURIComponent('pä☃"x\u0001')],
])('takes a secret out of a text that has it %s', (_, form) => {
  expect(scrubText(`<${form}>`, ['pä☃"x\u0001'])).toBe('<***>');
});

it('takes out a secret whole that contains another one', () => {
  expect(scrubText('abc abcdef', ['abc', 'abcdef'])).toBe('*** ***');
});

it.each([
  ['in its result', async () => ({ content: [{ type: 'text' as const, text: 'k: hunter2' }] })],
  [
    'in two pieces of its live output',
    async (progress: (text: string) => void) => {
      progress('k: hun');
      progress('ter2');
      return { content: [] };
    },
  ],
  [
    'in a failure',
    async () => {
      throw new RyeError('tool_failed', 'k: hunter2', { hint: 'Not hunter2.' });
    },
  ],
])('a tool shows no secret %s', async (_, execute) => {
  const live: string[] = [];
  const tool = {
    id: 'a/b',
    execute: async (_input: object, { progress }: { progress: (text: string) => void }) =>
      await execute(progress),
  } as unknown as Tool;
  const context = { progress: (text: string) => live.push(text) };
  const ran = withoutSecrets(tool, ['hunter2']).execute({}, context as never);
  const told = await ran.catch((error: unknown) => [String(error), (error as RyeError).hint]);
  const shown = JSON.stringify([told, live.join('')]);
  expect(shown).toContain('***');
  expect(shown).not.toContain('hunter2');
});
