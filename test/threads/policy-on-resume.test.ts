import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import { directive, type Lab, openLab, shellTool } from '../attacks/lab.ts';
import { calls, reply, toolUse, type WireRequest } from '../helpers/wire-server.ts';

const WRITE = '<execute><tool>rye/file-system/write</tool></execute>';

async function lab(): Promise<Lab> {
  const made = await openLab();
  onTestFinished(async () => await made.remove());
  return made;
}

function rule(frontmatter: string, body = 'Do not say so.'): string {
  return `---\n${frontmatter}\n---\n${body}\n`;
}

function ofType(events: readonly (LogEvent | UnknownEvent)[], type: string) {
  return events.filter(({ event_type }) => event_type === type).map(({ payload }) => payload);
}

function systemOf(request: WireRequest | undefined): string {
  return JSON.stringify(request?.body.system ?? '');
}

/** Edits a file that the project has accepted, and signs it as a person does. */
async function edit(here: Lab, type: 'rule' | 'config' | 'directive', id: string, text: string) {
  here.write(
    `${type === 'config' ? 'config' : `${type}s`}/${id}${type === 'config' ? '.yaml' : '.md'}`,
    text,
  );
  await here.sign(type, id);
}

async function resume(here: Lab, threadId: string, options = {}) {
  here.notices.length = 0;
  return await here.rye().recovery.resume({ threadId, message: 'Go on.', ...options });
}

it('a rule that is new since the plan applies on resume, and is on record and noticed', async () => {
  const here = await lab();
  await here.model([reply('Hello.'), reply('QQ'), reply('Fine.'), reply('QQ again')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  here.signed('rules/no-word.md', rule('condition: QQ'));
  const resumed = await resume(here, thread_id);
  expect(resumed).toMatchObject({ status: 'completed', result: 'Fine.' });
  expect(here.notices).toEqual(['the rule no-word is new and applies']);
  const events = await here.events(resumed.thread_id);
  expect(ofType(events, 'plan_changed')).toMatchObject([
    { changes: [{ type: 'rule', id: 'no-word', after: { path: here.path('rules/no-word.md') } }] },
  ]);
  // its plan holds the rule now, and it was told
  const again = await resume(here, resumed.thread_id);
  expect(again.result).toBe('QQ again');
  expect(here.notices).toEqual([]);
});

it('an edited rule is told again, and what it matched before still counts', async () => {
  const here = await lab();
  const { requests } = await here.model([
    reply('QQ'),
    reply('Fine.'),
    reply('QQ'),
    reply('WW'),
    reply('Good.'),
  ]);
  here.signed('rules/no-word.md', rule('condition: QQ'));
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  await edit(here, 'rule', 'no-word', rule('condition: WW', 'Neither this.'));
  const resumed = await resume(here, thread_id);
  // QQ was told before, by the rule as it was
  expect(resumed.result).toBe('QQ');
  expect(here.notices).toEqual([
    'the rule no-word was edited; its present version applies from now on',
    expect.stringContaining(
      `; to plan the thread again: rye threads resume ${thread_id} --refresh`,
    ),
  ]);
  const next = await resume(here, resumed.thread_id);
  expect(next.result).toBe('Good.');
  expect(JSON.stringify(requests.at(-1)?.body.messages)).toContain('Neither this.');
});

it('an edited rule keeps the conditions of the plan, which nothing has matched yet', async () => {
  const here = await lab();
  await here.model([reply('Hello.'), reply('QQ'), reply('Fine.')]);
  here.signed('rules/no-word.md', rule('condition: QQ'));
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  await edit(here, 'rule', 'no-word', rule('condition: WW'));
  expect((await resume(here, thread_id)).result).toBe('Fine.');
});

it('a rule with another text is told again; one that was removed or loosened stays as it was', async () => {
  const here = await lab();
  await here.model([
    reply('QQ'),
    reply('Fine.'),
    reply('QQ'),
    reply('Good.'),
    reply('WW'),
    reply('Better.'),
  ]);
  here.signed('rules/no-word.md', rule('condition: QQ'));
  here.signed('rules/loosened.md', rule('condition: WW'));
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  await edit(here, 'rule', 'no-word', rule('condition: QQ', 'Never.'));
  const told = await resume(here, thread_id);
  expect(told.result).toBe('Good.');
  await edit(here, 'rule', 'no-word', rule('enabled: false\ncondition: QQ', 'Never.'));
  await edit(here, 'rule', 'loosened', rule('condition: WW\ninterrupt: never'));
  const kept = await resume(here, told.thread_id);
  expect(kept.result).toBe('Better.');
  expect(ofType(await here.events(kept.thread_id), 'rule_matched').at(-1)).toMatchObject({
    rule: 'loosened',
    interrupted: true,
  });
  expect(here.notices).toHaveLength(2);
});

it('a rule that always applies now is told in the system text', async () => {
  const here = await lab();
  const { requests } = await here.model([reply('One.'), reply('Two.'), reply('Three.')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  here.signed('rules/tone.md', rule('always_apply: true', 'Be brief.'));
  const resumed = await resume(here, thread_id);
  await resume(here, resumed.thread_id);
  expect(systemOf(requests[0])).not.toContain('Be brief.');
  expect(systemOf(requests[1])).toContain('Be brief.');
  expect(systemOf(requests[2])).toBe(systemOf(requests[1]));
});

const GATE = (id: string, tool: string) =>
  `  - id: ${id}\n    event: tool_gate\n    condition: {path: tool, op: eq, value: ${tool}}\n    action: {control: fail, error: "${id} says no"}\n`;

it('a gate that is new since the plan refuses, one that is gone refuses still; new text is not injected', async () => {
  const here = await lab();
  const write = (path: string) => calls(toolUse('rye_file_system_write', { path, content: 'x' }));
  const { requests } = await here.model([
    reply('Hello.'),
    write('a.txt'),
    reply('Done.'),
    write('b.txt'),
    reply('Done.'),
  ]);
  here.signed('directives/job.md', directive('job', { permissions: WRITE }));
  const { thread_id } = await here.run('job');
  here.signed(
    'config/agent/hooks.yaml',
    `hooks:\n${GATE('shut', 'rye/file-system/write')}  - id: say\n    event: thread_continued\n    action: {inject: Injected.}\n`,
  );
  const resumed = await resume(here, thread_id);
  expect(existsSync(join(here.project, 'a.txt'))).toBe(false);
  expect(here.notices).toEqual([
    'the hook shut is new or was edited, and applies',
    `the hook say is new or was edited; to plan the thread again: rye threads resume ${thread_id} --refresh`,
  ]);
  expect(JSON.stringify(requests)).not.toContain('Injected.');
  await edit(here, 'config', 'agent/hooks', 'hooks: []\n');
  await resume(here, resumed.thread_id);
  expect(existsSync(join(here.project, 'b.txt'))).toBe(false);
  expect(here.notices).toEqual([expect.stringContaining('the hook shut was edited or removed')]);
});

it('a gate or a permission that asks now binds a thread that was planned before', async () => {
  const here = await lab();
  const write = calls(toolUse('rye_file_system_write', { path: 'new.txt', content: 'x' }));
  await here.model([reply('Hello.'), reply('Hello.'), write, write]);
  here.signed('directives/job.md', directive('job', { permissions: WRITE }));
  here.signed('directives/other.md', directive('other', { permissions: WRITE }));
  const [job, other] = [await here.run('job'), await here.run('other')];
  const asking = '<execute><tool ask="true">rye/file-system/write</tool></execute>';
  await edit(here, 'directive', 'other', directive('other', { permissions: asking }));
  const asked = await resume(here, other.thread_id);
  expect([asked.status, here.notices]).toEqual([
    'suspended',
    expect.arrayContaining([
      'a person is asked about rye.execute.tool.rye.file-system.write from now on',
    ]),
  ]);
  const gate = { id: 'g', event: 'tool_gate', action: { control: 'ask', reason: 'Look.' } };
  here.signed('config/agent/hooks.yaml', JSON.stringify({ hooks: [gate] }));
  const gated = await resume(here, job.thread_id);
  expect([gated.status, here.notices]).toEqual([
    'suspended',
    ['the hook g is new or was edited, and applies'],
  ]);
  expect(existsSync(join(here.project, 'new.txt'))).toBe(false);
});

it('a ceiling that an ancestor sets now narrows the planned capabilities', async () => {
  const here = await lab();
  const both =
    '<execute><tool>rye/file-system/write</tool><tool>rye/file-system/read</tool></execute>';
  await here.model([
    reply('Hello.'),
    calls(toolUse('rye_file_system_write', { path: 'a.txt', content: 'x' })),
    reply('Done.'),
  ]);
  here.signed('directives/base.md', directive('base', { permissions: both }));
  here.signed('directives/job.md', directive('job', { extends: 'base', permissions: both }));
  const { thread_id } = await here.run('job');
  const ceiling = directive('base', { permissions: both.replace(/<tool>[^<]*write<[/]tool>/, '') });
  await edit(
    here,
    'directive',
    'base',
    ceiling.replace('<permissions>', '<permissions ceiling="true">'),
  );
  const resumed = await resume(here, thread_id);
  expect(existsSync(join(here.project, 'a.txt'))).toBe(false);
  expect(ofType(await here.events(resumed.thread_id), 'plan_changed')).toMatchObject([
    { changes: [{ type: 'capability', id: 'rye.execute.tool.rye.file-system.write' }] },
  ]);
});

it('a directive whose key was revoked since the plan refuses the resume', async () => {
  const here = await lab();
  await here.model([reply('Hello.'), reply('Again.')]);
  await here.rye().keys.trust(here.stranger.pem);
  here.signed('directives/job.md', directive('job'), here.stranger);
  const { thread_id } = await here.run('job');
  await here.rye().keys.revoke(here.stranger.keyId);
  await expect(resume(here, thread_id)).rejects.toMatchObject({
    code: 'key_revoked',
    hint: expect.stringContaining(`Then run: rye threads resume ${thread_id}`),
  });
});

it('a tool whose key was revoked since the plan refuses the resume before the model is asked', async () => {
  const here = await lab();
  const { requests } = await here.model([reply('Hello.'), reply('Again.')]);
  await here.rye().keys.trust(here.stranger.pem);
  here.signed('tools/demo/look.sh', shellTool('echo {}'), here.stranger);
  const permissions = '<execute><tool>demo/look</tool></execute>';
  here.signed('directives/job.md', directive('job', { permissions }));
  const { thread_id } = await here.run('job');
  await here.rye().keys.revoke(here.stranger.keyId);
  await expect(resume(here, thread_id)).rejects.toMatchObject({
    code: 'key_revoked',
    hint: expect.stringContaining(`rye threads resume ${thread_id} --refresh`),
  });
  expect(requests).toHaveLength(1);
  here.signed('tools/demo/look.sh', shellTool('echo {}'));
  expect(await resume(here, thread_id)).toMatchObject({ result: 'Again.' });
});

it('a file that a revoked key had signed refuses the resume although it is signed again', async () => {
  const here = await lab();
  await here.model([reply('Hello.'), reply('Again.')]);
  await here.rye().keys.trust(here.stranger.pem);
  const path = here.signed('directives/job.md', directive('job'), here.stranger);
  const { thread_id } = await here.run('job');
  await here.rye().keys.revoke(here.stranger.keyId);
  await here.sign('directive', 'job');
  await expect(resume(here, thread_id)).rejects.toMatchObject({
    code: 'key_revoked',
    message: expect.stringContaining(`${path}, which key ${here.stranger.keyId} had signed`),
    hint: expect.stringContaining(`rye threads resume ${thread_id} --refresh`),
  });
  expect(await resume(here, thread_id, { refresh: true })).toMatchObject({ result: 'Again.' });
});

it('a permission that the risk table refuses now is removed', async () => {
  const here = await lab();
  const { requests } = await here.model([reply('Hello.'), reply('Hello.')]);
  here.signed('directives/job.md', directive('job', { permissions: WRITE }));
  const { thread_id } = await here.run('job');
  here.signed(
    'config/agent/capability_risk.yaml',
    'risk_levels: {write: block}\nclassifications:\n  - risk: write\n    patterns: [rye.execute.tool.rye.file-system.write]\n',
  );

  await resume(here, thread_id);
  expect(here.notices).toContainEqual(
    expect.stringContaining('has the risk write, which the policy refuses now'),
  );
  expect(ofType(await here.events(thread_id), 'plan_changed')).toMatchObject([
    { changes: [{ type: 'capability', id: 'rye.execute.tool.rye.file-system.write' }] },
  ]);
  expect(requests.length).toBeGreaterThan(1);
});

it('a lower default limit applies, also from a file that ends with .yml', async () => {
  const here = await lab();
  await here.model(() => reply('One.'));
  here.signed('directives/job.md', directive('job', { limits: 'spend="0.10"' }));
  here.signed('config/agent/resilience.yml', 'limits: {turns: 9}\n');
  const { thread_id } = await here.run('job');
  here.signed('config/agent/resilience.yml', 'limits: {turns: 3}\n');
  await here.rye().lock.accept();
  await resume(here, thread_id);
  expect(here.notices).toEqual(['the default limit turns is 3 now instead of 9, and applies']);
});

it('a lower default limit and fewer interrupts apply; what a person granted stays', async () => {
  const here = await lab();
  await here.model([reply('One.'), reply('Two.'), reply('Three.')]);
  here.signed('directives/job.md', directive('job', { limits: 'spend="0.10"' }));
  const { thread_id } = await here.run('job');
  here.signed('config/agent/resilience.yaml', 'limits: {turns: 8}\n');
  here.signed('config/agent/rules.yaml', 'max_interrupts_per_run: 2\n');
  await resume(here, thread_id);
  expect(here.notices).toEqual([
    'the default limit turns is 8 now instead of 25, and applies',
    'max_interrupts_per_run is 2 now, which is less, and applies',
  ]);
  await resume(here, thread_id, { limits: { turns: 30 }, raiseLimits: true });
  expect(here.notices).toEqual([]);
});
