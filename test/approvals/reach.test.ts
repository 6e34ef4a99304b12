import { expect, it } from 'vitest';
import { family, starts } from './family.ts';
import { calls, house, marks, payloads } from './house.ts';

it.each([
  [0.05, 2],
  [0.06, 1],
])(
  'an approval of a tool with --spend %d needs %d request(s) for two calls that may cost 0.03 USD each',
  async (spend, count) => {
    const start = calls(starts('leaf', { limit_overrides: { spend: 0.03 } }));
    const here = await family({ parent: [start, start], leaf: [] });
    here.policy({ rules: [{ capability: 'rye.execute.directive.*', ask: 'me' }] });
    const { thread_id: id } = await here.json(['run', 'parent'], 8);
    const [first] = await here.waiting();
    const approve = ['approve', first?.id ?? '', '--no-resume', '--scope', 'tool'];
    await here.json([...approve, '--spend', String(spend)]);
    await here.json(['threads', 'resume', String(id)], count === 1 ? 0 : 8);
    const log = here.log(String(id));
    expect(payloads(log, 'approval_requested')).toHaveLength(count);
    expect(payloads(log, 'child_thread_started')).toHaveLength(3 - count);
  },
  240_000,
);

it('a rule of the project and one of the user space both have to be satisfied', async () => {
  const here = await house(calls(marks('mark')));
  const ada = await here.person('ada');
  here.policy({ rules: [{ tool: 'rye/bash', ask: 'ada' }] }, [ada]);
  const own = {
    approvers: { me: { key: here.key().keyId } },
    rules: [{ risk: 'safe', ask: 'me' }],
  };
  here.signed('~/.ai/config/agent/approvals.yaml', `${JSON.stringify(own)}\n`);
  const { threadId, id } = await here.asks();
  const { request } = await here.row(id);
  expect(request.requirements.map(({ rule }) => rule).toSorted()).toEqual([
    'project rules.0',
    'user rules.0',
  ]);
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId], 8);
  expect(here.file('mark')).toBeUndefined();
  await ada.cli(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('mark')).toBe('ran\n');
});

it('hooks are told about a request and its decision, and stream-json shows both', async () => {
  const here = await house(calls(marks('mark')));
  const tell = (event: string, data: object) => ({
    id: event,
    event,
    action: { emit: event, data },
  });
  const hooks = [
    tell('approval_requested', { id: '${approval_id}' }),
    tell('approval_decided', { id: '${approval_id}', outcome: '${outcome}' }),
  ];
  here.write('~/.ai/config/agent/hooks.yaml', `${JSON.stringify({ hooks })}\n`);
  const first = await here.cli(['run', 'pusher', '--output-format', 'stream-json']);
  const stream = first.stdout.trim().split('\n');
  expect([
    first.stderr,
    first.code,
    stream.some((line) => line.includes('"approval_requested"')),
  ]).toEqual(['', 8, true]);
  const [asked] = await here.waiting();
  const id = asked?.id ?? '';
  expect(first.stdout).toContain(id);
  await here.json(['deny', id, '--comment', 'No.', '--no-resume']);
  const resume = ['threads', 'resume', asked?.thread_id ?? '', '--output-format', 'stream-json'];
  expect((await here.cli(resume)).stdout).toContain('"approval_decided"');
  const told = payloads(here.log(asked?.thread_id ?? ''), 'custom');
  expect(told).toContainEqual({ custom_type: 'approval_requested', data: { id } });
  const ran = payloads(here.log(asked?.thread_id ?? ''), 'hook_fired').filter(
    ({ layer }) => layer === 0,
  );
  expect(ran.map((one) => one.id)).toEqual(['approval_requested', 'approval_decided']);
  expect(told).toContainEqual({ custom_type: 'approval_decided', data: { id, outcome: 'denied' } });
});
