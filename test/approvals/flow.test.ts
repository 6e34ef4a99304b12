import { expect, it } from 'vitest';
import { calls, house, marks } from './house.ts';

it('a call that asks suspends the thread, exits 8 and runs after rye approve in another process', async () => {
  const here = await house(calls(marks('mark')));
  const { code, stdout, stderr } = await here.cli(['run', 'pusher', '--json']);
  expect(code, stderr + stdout).toBe(8);
  const result = JSON.parse(stdout) as { thread_id: string; approvals: string[] };
  expect(result).toMatchObject({ status: 'suspended', waiting_for: 'approval' });
  const [request] = await here.waiting();
  expect(request).toMatchObject({
    id: result.approvals[0],
    thread_id: result.thread_id,
    kind: 'call',
    tool: 'rye/bash',
    input: { command: 'echo ran >> mark' },
    state: 'pending',
  });
  expect(here.file('mark')).toBeUndefined();
  const again = await here.cli(['threads', 'resume', result.thread_id, '--json']);
  expect(again.code, again.stderr + again.stdout).toBe(8);
  const id = request?.id ?? '';
  const decided = await here.cli(['approve', id]);
  expect([decided.code, decided.stderr]).toEqual([0, '']);
  await here.until(result.thread_id, 'completed');
  expect(here.file('mark')).toBe('ran\n');
  const types = here.log(result.thread_id).map(({ event_type: type }) => type);
  const order = ['approval_requested', 'approval_decided', 'tool_call_start', 'tool_settled'];
  expect(types.filter((type) => order.includes(type))).toEqual(order);
  expect(await here.json(['approvals', 'verify', id])).toMatchObject({ success: true });
  expect(await here.json(['verify', 'thread', result.thread_id])).toMatchObject({ success: true });
}, 120_000);

it('the model reads why a person denied its call', async () => {
  const here = await house(calls(marks('mark')));
  const result = await here.json(['run', 'pusher'], 8);
  const [request] = await here.waiting();
  await here.json(['deny', request?.id ?? '', '--comment', 'Not on Friday.']);
  await here.until(String(result['thread_id']), 'completed');
  expect(here.file('mark')).toBeUndefined();
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('Not on Friday.');
}, 120_000);
