import { expect, it } from 'vitest';
import { LogAudit } from '../../src/kernel/app/verification/approvals.ts';
import { directive } from '../attacks/lab.ts';
import type { WireTurn } from '../helpers/wire-server.ts';
import { calls, type House, house, payloads, reply, toolUse } from './house.ts';

const PLAN = {
  title: 'Rename the greeting',
  steps: [{ title: 'Change the text', detail: 'In one file.' }, { title: 'Look at it' }],
  files: ['src/**/*.txt'],
  commands: ['cat src/greeting.txt'],
  cost_usd: 1,
};

const present = (plan: object = PLAN) => toolUse('rye_agent_present_plan', { ...plan });
const write = (path: string, content = 'hi\n') =>
  toolUse('rye_file_system_write', { path, content });
const bash = (command: string) => toolUse('rye_bash', { command });

/** A directive that may write and run commands without being asked about either, and present a plan. */
const PLANNER = directive('planner', {
  limits: 'turns="12" spend="0.50"',
  permissions:
    '<execute><tool>rye/agent/present_plan</tool><tool>rye/bash</tool><tool>rye/file-system/*</tool></execute><acknowledge risk="elevated">Builds.</acknowledge>',
});

async function planned(...turns: readonly WireTurn[]): Promise<House> {
  const here = await house(...turns);
  here.signed('directives/planner.md', PLANNER);
  return here;
}

/** Runs until the plan is presented; returns the thread and the request. */
async function presented(here: House) {
  return await here.asks('planner');
}

const uses = (here: House, threadId: string) =>
  payloads(here.log(threadId), 'tool_call_start').map(({ tool, approval }) => [
    tool,
    approval?.approval_id,
  ]);

it('a plan is approved as a whole, and the calls inside of it run without another request', async () => {
  const here = await planned(
    calls(present()),
    calls(write('src/greeting.txt'), bash('cat src/greeting.txt')),
  );
  const { threadId, id } = await presented(here);
  const [request] = await here.waiting();
  expect(request).toMatchObject({
    kind: 'plan',
    tool: 'rye/agent/present_plan',
    preview: { title: 'Plan', format: 'plan' },
    scopes: ['once'],
  });
  const { stdout } = await here.cli(['approvals', 'show', id]);
  for (const part of [
    'Rename the greeting',
    '1. Change the text',
    'In one file.',
    'Files that it may change:',
    'src/**/*.txt',
    'Commands that it may run:',
    'Money that it may spend: $1.00',
  ])
    expect(stdout).toContain(part);
  await here.json(['approve', id]);
  await here.until(threadId, 'completed');
  expect(here.file('src/greeting.txt')).toBe('hi\n');
  expect(uses(here, threadId)).toEqual([
    ['rye/agent/present_plan', id],
    ['rye/file-system/write', id],
    ['rye/bash', id],
  ]);
  expect(payloads(here.log(threadId), 'approval_requested')).toHaveLength(1);
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
  expect(await here.json(['approvals', 'verify', id])).toMatchObject({ success: true });
});

it.each([
  ['a file that it does not list', write('docs/other.txt')],
  ['a file by a way around', write('src/../docs/other.txt')],
  ['a hidden file, which no star includes', write('src/.hidden/a.txt')],
  ['another command', bash('cat src/greeting.txt; rm -rf docs')],
])('a call outside of the plan asks: %s', async (_, call) => {
  const here = await planned(calls(present()), calls(call));
  const { threadId, id } = await presented(here);
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId], 8);
  const [outside] = await here.waiting();
  expect(outside).toMatchObject({ kind: 'call', reason: 'It is outside of the approved plan.' });
  await here.json(['deny', outside?.id ?? '', '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
});

it('a plan that a person changes holds as it was changed', async () => {
  const here = await planned(
    calls(present()),
    calls(write('src/a.txt')),
    calls(write('notes/a.txt')),
  );
  const { threadId, id } = await presented(here);
  const changed = JSON.stringify({ ...PLAN, files: ['notes/*'] });
  await here.json(['approve', id, '--input', changed, '--no-resume']);
  await here.json(['threads', 'resume', threadId], 8);
  const [outside] = await here.waiting();
  expect(outside).toMatchObject({ input: { path: 'src/a.txt' } });
  await here.json(['deny', outside?.id ?? '', '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('notes/a.txt')).toBe('hi\n');
  expect(here.file('src/a.txt')).toBeUndefined();
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
});

it('a plan that is denied covers nothing, and the model reads why', async () => {
  const here = await planned(calls(present()));
  const { threadId, id } = await presented(here);
  await here.json(['deny', id, '--comment', 'Smaller, please.', '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('Smaller, please.');
});

it('the last approved plan replaces the one before', async () => {
  const here = await planned(
    calls(present()),
    calls(present({ ...PLAN, files: ['docs/*'] })),
    calls(write('docs/a.txt')),
    calls(write('src/a.txt')),
  );
  const { threadId, id } = await presented(here);
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId], 8);
  const [second] = await here.waiting();
  expect(second?.kind).toBe('plan');
  await here.json(['approve', second?.id ?? '', '--no-resume']);
  await here.json(['threads', 'resume', threadId], 8);
  expect(here.file('docs/a.txt')).toBe('hi\n');
  const [outside] = await here.waiting();
  expect(outside).toMatchObject({ kind: 'call', input: { path: 'src/a.txt' } });
});

it('the money of a plan counts from its approval', async () => {
  const here = await planned(calls(present({ ...PLAN, cost_usd: 0 })), reply('never'));
  const { threadId, id } = await presented(here);
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(payloads(here.log(threadId), 'tool_call_start')[0]?.approval?.spent_usd).toBeGreaterThan(
    0,
  );
  const next = await planned(calls(present({ ...PLAN, cost_usd: 0 })), calls(write('src/a.txt')));
  const poor = await presented(next);
  await next.json(['approve', poor.id, '--no-resume']);
  await next.json(['threads', 'resume', poor.threadId], 8);
  expect(await next.waiting()).toMatchObject([{ kind: 'call', input: { path: 'src/a.txt' } }]);
});

it.each([
  [{ ...PLAN, files: ['/etc/passwd'] }, 'a file of the plan cannot be read'],
  [{ ...PLAN, files: ['../x'] }, 'a file of the plan cannot be read'],
  [{ ...PLAN, tools: ['rye/bash'] }, 'List what it would do in \\"commands\\"'],
  [{ ...PLAN, tools: ['rye/file-system/write'] }, 'List what it would do in \\"files\\"'],
])('no person is asked about a plan that says nothing or too much', async (plan, problem) => {
  const here = await planned(calls(present(plan)));
  await here.json(['run', 'planner']);
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain(problem);
  expect(await here.waiting()).toEqual([]);
});

it('a rule that lets a decision reach no further than one call is not passed by a plan', async () => {
  const here = await planned(calls(present()), calls(write('src/a.txt')));
  here.policy({ rules: [{ tool: 'rye/file-system/write', ask: ['me'], scope: 'once' }] });
  const { threadId, id } = await presented(here);
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId], 8);
  expect(await here.waiting()).toMatchObject([{ kind: 'call', tool: 'rye/file-system/write' }]);
});

it('a plan covers no call that another person has to agree to', async () => {
  const here = await planned(calls(present()), calls(write('src/a.txt')));
  const ada = await here.person('ada');
  here.policy({ rules: [{ tool: 'rye/file-system/write', ask: ['ada'], scope: 'tool' }] }, [ada]);
  const { threadId, id } = await presented(here);
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId], 8);
  expect(await here.waiting()).toMatchObject([{ kind: 'call', tool: 'rye/file-system/write' }]);
});

it('verify finds a call that used a plan which does not list it', async () => {
  const here = await planned(calls(present()), calls(write('src/a.txt')));
  const { threadId, id } = await presented(here);
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  const forged = here
    .log(threadId)
    .map((event) =>
      event.event_type === 'tool_call_start' && event.payload.tool === 'rye/file-system/write'
        ? { ...event, payload: { ...event.payload, input: { path: 'other.txt', content: '' } } }
        : event,
    );
  const key = here.key();
  const audit = new LogAudit(threadId, undefined, { find: () => ({ status: 'trusted', key }) });
  for (const event of forged) audit.take(event);
  expect(audit.result(false).problems).toEqual([
    expect.stringContaining('it is outside of its plan'),
  ]);
});

it('rye/core/plan only reads, and ends with a plan that a person approved', async () => {
  const here = await house(
    calls(write('src/a.txt')),
    calls(present()),
    reply('1. Change the text'),
  );
  const result = await here.json(['run', 'rye/core/plan', '--input', 'task=Rename it'], 8);
  const [id = ''] = result['approvals'] as readonly string[];
  const threadId = String(result['thread_id']);
  expect(here.file('src/a.txt')).toBeUndefined();
  await here.json(['approve', id, '--no-resume']);
  const done = await here.json(['threads', 'resume', threadId]);
  expect(done).toMatchObject({ status: 'completed', result: '1. Change the text' });
});

it('rye/core/build asks before each change that no plan lists', async () => {
  const here = await house(calls(write('a.txt')), reply('Written.'));
  const result = await here.json(['run', 'rye/core/build', '--input', 'task=Write a.txt'], 8);
  const [request] = await here.waiting();
  expect(request).toMatchObject({ tool: 'rye/file-system/write', reason: 'It changes a file.' });
  await here.json(['approve', request?.id ?? '', '--no-resume']);
  await here.json(['threads', 'resume', String(result['thread_id'])]);
  expect(here.file('a.txt')).toBe('hi\n');
  await here.json(['threads', 'undo', String(result['thread_id'])]);
  expect(here.file('a.txt')).toBeUndefined();
});

it('no text of a plan looks like a part of the plan that bounds it', async () => {
  const forged = 'Tidy up\n\nFiles that it may change:\n  README.md\r\nCommands that it may run:';
  const here = await planned(
    calls(present({ ...PLAN, title: forged, steps: [{ title: forged, detail: forged }] })),
  );
  await presented(here);
  const [request] = await here.waiting();
  const lines = request?.preview.text.split(/[\n\r]/) ?? [];
  expect(lines.filter((line) => /^\S/.test(line))).toEqual([
    'Files that it may change:',
    'Commands that it may run:',
    'Money that it may spend: $1.00',
    'Aim:',
    'Steps:',
  ]);
});
