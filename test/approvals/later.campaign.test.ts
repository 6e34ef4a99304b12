import { resolve } from 'node:path';
import { expect, it } from 'vitest';
import { calls, type House, house, marks, payloads } from './house.ts';

const DAY_MS = 86_400_000;
const PRELOAD = resolve(import.meta.dirname, 'later.mjs');

/** Runs `rye` in a process whose clock is some days ahead. */
async function after(
  here: Pick<House, 'cli'>,
  days: number,
  args: readonly string[],
  code = 0,
): Promise<Record<string, unknown>> {
  const env = {
    NODE_OPTIONS: `--import=${PRELOAD}`,
    RYE_TEST_LATER_MS: String(days * DAY_MS),
  };
  const result = await here.cli([...args, '--json'], { env, spawned: true });
  expect(result.code, `${args.join(' ')}\n${result.stdout}${result.stderr}`).toBe(code);
  return JSON.parse(result.stdout) as Record<string, unknown>;
}

const expectRan = async (here: House, threadId: string): Promise<void> => {
  expect(here.file('mark')).toBe('ran\n');
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
};

it('three days later, in another process, an approval counts', async () => {
  const here = await house(calls(marks('mark')));
  const { threadId, id } = await here.asks();
  const requested = Date.parse((await here.row(id)).request.created_at);
  await after(here, 3, ['approve', id, '--no-resume']);
  await after(here, 3.1, ['threads', 'resume', threadId]);
  await expectRan(here, threadId);
  const [decided] = payloads(here.log(threadId), 'approval_decided');
  const at = Date.parse(decided?.decisions[0]?.decision.decided_at ?? '');
  expect((at - requested) / DAY_MS).toBeCloseTo(3, 1);
  expect(await here.json(['approvals', 'verify', id])).toMatchObject({ success: true });
});

// Requirement: approvals-expire
it('eight days later the request has expired: the call is denied, and the late signature is kept', async () => {
  const here = await house(calls(marks('mark')));
  const { threadId, id } = await here.asks();
  expect(await after(here, 6.9, ['approvals'])).toMatchObject({ total: 1 });
  expect(await after(here, 8, ['approvals'])).toMatchObject({ total: 0 });
  expect(await after(here, 8, ['approvals', 'show', id])).toMatchObject({
    approval: { state: 'expired' },
  });
  const refused = await after(here, 8, ['approve', id], 4);
  expect(refused).toMatchObject({ error: { code: 'approval_expired' } });
  await after(here, 8, ['threads', 'resume', threadId]);
  expect(here.file('mark')).toBeUndefined();
  const log = here.log(threadId);
  expect(payloads(log, 'tool_settled')).toMatchObject([{ code: 'approval_expired' }]);
  expect(payloads(log, 'approval_decided')).toMatchObject([
    { outcome: 'expired', decisions: [], late: [{ decision: { decision: 'approve' } }] },
  ]);
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('the approval expired');
  expect(await here.json(['approvals', 'verify', id])).toMatchObject({
    success: true,
    outcome: 'expired',
  });
});

it('an approval in time counts also when the thread continues after the expiry', async () => {
  const here = await house(calls(marks('mark')));
  const { threadId, id } = await here.asks();
  await after(here, 1, ['approve', id, '--no-resume']);
  await after(here, 30, ['threads', 'resume', threadId]);
  await expectRan(here, threadId);
});

it('an approval for two hours covers no call of the third day', async () => {
  const here = await house(calls(marks('mark')), calls(marks('second')), calls(marks('third')));
  const { threadId, id } = await here.asks();
  await here.json(['approve', id, '--scope', 'tool', '--until', '2h', '--no-resume']);
  await after(here, 0.05, ['threads', 'resume', threadId]);
  await expectRan(here, threadId);
  expect(here.file('third')).toBe('ran\n');
  const other = await house(calls(marks('mark')), calls(marks('second')));
  const asked = await other.asks();
  await other.json(['approve', asked.id, '--scope', 'tool', '--until', '2h', '--no-resume']);
  await after(other, 3, ['threads', 'resume', asked.threadId], 8);
  expect(other.file('mark')).toBeUndefined();
});

it('a key that was revoked in between does not count, and what it let through before does', async () => {
  const here = await house(calls(marks('mark')), calls(marks('second')));
  const ada = await here.person('ada');
  here.policy({ rules: [{ tool: 'rye/bash', ask: ['ada'] }] }, [ada]);
  const { threadId, id } = await here.asks();
  await after(ada, 1, ['approve', id, '--no-resume']);
  const suspended = await after(here, 1, ['threads', 'resume', threadId], 8);
  const [next = ''] = suspended['approvals'] as readonly string[];
  await after(ada, 2, ['approve', next, '--no-resume']);
  await after(here, 3, ['keys', 'revoke', ada.key.keyId, '-y']);
  await after(here, 3, ['threads', 'resume', threadId], 8);
  expect([here.file('mark'), here.file('second')]).toEqual(['ran\n', undefined]);
  const [first, second] = [id, next].map((one) => ['approvals', 'verify', one]);
  expect(await after(here, 4, first ?? [])).toMatchObject({ success: true });
  expect(await after(here, 4, second ?? [], 3)).toMatchObject({
    decisions: [{ problem: 'key_revoked' }],
  });
  expect(await after(here, 4, ['verify', 'thread', threadId])).toMatchObject({ success: true });
});

it('a key that the owner rotated in between voids the approval, because the thread runs under another one', async () => {
  const here = await house(calls(marks('mark')));
  const { threadId, id } = await here.asks();
  await after(here, 1, ['approve', id, '--no-resume']);
  await after(here, 2, ['keys', 'rotate', '-y']);
  const again = await after(here, 3, ['threads', 'resume', threadId], 8);
  const [next = ''] = again['approvals'] as readonly string[];
  expect(next).not.toBe(id);
  expect(payloads(here.log(threadId), 'approval_decided')).toMatchObject([{ outcome: 'voided' }]);
  await after(here, 3, ['approve', next, '--no-resume']);
  await after(here, 3, ['threads', 'resume', threadId]);
  await expectRan(here, threadId);
});

it('an approver who rotated the key in between has decided with the old one, which counts', async () => {
  const here = await house(calls(marks('mark')));
  const ada = await here.person('ada');
  here.policy({ rules: [{ tool: 'rye/bash', ask: ['ada'] }] }, [ada]);
  const { threadId, id } = await here.asks();
  await after(ada, 1, ['approve', id, '--no-resume']);
  await after(ada, 2, ['keys', 'rotate', '-y']);
  await after(here, 3, ['threads', 'resume', threadId]);
  await expectRan(here, threadId);
});
