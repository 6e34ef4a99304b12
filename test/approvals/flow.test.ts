import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { directive } from '../attacks/lab.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { calls, house, marks, reply, toolUse } from './house.ts';

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
});

it('the model reads why a person denied its call', async () => {
  const here = await house(calls(marks('mark')));
  const result = await here.json(['run', 'pusher'], 8);
  const [request] = await here.waiting();
  await here.json(['deny', request?.id ?? '', '--comment', 'Not on Friday.']);
  await here.until(String(result['thread_id']), 'completed');
  expect(here.file('mark')).toBeUndefined();
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('Not on Friday.');
});

it('a question of the model waits for an answer that matches its schema', async () => {
  const schema = { enum: ['main', 'release'] };
  const here = await house(calls(toolUse('rye_agent_ask', { question: 'Which branch?', schema })));
  here.signed(
    'directives/asker.md',
    directive('asker', { permissions: '<execute><tool>rye/agent/ask</tool></execute>' }),
  );
  const result = await here.json(['run', 'asker'], 8);
  const [question] = await here.waiting();
  const id = question?.id ?? '';
  expect(question).toMatchObject({ kind: 'question', preview: { text: 'Which branch?', schema } });
  for (const wrong of ['"dev"', '7', 'main', '']) {
    expect((await here.cli(['answer', id, wrong])).code, wrong).toBe(2);
  }
  expect((await here.cli(['approve', id])).code).toBe(4);
  expect((await here.cli(['answer', 'nope', '1'])).code).toBe(6);
  await here.json(['answer', id, '"main"']);
  await here.until(String(result['thread_id']), 'completed');
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('main');
});

it('a cancelled thread withdraws its requests, which can then not be decided', async () => {
  const here = await house(calls(marks('mark')));
  const result = await here.json(['run', 'pusher'], 8);
  const [request] = await here.waiting();
  await here.json(['threads', 'cancel', String(result['thread_id'])]);
  expect(await here.waiting()).toEqual([]);
  expect(await here.json(['threads', 'show', String(result['thread_id'])])).toMatchObject({
    thread: { status: 'cancelled' },
  });
  expect((await here.cli(['approve', request?.id ?? ''])).code).toBe(4);
  expect(here.file('mark')).toBeUndefined();
  await here.json(['verify', 'thread', String(result['thread_id'])]);
});

it('an approval that expired denies the call, and a late signature is kept as evidence', async () => {
  const here = await house(calls(marks('mark')));
  here.policy({ rules: [{ tool: 'rye/bash', ask: ['me'], expires: '1s' }] });
  const result = await here.json(['run', 'pusher'], 8);
  const id = String((result['approvals'] as readonly string[])[0]);
  await vi.waitUntil(async () => (await here.waiting()).length === 0, 60_000);
  expect((await here.cli(['approve', id])).code).toBe(4);
  await here.json(['threads', 'resume', String(result['thread_id'])]);
  expect(here.file('mark')).toBeUndefined();
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('expired');
  const decided = here.log(String(result['thread_id'])).find(isDecided);
  expect(decided?.payload).toMatchObject({
    outcome: 'expired',
    late: [{ decision: { approval_id: id } }],
  });
});

it('a policy that no trusted key signed refuses every run', async () => {
  const here = await house(calls(marks('mark')));
  here.write('config/agent/approvals.yaml', 'rules: []\n');
  expect((await here.cli(['run', 'pusher'])).code).toBe(3);
  here.signed('config/agent/approvals.yaml', 'rules: []\n', here.stranger);
  const refused = await here.cli(['run', 'pusher']);
  expect([refused.code, refused.stdout]).toEqual([3, '']);
  expect(here.bodies).toEqual([]);
});

it('a changed input, item or file voids the decision: the call is asked about again', async () => {
  const write = toolUse('rye_file_system_write', { path: 'notes.txt', content: 'new\n' });
  const here = await house(calls(write));
  here.policy({ rules: [{ tool: 'rye/file-system/write', ask: ['me'] }] });
  writeFileSync(join(here.project, 'notes.txt'), 'old\n');
  const result = await here.json(['run', 'pusher'], 8);
  const [first] = await here.waiting();
  expect(first?.preview).toMatchObject({ format: 'diff', text: '-old\n+new' });
  await here.json(['approve', first?.id ?? '', '--no-resume']);
  writeFileSync(join(here.project, 'notes.txt'), 'changed meanwhile\n');
  await here.json(['threads', 'resume', String(result['thread_id'])], 8);
  expect(here.file('notes.txt')).toBe('changed meanwhile\n');
  const [second] = await here.waiting();
  expect(second?.id).not.toBe(first?.id);
  await here.json(['approve', second?.id ?? '']);
  await here.until(String(result['thread_id']), 'completed');
  expect(here.file('notes.txt')).toBe('new\n');
});

it('a thread cannot approve itself, with an empty environment and a new session neither', async () => {
  const here = await house();
  here.sandbox('off');
  const bin = join(await cliPackage(), 'bin/rye.js');
  const approve = (wrap: string): string =>
    `ID=$(ls .ai >/dev/null; ${process.execPath} ${bin} approvals --json | sed 's/.*"id":"\\(apr-[0-9a-f]*\\)".*/\\1/'); ${wrap} ${process.execPath} ${bin} --project ${here.project} --user-space ${here.home} approve $ID; echo "exit $?"`;
  here.signed(
    'directives/free.md',
    directive('free', {
      permissions:
        '<execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
    }),
  );
  await here.model(({ body }) => {
    here.bodies.push(body);
    const count = here.bodies.length;
    const commands = [approve(''), approve('env -i'), approve('env -i setsid -w')];
    if (count === 1) return calls(marks('mark'));
    const command = commands[count - 2];
    return command === undefined ? reply('done') : calls(toolUse('rye_bash', { command }));
  });
  await here.json(['run', 'pusher'], 8);
  const [request] = await here.waiting();
  await here.json(['run', 'free']);
  const told = JSON.stringify(here.bodies.at(-1)?.messages);
  expect(told.match(/approval_refused/g)).toHaveLength(3);
  expect(told.match(/\\nexit 4\\n/g)).toHaveLength(3);
  expect((await here.waiting()).map(({ id }) => id)).toEqual([request?.id]);
});

function isDecided(
  event: LogEvent,
): event is Extract<LogEvent, { event_type: 'approval_decided' }> {
  return event.event_type === 'approval_decided';
}

it('a process that was started to resume a thread does nothing if another one has run it meanwhile', async () => {
  const here = await house(calls(marks('mark')));
  here.policy({ rules: [{ tool: 'rye/bash', ask: ['me'] }] });
  const { threadId, id } = await here.asks();
  await here.json(['approve', id, '--no-resume']);
  const { epoch } = (await here.rye().threads.show(threadId)).thread;
  expect((await here.cli(['__resume-run', String(epoch), threadId])).code).toBe(0);
  expect(here.file('mark')).toBe('ran\n');
  const sent = here.bodies.length;
  const late = await here.cli(['__resume-run', String(epoch), threadId]);
  expect([late.code, late.stderr]).toEqual([1, expect.stringContaining('[thread_locked]')]);
  expect(here.bodies.length).toBe(sent);
});
