import { expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { environmentSecrets, scrubText, withoutSecretsIn } from '../../src/kernel/tools/secrets.ts';

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
