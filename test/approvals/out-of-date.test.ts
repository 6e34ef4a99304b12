import { expect, it } from 'vitest';
import { calls, house, marks } from './house.ts';

it('a waiting thread asks again after the key of its owner was replaced', async () => {
  const here = await house(calls(marks('mark')));
  const { threadId, id } = await here.asks();
  expect((await here.cli(['threads', 'resume', threadId])).stderr).toContain(id);
  await here.json(['keys', 'rotate']);
  await here.json(['sign', 'directive', 'pusher']);
  const refused = await here.cli(['approve', id, '--no-resume']);
  expect([refused.code, refused.stderr]).toEqual([4, expect.stringContaining('asks again')]);
  await here.json(['threads', 'resume', threadId], 8);
  const [second] = await here.waiting();
  expect(second?.id).not.toBe(id);
  await here.json(['approve', second?.id ?? '', '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('mark')).toBe('ran\n');
});

it('a waiting thread asks the approvers of today, and does not run again while they are the same', async () => {
  const here = await house(calls(marks('mark')));
  const ada = await here.person('ada');
  here.policy({ rules: [{ tool: 'rye/bash', ask: 'ada' }] }, [ada]);
  const { threadId, id } = await here.asks();
  const runs = () => here.log(threadId).filter(({ event_type: type }) => type === 'run_started');
  const before = runs().length;
  await here.json(['threads', 'resume', threadId], 8);
  expect(runs()).toHaveLength(before);
  here.policy({ rules: [{ tool: 'rye/bash', ask: 'me' }] }, [ada]);
  await here.json(['lock', 'accept', '--yes']);
  await here.json(['threads', 'resume', threadId], 8);
  const [second] = await here.waiting();
  expect(second?.id).not.toBe(id);
  await here.json(['approve', second?.id ?? '', '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('mark')).toBe('ran\n');
});
