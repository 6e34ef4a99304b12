import { expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import type { Rye } from '../../../src/kernel/app/api/rye.ts';
import { createFakeIo, type FakeIoOptions } from '../../helpers/fake-io.ts';

const REQUEST = {
  id: 'apr-3f2a',
  thread_id: 'deploy-1',
  kind: 'call',
  state: 'pending',
  tool: 'rye/bash',
  capability: 'rye.execute.tool.rye.bash',
  reason: 'It pushes.',
  rule: 'directive deploy',
  input: {},
  input_sha256: 'aa',
  request_sha256: 'bb',
  expires_at: '2026-02-24T11:59:00.000Z',
  quorum: 1,
  created_at: '2026-02-17T11:59:00.000Z',
  preview: { title: 'Run a command', text: 'git push' },
  approvers: [],
  decisions: [],
  scopes: ['once'],
};

async function decide(verb: string, requests: readonly object[], options: FakeIoOptions) {
  const decided: unknown[] = [];
  const approvals = {
    list: () => Promise.resolve(requests),
    decide: (request: object) => {
      decided.push(request);
      return Promise.resolve({ ...REQUEST, state: verb, missing: 0, resumed: false });
    },
  };
  const rye = { approvals } as unknown as Partial<Rye>;
  const io = createFakeIo({ rye, stdoutIsTty: true, stderrIsTty: true, ...options });
  return { code: await main(['--no-color', verb], io), decided, err: io.err() };
}

it.each(['approve', 'deny'])('%s without an ID shows the request and asks first', async (verb) => {
  const yes = await decide(verb, [REQUEST], { answer: 'y' });
  expect(yes.err).toMatch(/Run a command\n {2}git push\n(?:Approve|Deny) it\? \[y\/N\] $/);
  expect([yes.code, yes.decided]).toEqual([0, [expect.objectContaining({ id: 'apr-3f2a' })]]);
  const no = await decide(verb, [REQUEST], { answer: '' });
  expect([no.code, no.decided]).toEqual([130, []]);
});

it('decides nothing without an ID where no person picks, and names what waits for an answer', async () => {
  const piped = await decide('approve', [REQUEST], {});
  expect([piped.code, piped.decided]).toEqual([2, []]);
  expect(piped.err).toContain('missing argument <id...>');
  const question = { ...REQUEST, kind: 'question' };
  const asked = await decide('approve', [question], { answer: 'y' });
  expect([asked.code, asked.decided]).toEqual([6, []]);
  expect(asked.err).toContain('questions wait for: rye answer ID JSON');
});

it('one key does not approve a request with characters that mislead; to deny it, one is enough', async () => {
  const preview = { ...REQUEST.preview, text: 'git push \u202Eecho' };
  const odd = { ...REQUEST, input: { command: preview.text }, preview };
  const key = await decide('approve', [odd], { answer: 'y' });
  expect([key.code, key.decided]).toEqual([130, []]);
  expect(key.err).toContain('Type "approve" to approve it');
  const word = await decide('approve', [odd], { answer: 'approve' });
  expect([word.code, word.decided]).toEqual([0, [expect.objectContaining({ id: 'apr-3f2a' })]]);
  expect((await decide('deny', [odd], { answer: 'y' })).code).toBe(0);
});
