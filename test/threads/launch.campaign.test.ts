import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { directive, lab, processesOf } from './lab.ts';

test('a launched thread runs in another process, finalizes itself and leaves no private file', async () => {
  const here = await lab();
  const launched = await here.job('one');
  expect(launched).toMatchObject({ directive: 'team/job', status: 'running' });
  expect(launched.thread_id).toMatch(/^team\/job-\w{4}$/);
  expect(launched.pid).not.toBe(process.pid);
  await here.until('the arrival', () => existsSync(path.join(here.project, 'arrived-one')));
  expect(await here.record(launched.thread_id)).toMatchObject({
    status: 'running',
    pid: launched.pid,
    epoch: 1,
  });
  const stat = readFileSync(`/proc/${launched.pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  // its own group and session, so that a hang-up of the terminal does not reach it
  expect(stat.slice(2, 4)).toEqual([String(launched.pid), String(launched.pid)]);
  here.openGate('one');
  const report = await here.rye.children.wait([launched.thread_id]);
  expect(report).toMatchObject({
    success: true,
    timed_out: false,
    threads: [{ status: 'completed', done: true, outputs: { passed: 'one' } }],
  });
  const folder = path.join(here.project, '.ai/state/threads', launched.thread_id);
  expect(existsSync(path.join(folder, 'handover.json'))).toBe(false);
  expect(readFileSync(path.join(folder, 'spawn.log'), 'utf8')).toBe('');
  expect((await here.rye.threads.verify(launched.thread_id)).ok).toBe(true);
  await here.until('its exit', () => processesOf(here.project, [launched.pid ?? 0]).length === 0);
  expect(await here.store.ledger.rows()).toMatchObject([
    { thread_id: launched.thread_id, max: 10_000, status: 'released' },
  ]);
});

test('threads that are launched at the same moment all start', async () => {
  const here = await lab();
  const names = ['a', 'b', 'c'];
  const launched = await Promise.all(names.map(async (name) => await here.job(name)));
  await here.until('every arrival', () =>
    names.every((name) => existsSync(path.join(here.project, `arrived-${name}`))),
  );
  for (const name of names) here.openGate(name);
  const report = await here.rye.children.wait(launched.map(({ thread_id: id }) => id));
  expect(report.success).toBe(true);
});

// Requirement: keys-on-command-line
test('secrets wait in memory and go by a pipe, never by files, arguments or environment', async () => {
  const here = await lab({ coordination: 'concurrency: { max_total: 1 }\n' });
  const secret = 'very-secret-value-of-this-test';
  await quiet(here);
  const first = await here.job('first');
  const queued = await here.rye.children.launch({
    directiveId: 'team/quiet',
    inputs: { token: secret },
  });
  expect(queued).toMatchObject({ status: 'created', pid: null });
  const folder = path.join(here.project, '.ai/state/threads', queued.thread_id);
  const handover = path.join(folder, 'handover.json');
  expect(statSync(handover).mode & 0o777).toBe(0o600);
  expectNowhere(here.project, secret);
  here.openGate('first');
  await here.rye.children.wait([first.thread_id]);
  await here.until('the arrival', () => existsSync(path.join(here.project, 'arrived-quiet')));
  const { pid } = await here.record(queued.thread_id);
  expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).not.toContain(secret);
  expect(readFileSync(`/proc/${pid}/environ`, 'utf8')).not.toContain(secret);
  expect(existsSync(handover)).toBe(false);
  expectNowhere(here.project, secret);
  here.openGate('quiet');
  const report = await here.rye.children.wait([queued.thread_id]);
  expect(report.success).toBe(true);
  expectNowhere(here.project, secret);
});

test('a killed process leaves no secret on disk, also before its thread is recovered', async () => {
  const here = await lab();
  const secret = 'another-secret-value';
  await quiet(here);
  const request = { directiveId: 'team/quiet', inputs: { token: secret } };
  const { pid } = await here.rye.children.launch(request, { leaves: true });
  process.kill(pid ?? 0, 'SIGKILL');
  await here.until('its exit', () => processesOf(here.project, [pid ?? 0]).length === 0);
  expectNowhere(here.project, secret);
});

test('a launch with secrets is refused when no slot is free and its process ends', async () => {
  const here = await lab({ coordination: 'concurrency: { max_total: 1 }\n' });
  await quiet(here);
  const first = await here.job('first');
  const request = { directiveId: 'team/quiet', inputs: { token: 'a-third-secret' }, threadId: 't' };
  await expect(here.rye.children.launch(request, { leaves: true })).rejects.toMatchObject({
    code: 'spawn_failed',
  });
  expect(await here.record('t')).toMatchObject({ status: 'error' });
  here.openGate('first');
  await here.rye.children.wait([first.thread_id]);
  expectNowhere(here.project, 'a-third-secret');
});

test('a queued thread whose secrets died with their process ends with spawn_failed', async () => {
  const here = await lab({ coordination: 'concurrency: { max_total: 1 }\n' });
  await quiet(here);
  const first = await here.job('first');
  const request = { directiveId: 'team/quiet', inputs: { token: 'a-fourth-secret' } };
  const { thread_id: id } = await here.rye.children.launch(request);
  const handover = path.join(here.project, '.ai/state/threads', id, 'handover.json');
  const left = JSON.parse(readFileSync(handover, 'utf8')) as { holder: { pid: number } };
  left.holder.pid = 2 ** 22;
  writeFileSync(handover, JSON.stringify(left));
  here.openGate('first');
  // the process of the first thread looks after the queue when it ends
  await here.until('the end', async () => (await here.record(id)).status === 'error');
  expect((await here.record(id)).error).toMatchObject({ code: 'spawn_failed' });
  await here.rye.children.wait([first.thread_id]);
});

/**
 * Searches every file below a folder, databases and logs included. Another process does it: closing a database file in
 * this one would drop the locks that its own connections hold.
 */
function expectNowhere(folder: string, secret: string): void {
  const { status, stdout } = spawnSync('grep', ['-rlaF', '--', secret, folder], {
    encoding: 'utf8',
  });
  expect([status, stdout]).toEqual([1, '']);
}

/** Signs a directive with a secret input, which waits at its gate. */
async function quiet(here: Awaited<ReturnType<typeof lab>>): Promise<void> {
  here.write(
    '.ai/directives/team/quiet.md',
    directive('team/quiet', {
      tools: ['team/gate'],
      inputs: '<input name="token" type="string" required="true" secret="true">Token.</input>',
      steps:
        '<step name="gate"><execute item_type="tool" item_id="team/gate"><param name="name">quiet</param></execute></step>',
    }),
  );
  await here.sign();
}

test('the environment of a launched thread is reduced; keys of providers reach it by the environment alone', async () => {
  const here = await lab();
  const rye = here.open({
    env: {
      PATH: process.env['PATH'],
      HOME: here.home,
      ANTHROPIC_API_KEY: 'sk-ant-of-this-test',
      UNRELATED_TOKEN: 'must-not-travel',
    },
  });
  const { pid, thread_id } = await rye.children.launch({
    directiveId: 'team/job',
    inputs: { name: 'env' },
    provider: 'literal',
  });
  await here.until('the arrival', () => existsSync(path.join(here.project, 'arrived-env')));
  const environment = readFileSync(`/proc/${pid}/environ`, 'utf8').replaceAll('\0', '\n');
  // it came, and the thread has hidden what other programs could read there
  expect(environment).toMatch(/^ANTHROPIC_API_KEY=\*+$/m);
  expect(environment).not.toContain('sk-ant');
  expect(environment).not.toContain('must-not-travel');
  expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).not.toContain('sk-ant');
  here.openGate('env');
  expect((await rye.children.wait([thread_id])).success).toBe(true);
});

// Requirement: exception-strands-thread
test('a process that cannot be started ends the thread as an error and frees its budget', async () => {
  const here = await lab();
  // one argument longer than the kernel takes
  const rye = here.open({ program: ['x'.repeat(300_000)] });
  await expect(
    rye.children.launch({ directiveId: 'team/job', inputs: { name: 'never' } }),
  ).rejects.toMatchObject({ code: 'spawn_failed' });
  const [record] = await here.store.registry.list({});
  expect(record).toMatchObject({ status: 'error', error: { code: 'spawn_failed' } });
  expect(await here.store.ledger.rows()).toMatchObject([{ status: 'released' }]);
  const document = JSON.parse(
    readFileSync(
      path.join(here.project, '.ai/state/threads', record?.thread_id ?? '', 'thread.json'),
      'utf8',
    ),
  );
  expect(document).toMatchObject({ status: 'error', error: { code: 'spawn_failed' } });
});

test('a process that dies before it takes the thread over is found by a waiter', async () => {
  const here = await lab();
  const rye = here.open({ program: [path.join(here.project, 'no-such-program.js')] });
  const { thread_id } = await rye.children.launch({
    directiveId: 'team/job',
    inputs: { name: 'never' },
  });
  const report = await here.rye.children.wait([thread_id]);
  expect(report.threads).toMatchObject([{ status: 'error', done: true }]);
  expect(await here.store.ledger.rows()).toMatchObject([{ status: 'released' }]);
});

// Requirement: checked-differs-from-run
test('a plan that was changed after the start is not run', async () => {
  const here = await lab({ coordination: 'concurrency: { max_total: 1 }\n' });
  const first = await here.job('first');
  const queued = await here.job('second');
  const file = path.join('.ai/state/threads', queued.thread_id, 'plan.json');
  const plan = readFileSync(path.join(here.project, file), 'utf8');
  here.write(file, plan.replace('"rye.execute.tool.team.gate"', '"rye.*"'));
  here.openGate('all');
  const report = await here.rye.children.wait([first.thread_id, queued.thread_id]);
  expect(report.threads).toMatchObject([
    { status: 'completed' },
    { status: 'error', error: { code: 'thread_tampered' } },
  ]);
  expect(await here.store.ledger.remaining(queued.thread_id)).toBe(10_000);
});

test('what fails in prepare registers nothing', async () => {
  const here = await lab();
  await expect(here.rye.children.launch({ directiveId: 'team/job' })).rejects.toMatchObject({
    code: 'invalid_input',
  });
  expect(await here.store.registry.list({})).toEqual([]);
});

test('a tool runs asynchronously as a thread whose id is a UUID', async () => {
  const here = await lab();
  const launched = await here.rye.children.launchTool({
    toolId: 'team/gate',
    params: { name: 'tool' },
  });
  expect(launched).toMatchObject({ directive: 'tool/team/gate', status: 'running' });
  expect(launched.thread_id).toMatch(
    /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  await here.until('the arrival', () => existsSync(path.join(here.project, 'arrived-tool')));
  here.openGate('tool');
  const report = await here.rye.children.wait([launched.thread_id]);
  expect(report).toMatchObject({ success: true, threads: [{ status: 'completed' }] });
  expect(JSON.parse(report.threads[0]?.result ?? '')).toEqual({ passed: 'tool' });
  expect((await here.rye.threads.verify(launched.thread_id)).ok).toBe(true);
  await expect(
    here.rye.children.launchTool({ toolId: 'team/none', params: {} }),
  ).rejects.toMatchObject({ code: 'item_not_found' });
});

test('a thread starts a tool asynchronously only where it holds it', async () => {
  const here = await lab();
  here.openGate('all');
  const call =
    '<execute item_type="tool" item_id="team/gate" async="true"><param name="name">t</param></execute>';
  const wait =
    '<execute item_type="tool" item_id="rye/agent/threads/orchestrator"><param name="operation">wait_threads</param></execute>';
  const steps = `<step name="start">${call}</step><step name="wait">${wait}</step>`;
  const orchestrator = 'rye/agent/threads/orchestrator';
  const limits = 'turns="9" spend="0.2" spawns="20" depth="4"';
  const put = async (tools: readonly string[]) => {
    here.write('.ai/directives/team/top.md', directive('team/top', { tools, limits, steps }));
    await here.sign();
    return await here.rye.threads.execute({ directiveId: 'team/top' });
  };
  const held = await put(['team/gate', orchestrator]);
  expect(held.error).toBeUndefined();
  expect(
    await here.store.registry.list({ parentId: held.thread_id, order: 'oldest first' }),
  ).toMatchObject([{ directive: 'tool/team/gate', status: 'completed' }]);
  const refused = await put([orchestrator]);
  expect(refused.success).toBe(false);
  expect(
    await here.store.registry.list({ parentId: refused.thread_id, order: 'oldest first' }),
  ).toEqual([]);
});
