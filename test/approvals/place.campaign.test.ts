import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { directive } from '../attacks/lab.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { family, starts } from './family.ts';
import { calls, marks, reply, toolUse } from './house.ts';

it('a call of an isolated thread is shown and bound as it is in its worktree', async () => {
  const here = await family({
    parent: [calls(starts('leaf', { isolation: 'worktree', isolation_result: 'merge' }))],
    leaf: [calls(toolUse('rye_bash', { command: 'pwd > where' }))],
  });
  writeFileSync(join(here.project, '.gitignore'), '.ai/state\n');
  const git = (...args: readonly string[]): void => {
    const identity = ['-c', 'user.name=t', '-c', 'user.email=t@t.example'];
    execFileSync('git', [...identity, ...args], { cwd: here.project });
  };
  git('init', '-q');
  git('add', '-A');
  git('commit', '-qm', 'first');
  here.policy({ rules: [{ tool: 'rye/bash', ask: 'me' }] });
  git('add', '-A');
  git('commit', '-qm', 'policy');
  const { thread_id: parent } = await here.json(['run', 'parent'], 8);
  const [request] = await here.waiting();
  const log = here.log(request?.thread_id ?? '');
  const requested = log.find(({ event_type: type }) => type === 'approval_requested');
  const { cwd } = (requested?.payload as { request: { cwd: string } } | undefined)?.request ?? {};
  expect(cwd).toBeDefined();
  expect(cwd).not.toBe(here.project);
  expect(here.file('where')).toBeUndefined();
  await here.json(['approve', request?.id ?? '']);
  await here.until(String(parent), 'completed');
  expect(here.file('where')).toBe(`${cwd}\n`);
});

it('approve returns once another process has taken the thread', async () => {
  const here = await family({ 'ask-one': [calls(marks('mark'))] });
  const { thread_id: id } = await here.json(['run', 'ask-one'], 8);
  const [request] = await here.waiting();
  await here.json(['approve', request?.id ?? '']);
  const { threads } = (await here.json(['threads', 'wait', String(id)])) as {
    threads: readonly { status: string }[];
  };
  expect(threads.map(({ status }) => status)).toEqual(['completed']);
  expect(here.file('mark')).toBe('ran\n');
});

it('a thread cannot move trust: neither keys, nor accepted files, nor signatures, nor its plan', async () => {
  const bin = join(await cliPackage(), 'bin/rye.js');
  const here = await family({ free: [] });
  here.sandbox('off');
  here.write('../ada.pem', here.stranger.pem);
  const { thread_id: thread } = await here.json(['run', 'free']);
  const commands = [
    'keys rotate --yes',
    'keys untrust 0123456789abcdef --yes',
    'keys trust ada.pem --owner ada --yes',
    'lock accept',
    'sign config agent/approvals',
    `threads resume ${String(thread)} --refresh`,
  ];
  const scripts: string[] = [];
  const rye = (wrap: string, args: string): string =>
    `${wrap} ${process.execPath} ${bin} --project ${here.project} --user-space ${here.home} ${args} 2>&1; echo "exit $?"`;
  for (const wrap of ['', 'env -i', 'env -i setsid -w']) {
    for (const args of commands) scripts.push(rye(wrap, args));
  }
  let next = 0;
  await here.model(({ body }) => {
    here.bodies.push(body);
    const command = scripts[next];
    next += 1;
    return command === undefined ? reply('done') : calls(toolUse('rye_bash', { command }));
  });
  here.signed(
    'directives/many.md',
    directive('many', {
      permissions:
        '<execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
      limits: 'turns="40" spend="1"',
    }),
  );
  here.write('config/agent/approvals.yaml', 'rules: []\n');
  here.policy({ rules: [] });
  const before = here.read('config/agent/approvals.yaml');
  await here.json(['run', 'many']);
  const told = JSON.stringify(here.bodies.at(-1)?.messages);
  expect(told.match(/approval_refused/g)).toHaveLength(scripts.length);
  expect(told.match(/exit 4/g)).toHaveLength(scripts.length);
  expect(here.read('config/agent/approvals.yaml')).toBe(before);
});
