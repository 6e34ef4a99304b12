import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import type { ThreadPlan } from '../../src/kernel/core/plan.ts';
import type { ThreadDocument } from '../../src/kernel/threads/thread-document.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

const WRITE = '<execute><tool>rye/file-system/write</tool></execute>';

async function lab(): Promise<Lab> {
  const made = await openLab();
  onTestFinished(async () => await made.remove());
  return made;
}

function ofType(events: readonly (LogEvent | UnknownEvent)[], type: string) {
  return events.filter(({ event_type }) => event_type === type).map(({ payload }) => payload);
}

async function changesOf(here: Lab, threadId: string) {
  const [last] = ofType(await here.events(threadId), 'plan_changed').slice(-1);
  return (last as { readonly changes: readonly { type: string; id: string }[] }).changes.map(
    ({ type, id }) => `${type} ${id}`,
  );
}

async function edit(here: Lab, id: string, text: string) {
  here.write(`directives/${id}.md`, text);
  await here.sign('directive', id);
}

async function resume(here: Lab, threadId: string, options = {}) {
  here.notices.length = 0;
  return await here.rye().recovery.resume({ threadId, message: 'Go on.', ...options });
}

function folderOf(here: Lab, threadId: string): string {
  return here.path(join('state/threads', threadId));
}

function documentOf(here: Lab, threadId: string): ThreadDocument {
  return JSON.parse(here.read(join('state/threads', threadId, 'thread.json'))) as ThreadDocument;
}

it('a refresh follows the directive as it is now, records and prints what changed, and lasts', async () => {
  const here = await lab();
  const { requests } = await here.model([
    reply('One.'),
    calls(toolUse('rye_file_system_write', { path: 'a.txt', content: 'x' })),
    reply('Two.'),
    reply('Two.'),
    reply('Three.'),
    reply('Three.'),
  ]);
  here.signed('directives/job.md', directive('job', { body: 'Say one.' }));
  const { thread_id } = await here.run('job');
  const wider = directive('job', {
    body: 'Say two.',
    permissions: WRITE,
    limits: 'turns="9" spend="0.10"',
  });
  await edit(here, 'job', wider);
  const resumed = await resume(here, thread_id, { refresh: true });
  expect(resumed).toMatchObject({ thread_id, status: 'completed' });
  expect(here.notices).toEqual([
    'the directive job has changed and applies',
    'the permission rye.execute.tool.rye.file-system.write is granted',
    'the tool rye/execute is granted',
    'the tool rye/file-system/write is granted',
    'the limit turns is 9 instead of 6',
  ]);
  expect(await changesOf(here, thread_id)).toEqual([
    'directive job',
    'capability rye.execute.tool.rye.file-system.write',
    'tool rye/execute',
    'tool rye/file-system/write',
    'limit turns',
  ]);
  // the model is told the new text, after the conversation so far
  const second = JSON.stringify(requests[1]?.body.messages);
  expect(second).toMatch(/Say one[^]*One[.][^]*replaces the earlier one[^]*Say two[^]*Go on[.]/);
  expect(requests[1]?.body.tools?.map(({ name }) => name)).toContain('rye_file_system_write');
  expect(documentOf(here, thread_id)).toMatchObject({
    limits: { turns: 9 },
    capabilities: ['rye.execute.tool.rye.file-system.write'],
  });
  // the next run keeps it and is told nothing
  await resume(here, thread_id);
  expect(here.notices).toEqual([]);
  expect(JSON.stringify(requests.at(-1)?.body.tools)).toContain('rye_file_system_write');
  expect(ofType(await here.events(thread_id), 'plan_changed')).toHaveLength(1);
});

it('without a refresh an edited directive changes nothing, and the command is named', async () => {
  const here = await lab();
  const { requests } = await here.model([reply('One.'), reply('Two.'), reply('Three.')]);
  here.signed('directives/job.md', directive('job', { body: 'Say one.' }));
  const { thread_id } = await here.run('job');
  await edit(here, 'job', directive('job', { body: 'Say two.', permissions: WRITE }));
  await resume(here, thread_id);
  expect(here.notices).toEqual([
    `the directive job has changed since the plan; to plan the thread again: rye threads resume ${thread_id} --refresh`,
  ]);
  expect(JSON.stringify(requests[1]?.body)).not.toMatch(/Say two|rye_file_system_write/);
  await resume(here, thread_id, { refresh: true });
  expect(JSON.stringify(requests[2]?.body)).toMatch(/Say two/);
});

it('a refresh that finds no change is an ordinary run', async () => {
  const here = await lab();
  await here.model([reply('One.'), reply('Two.')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  const before = documentOf(here, thread_id).plan_sha256;
  await resume(here, thread_id, { refresh: true });
  expect(here.notices).toEqual([`nothing has changed since thread ${thread_id} was planned`]);
  expect(ofType(await here.events(thread_id), 'plan_changed')).toEqual([]);
  expect(documentOf(here, thread_id).plan_sha256).toBe(before);
});

it('what the start set beyond the directive holds after a refresh', async () => {
  const here = await lab();
  await here.model([reply('One.'), reply('Two.')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job', { limits: { turns: 4 }, model: 'claude-haiku-4-5' });
  await edit(
    here,
    'job',
    directive('job', { body: 'Another.', limits: 'turns="20" spend="0.05"' }),
  );
  await resume(here, thread_id, { refresh: true });
  expect(documentOf(here, thread_id)).toMatchObject({
    model: 'claude-haiku-4-5',
    limits: { turns: 4, spend: 0.05 },
  });
});

it('rules and hooks that are gone hold until a refresh', async () => {
  const here = await lab();
  await here.model([reply('One.'), reply('QQ'), reply('Two.'), reply('QQ')]);
  here.signed('rules/no-word.md', '---\ncondition: QQ\n---\nDo not say so.\n');
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  here.write('rules/no-word.md', '---\nenabled: false\ncondition: QQ\n---\nDo not say so.\n');
  await here.sign('rule', 'no-word');
  expect((await resume(here, thread_id)).result).toBe('Two.');
  expect((await resume(here, thread_id, { refresh: true })).result).toBe('QQ');
  expect(here.notices).toContain('the rule no-word does not apply any more');
});

it.each([
  { what: 'is unsigned', text: directive('job', { body: 'New.' }), code: 'unsigned' },
  { what: 'is not a directive', text: 'Nothing.\n', code: 'unsigned' },
])('a refresh is refused if the directive $what', async ({ text, code }) => {
  const here = await lab();
  await here.model([reply('One.'), reply('Two.')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  here.write('directives/job.md', text);
  await expect(resume(here, thread_id, { refresh: true })).rejects.toMatchObject({
    code,
    message: expect.stringContaining(`thread ${thread_id} is not refreshed: `),
    hint: expect.stringContaining(`rye threads resume ${thread_id}`),
  });
  // nothing was written, and the thread continues with the plan that it has
  expect(await resume(here, thread_id)).toMatchObject({ thread_id, result: 'Two.' });
});

it('a refresh names an input that the directive asks for now, and takes it', async () => {
  const here = await lab();
  const { requests } = await here.model([reply('One.'), reply('Two.')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  const inputs = '<inputs><input name="who" type="string" required="true">Name.</input></inputs>';
  await edit(here, 'job', directive('job', { body: 'Greet {input:who}.', children: inputs }));
  await expect(resume(here, thread_id, { refresh: true })).rejects.toMatchObject({
    message: expect.stringContaining('who'),
  });
  await resume(here, thread_id, { refresh: true, secrets: { who: 'Ada' } });
  expect(JSON.stringify(requests[1]?.body.messages)).toContain('Greet Ada.');
  expect(documentOf(here, thread_id).inputs).toEqual({ who: 'Ada' });
});

it('a refresh whose limits are used up is refused, and a grant lets it run', async () => {
  const here = await lab();
  await here.model([reply('One.'), reply('Two.')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  await edit(here, 'job', directive('job', { limits: 'turns="1" spend="0.10"' }));
  await expect(resume(here, thread_id, { refresh: true })).rejects.toMatchObject({
    code: 'limit_turns',
  });
  expect(
    await resume(here, thread_id, { refresh: true, limits: { turns: 3 }, raiseLimits: true }),
  ).toMatchObject({
    result: 'Two.',
  });
  expect(documentOf(here, thread_id).limits.turns).toBe(4);
});

it('a model that the directive names now answers, and later runs keep it', async () => {
  const here = await lab();
  const { requests } = await here.model([reply('One.'), reply('Two.'), reply('Three.')]);
  const on = (id: string): string =>
    directive('job').replace('<limits', `<model id="${id}" /><limits`);
  here.signed('directives/job.md', on('claude-sonnet-5-5'));
  const { thread_id } = await here.run('job');
  await here.rye().trees.changeModel(thread_id, { model: 'claude-opus-5-5' });
  await edit(here, 'job', on('claude-haiku-4-5'));
  await resume(here, thread_id, { refresh: true });
  await resume(here, thread_id);
  expect(requests.map(({ body }) => body.model)).toEqual([
    expect.stringContaining('sonnet'),
    expect.stringContaining('haiku'),
    expect.stringContaining('haiku'),
  ]);
});

it('a refresh takes only the risks that are acknowledged', async () => {
  const here = await lab();
  await here.model([reply('One.'), reply('Two.'), reply('Two.')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  const bash = '<execute><tool>rye/bash</tool></execute>';
  await edit(here, 'job', directive('job', { permissions: bash }));
  await expect(resume(here, thread_id, { refresh: true })).rejects.toMatchObject({
    code: 'acknowledge_required',
  });
  await expect(resume(here, thread_id, { acknowledge: ['elevated'] })).rejects.toMatchObject({
    code: 'usage',
  });
  await resume(here, thread_id, { refresh: true, acknowledge: ['elevated'] });
  expect(documentOf(here, thread_id).capabilities).toEqual(['rye.execute.tool.rye.bash']);
});

it('of two refreshes at once one runs, and the other is refused or comes after it', async () => {
  const here = await lab();
  await here.model([reply('One.'), reply('Two.'), reply('Three.')]);
  here.signed('directives/job.md', directive('job', { body: 'Say one.' }));
  const { thread_id } = await here.run('job');
  await edit(here, 'job', directive('job', { body: 'Say two.' }));
  const both = await Promise.allSettled([
    resume(here, thread_id, { refresh: true }),
    resume(here, thread_id, { refresh: true }),
  ]);
  expect(both.filter(({ status }) => status === 'fulfilled').length).toBeGreaterThan(0);
  for (const one of both) {
    if (one.status === 'rejected') expect(one.reason).toMatchObject({ code: 'thread_locked' });
  }
  expect(ofType(await here.events(thread_id), 'plan_changed')).toHaveLength(1);
});

it('a plan that was edited on the disk is refused', async () => {
  const here = await lab();
  await here.model([reply('One.'), reply('Two.'), reply('Three.')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  await edit(here, 'job', directive('job', { body: 'New.' }));
  await resume(here, thread_id, { refresh: true });
  const name = readdirSync(folderOf(here, thread_id)).find((one) => one.startsWith('plan-')) ?? '';
  const path = join('state/threads', thread_id, name);
  const plan = JSON.parse(here.read(path)) as ThreadPlan;
  writeFileSync(here.path(path), JSON.stringify({ ...plan, capabilities: ['rye.*'] }));
  await expect(resume(here, thread_id)).rejects.toMatchObject({ code: 'thread_tampered' });
  await expect(resume(here, thread_id, { refresh: true })).rejects.toMatchObject({
    code: 'thread_tampered',
  });
});

it('a thread cannot refresh the plan of another', async () => {
  const here = await lab();
  await here.model([reply('One.')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  here.env['RYE_PARENT_THREAD_ID'] = thread_id;
  await expect(resume(here, thread_id, { refresh: true })).rejects.toMatchObject({
    code: 'capability_denied',
  });
});

it('resume as a fork runs a copy and only reads the source', async () => {
  const here = await lab();
  const { requests } = await here.model([reply('One.'), reply('Two.'), reply('Again.')]);
  here.signed('directives/job.md', directive('job'));
  const { thread_id } = await here.run('job');
  const log = join('state/threads', thread_id, 'transcript.jsonl');
  const before = here.read(log);
  const forked = await resume(here, thread_id, { fork: true });
  expect(forked).toMatchObject({ status: 'completed', result: 'Two.' });
  expect(forked.thread_id).not.toBe(thread_id);
  expect(here.notices).toEqual([`thread ${forked.thread_id} is a fork of ${thread_id}`]);
  expect(JSON.stringify(requests[1]?.body.messages)).toMatch(/One[.][^]*Go on[.]/);
  const first = (await here.rye().trees.path(thread_id)).find(
    ({ event_type: type }) => type === 'message',
  );
  const early = await resume(here, thread_id, { fork: true, from: first?.id });
  expect(early.result).toBe('Again.');
  expect(JSON.stringify(requests[2]?.body.messages)).not.toContain('One.');
  expect(here.read(log)).toBe(before);
});
