import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { LogAudit } from '../../src/kernel/app/verification/approvals.ts';
import { signText } from '../../src/kernel/trust/signature.ts';
import { directive } from '../attacks/lab.ts';
import { starts } from './family.ts';
import { calls, house, payloads, reply, toolUse } from './house.ts';

const PUSH = { command: 'echo push >> out' };
const STATUS = { command: 'echo status >> out' };
const input = (value: object): readonly string[] => ['--input', JSON.stringify(value)];

it('an edited call needs what the policy asks about it: a quorum of others cannot be passed by an edit', async () => {
  const here = await house(calls(toolUse('rye_bash', STATUS)));
  const lead = await here.person('lead');
  const when = { argument: 'command', matches: 'push' };
  const rules = [
    { tool: 'rye/bash', when, ask: ['me', 'lead'], quorum: 2 },
    { tool: 'rye/bash', ask: 'me' },
  ];
  here.policy({ rules }, [lead]);
  const { threadId, id } = await here.asks();
  const refused = await here.json(['approve', id, '--no-resume', ...input(PUSH)], 4);
  expect(JSON.stringify(refused)).toContain('project rules.0 asks');
  // another input is agreed to by itself
  await here.json(['approve', id, '--scope', 'tool', '--no-resume', ...input(STATUS)], 2);
  await here.json(['threads', 'resume', threadId], 8);
  expect(here.file('out')).toBeUndefined();
  await here.json(['approve', id, '--no-resume', ...input({ command: 'echo other >> out' })]);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('out')).toBe('other\n');
  await here.json(['verify', 'thread', threadId]);
});

it('a quorum that the edited call alone needs is reached by people who give the same input', async () => {
  const here = await house(calls(toolUse('rye_bash', STATUS)));
  const lead = await here.person('lead');
  const when = { argument: 'command', matches: 'push' };
  here.policy(
    {
      rules: [
        { tool: 'rye/bash', when, ask: ['me', 'lead'], quorum: 2 },
        { tool: 'rye/bash', ask: ['me', 'lead'] },
      ],
    },
    [lead],
  );
  const { threadId, id } = await here.asks();
  const first = await here.json(['approve', id, '--no-resume', ...input(PUSH)]);
  expect(first['approvals']).toMatchObject([{ state: 'pending', missing: 1 }]);
  await here.json(['threads', 'resume', threadId], 8);
  expect(here.file('out')).toBeUndefined();
  const second = await lead.cli(['approve', id, '--no-resume', ...input(PUSH)]);
  expect([second.code, second.stderr]).toEqual([0, '']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('out')).toBe('push\n');
  await here.json(['verify', 'thread', threadId]);
  await here.json(['approvals', 'verify', id]);
});

it('a rule in the user space of the person who decides asks nothing about a thread of another', async () => {
  const here = await house(calls(toolUse('rye_bash', STATUS)));
  const lead = await here.person('lead');
  here.policy({ rules: [{ tool: 'rye/bash', ask: 'lead' }] }, [lead]);
  const { threadId, id } = await here.asks();
  const own = {
    approvers: { me: { key: lead.key.keyId }, owner: { key: here.key().keyId } },
    rules: [{ tool: 'rye/bash', ask: ['me', 'owner'], quorum: 2 }],
  };
  const folder = join(lead.home, '.ai/config/agent');
  mkdirSync(folder, { recursive: true });
  const subject = { kind: 'config', id: 'agent/approvals' } as const;
  const signing = { style: 'hash', subject, key: lead.key, now: Date.now() } as const;
  const text = signText({ text: `${JSON.stringify(own)}\n`, ...signing });
  writeFileSync(join(folder, 'approvals.yaml'), text);
  const decided = await lead.cli(['approve', id, '--no-resume', '--json', ...input(PUSH)]);
  expect([decided.code, decided.stderr]).toEqual([0, '']);
  expect(JSON.parse(decided.stdout)).toMatchObject({ approvals: [{ state: 'approved' }] });
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('out')).toBe('push\n');
});

it('a rule that is signed after the decision binds the edited call, which waits for another decision', async () => {
  const here = await house(calls(toolUse('rye_bash', STATUS)));
  const lead = await here.person('lead');
  const rules = (pattern: string) => ({
    rules: [
      { tool: 'rye/bash', when: { argument: 'command', matches: pattern }, ask: 'lead' },
      { tool: 'rye/bash', ask: 'me' },
    ],
  });
  here.policy(rules('deploy'), [lead]);
  const { threadId, id } = await here.asks();
  await here.json(['approve', id, '--no-resume', ...input(PUSH)]);
  here.policy(rules('push'), [lead]);
  await here.json(['lock', 'accept', '--yes']);
  await here.json(['threads', 'resume', threadId], 8);
  expect(here.file('out')).toBeUndefined();
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('out')).toBe('status\n');
});

it('an approver cannot turn a call into that of an item that `may` or the scope of a key leaves to others', async () => {
  const start = starts('leaf');
  const here = await house(calls(start));
  here.signed('directives/leaf.md', directive('leaf', { permissions: '' }));
  here.signed('directives/danger.md', directive('danger', { permissions: '' }));
  here.signed(
    'directives/parent.md',
    directive('parent', {
      limits: 'turns="6" spend="0.10"',
      permissions:
        '<execute><directive ask="true">leaf</directive><directive ask="true">danger</directive></execute>',
    }),
  );
  const ada = await here.person('ada');
  const may = { key: ada.key.keyId, may: ['rye.execute.directive.leaf'] };
  here.policy({ approvers: { ada: may, me: { key: here.key().keyId } }, rules: [] }, [ada]);
  const { threadId, id } = await here.asks('parent');
  const danger = input({ item_type: 'directive', item_id: 'danger' });
  const refused = await ada.cli(['approve', id, '--no-resume', ...danger]);
  expect(refused.code).toBe(4);
  expect(refused.stderr).toContain('me (');
  await here.json(['threads', 'resume', threadId], 8);
  expect(payloads(here.log(threadId), 'child_thread_started')).toEqual([]);
});

it.each(['arguments', 'once'])(
  'an approval of an edited call with scope %s never runs the requested input of another call',
  async (scope) => {
    const push = toolUse('rye_bash', PUSH);
    const here = await house(calls(push), calls(push), calls(toolUse('rye_bash', STATUS)));
    const { threadId, id } = await here.asks();
    await here.json(['approve', id, '--no-resume', '--scope', scope, ...input(STATUS)]);
    await here.json(['threads', 'resume', threadId], 8);
    expect(here.file('out')).toBe('status\n');
    const [second] = await here.waiting();
    await here.json(['deny', second?.id ?? '', '--no-resume']);
    // the third call has the input that was given
    await here.json(['threads', 'resume', threadId], scope === 'arguments' ? 0 : 8);
    expect(here.file('out')).toBe(scope === 'arguments' ? 'status\nstatus\n' : 'status\n');
    await here.json(['verify', 'thread', threadId]);
  },
);

it('verify refuses an edited call that no rule was asked about', async () => {
  const here = await house(calls(toolUse('rye_bash', STATUS)), reply('done'));
  const { threadId, id } = await here.asks();
  await here.json(['approve', id, '--no-resume', ...input(PUSH)]);
  await here.json(['threads', 'resume', threadId]);
  const events = here.log(threadId);
  const audit = (log: typeof events) => {
    const checks = new LogAudit(threadId, undefined, keysOf(here));
    for (const event of log) checks.take(event);
    return checks.result(false).problems;
  };
  expect(audit(events)).toEqual([]);
  const forged = events.map((event) => {
    const { payload, event_type: type } = event;
    if (type !== 'tool_call_start' || !('approval' in payload) || !payload.approval) return event;
    const { edited: _gone, ...approval } = payload.approval;
    return { ...event, payload: { ...payload, approval } };
  });
  expect(audit(forged as typeof events)).toEqual([
    expect.stringContaining('the rules were not asked'),
  ]);
});

function keysOf(here: Awaited<ReturnType<typeof house>>) {
  const key = here.key();
  return {
    find: (keyId: string) =>
      keyId === key.keyId
        ? ({ status: 'trusted', key } as const)
        : ({ status: 'unknown' } as const),
  };
}
