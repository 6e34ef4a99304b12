import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { directive, type Lab, lab, processesOf } from './lab.ts';

const arrived = (here: Lab, name: string): boolean =>
  existsSync(path.join(here.project, `arrived-${name}`));

/** A running parent whose gate is closed. */
async function parentOf(here: Lab): Promise<string> {
  const { thread_id } = await here.job('parent');
  await here.until('the arrival', () => arrived(here, 'parent'));
  return thread_id;
}

// Requirement: children-bounded
test('more children than max_children wait as created; each end starts the next without a scheduler', async () => {
  const here = await lab({ coordination: 'concurrency: { max_children: 3, max_total: 20 }\n' });
  const parentThreadId = await parentOf(here);
  const limits = { spend: 0.001 };
  const started = [];
  for (let n = 1; n <= 6; n += 1) started.push(await here.job(`c${n}`, { parentThreadId, limits }));
  expect(started.map(({ status }) => status)).toEqual([
    ...Array.from({ length: 3 }, () => 'running'),
    ...Array.from({ length: 3 }, () => 'created'),
  ]);
  await here.until('three arrivals', () => ['c1', 'c2', 'c3'].every((name) => arrived(here, name)));
  const running = async (): Promise<number> =>
    (await here.store.registry.list({ parentId: parentThreadId, order: 'oldest first' })).filter(
      ({ status, pid }) => status === 'running' || (status === 'created' && pid !== null),
    ).length;
  expect(await running()).toBe(3);
  // there is no waiter now: the child that ends starts its sibling
  here.openGate('c1');
  await here.until('the fourth', () => arrived(here, 'c4'));
  expect(await running()).toBe(3);
  here.openGate('all');
  const report = await here.rye.children.wait(started.map(({ thread_id }) => thread_id));
  expect(report.threads.map(({ status }) => status)).toEqual(started.map(() => 'completed'));
});

test('max_total holds for the whole project, but a parent may always have one child running', async () => {
  const here = await lab({ coordination: 'concurrency: { max_children: 5, max_total: 1 }\n' });
  const parentThreadId = await parentOf(here);
  const other = await here.job('other');
  expect(other.status).toBe('created');
  const limits = { spend: 0.001 };
  const first = await here.job('k1', { parentThreadId, limits });
  const second = await here.job('k2', { parentThreadId, limits });
  expect([first.status, second.status]).toEqual(['running', 'created']);
  here.openGate('all');
  const all = [parentThreadId, other.thread_id, first.thread_id, second.thread_id];
  expect((await here.rye.children.wait(all)).success).toBe(true);
});

test('a queued thread whose starter is gone is started by the next command', async () => {
  const here = await lab({ coordination: 'concurrency: { max_total: 1 }\n' });
  const first = await here.job('first');
  const queued = await here.job('second');
  await here.until('the arrival', () => arrived(here, 'first'));
  // its process can't start the next one any more
  process.kill(first.pid ?? 0, 'SIGKILL');
  await here.until('its death', () => processesOf(here.project, [first.pid ?? 0]).length === 0);
  here.openGate('all');
  const report = await here.open().children.wait([queued.thread_id]);
  expect(report.success).toBe(true);
});

// Requirement: wait-timeout-ignored
test('wait --any returns at the first end, a timeout returns the status of each thread', async () => {
  const here = await lab();
  const slow = await here.job('slow');
  const fast = await here.job('fast');
  const none = await here.rye.children.wait([slow.thread_id, fast.thread_id], {
    timeoutSeconds: 0.2,
  });
  expect(none).toMatchObject({ success: false, timed_out: true });
  expect(none.threads.map(({ done }) => done)).toEqual([false, false]);
  here.openGate('fast');
  const any = await here.rye.children.wait([slow.thread_id, fast.thread_id], { any: true });
  expect(any).toMatchObject({
    success: true,
    timed_out: false,
    threads: [
      { thread_id: slow.thread_id, done: false },
      { thread_id: fast.thread_id, done: true, status: 'completed', outputs: { passed: 'fast' } },
    ],
  });
  expect(await here.rye.children.wait(['team/none-1'])).toMatchObject({
    success: false,
    timed_out: false,
    threads: [{ status: 'not_found' }],
  });
  here.openGate('all');
  await here.rye.children.wait([slow.thread_id]);
});

test('waiting follows a thread to the end of its chain', async () => {
  const here = await lab();
  const { thread_id } = await here.job('one');
  here.openGate('one');
  await here.rye.children.wait([thread_id]);
  const resumed = await here.rye.recovery.resume({ threadId: thread_id, message: 'Go on.' });
  const report = await here.rye.children.wait([thread_id]);
  expect(report.threads).toMatchObject([
    { thread_id, final_thread_id: resumed.thread_id, status: resumed.status, done: true },
  ]);
});

// Requirement: waiting-polls
test('a thread whose process is killed is ended, and its waiter told at once', async () => {
  const here = await lab();
  const { thread_id, pid } = await here.job('one');
  await here.until('the arrival', () => arrived(here, 'one'));
  const waiting = here.rye.children.wait([thread_id]);
  process.kill(pid ?? 0, 'SIGKILL');
  expect((await waiting).threads).toMatchObject([
    { status: 'error', error: { code: 'thread_crashed' }, done: true },
  ]);
  expect(await here.store.ledger.rows()).toMatchObject([{ status: 'released' }]);
  expect((await here.rye.threads.verify(thread_id)).ok).toBe(true);
});

// Requirement: children-bounded
test('cancelling works across processes and cascades to children, running and queued', async () => {
  const here = await lab({ coordination: 'concurrency: { max_children: 1 }\n' });
  const parentThreadId = await parentOf(here);
  const limits = { spend: 0.001 };
  const child = await here.job('child', { parentThreadId, limits });
  const queued = await here.job('queued', { parentThreadId, limits });
  const grandchild = await here.job('grandchild', {
    parentThreadId: child.thread_id,
    limits: { spend: 0.0001 },
  });
  const all = [parentThreadId, child.thread_id, queued.thread_id, grandchild.thread_id];
  await here.until('both arrivals', () => arrived(here, 'child') && arrived(here, 'grandchild'));
  const requested = await here.open().children.cancel(parentThreadId, { reason: 'wrong folder' });
  expect(requested.toSorted()).toEqual(all.toSorted());
  const report = await here.rye.children.wait(all);
  expect(report.threads.map(({ status }) => status)).toEqual(all.map(() => 'cancelled'));
  expect(report.threads[0]?.error?.message).toContain('wrong folder');
  const rows = await here.store.ledger.rows();
  expect(rows.map(({ status }) => status)).toEqual(all.map(() => 'released'));
  const folder = path.join(here.project, '.ai/state/threads', queued.thread_id);
  expect(readdirSync(folder)).not.toContain('handover.json');
  expect(await here.rye.children.cancel(parentThreadId)).toEqual([]);
});

test('with on_parent_cancel: keep the children continue, unless --tree is given', async () => {
  const here = await lab({ coordination: 'child_policy: { on_parent_cancel: keep }\n' });
  const parentThreadId = await parentOf(here);
  const child = await here.job('child', { parentThreadId, limits: { spend: 0.001 } });
  await here.until('the arrival', () => arrived(here, 'child'));
  await here.rye.children.cancel(parentThreadId);
  await here.rye.children.wait([parentThreadId]);
  expect((await here.record(child.thread_id)).status).toBe('running');
  here.openGate('child');
  expect((await here.rye.children.wait([child.thread_id])).success).toBe(true);
});

test('children of a parent that failed are cancelled, of one that completed continue', async () => {
  const here = await lab();
  const failing = await here.job('failing');
  const limits = { spend: 0.001 };
  const orphan = await here.job('orphan', { parentThreadId: failing.thread_id, limits });
  await here.until('the arrivals', () => arrived(here, 'failing') && arrived(here, 'orphan'));
  here.write('broken-failing', '');
  const report = await here.rye.children.wait([failing.thread_id, orphan.thread_id]);
  expect(report.threads.map(({ status }) => status)).toEqual(['error', 'cancelled']);

  const done = await here.job('done');
  const heir = await here.job('heir', { parentThreadId: done.thread_id, limits });
  await here.until('the arrival', () => arrived(here, 'heir'));
  here.openGate('done');
  await here.rye.children.wait([done.thread_id]);
  expect((await here.record(heir.thread_id)).status).toBe('running');
  here.openGate('heir');
  expect((await here.rye.children.wait([heir.thread_id])).success).toBe(true);
});

// Requirement: kill-strands-waiters
test('kill terminates the process gracefully if possible, and finalizes the thread, its budget and its waiters', async () => {
  const here = await lab();
  const { thread_id, pid } = await here.job('one');
  await here.until('the arrival', () => arrived(here, 'one'));
  const waiting = here.rye.children.wait([thread_id]);
  const killed = await here.open().children.kill(thread_id, { reason: 'enough' });
  expect(killed).toMatchObject([{ thread_id, status: 'cancelled' }]);
  expect((await waiting).threads).toMatchObject([{ status: 'cancelled', done: true }]);
  expect(processesOf(here.project, [pid ?? 0])).toEqual([]);
  expect(await here.store.ledger.rows()).toMatchObject([{ status: 'released' }]);
  expect((await here.rye.threads.verify(thread_id)).ok).toBe(true);
  expect(await here.rye.children.kill(thread_id)).toEqual([]);
});

test('kill ends a process that does not answer with SIGKILL after three seconds', async () => {
  const here = await lab();
  const { thread_id, pid } = await here.job('one');
  await here.until('the arrival', () => arrived(here, 'one'));
  process.kill(pid ?? 0, 'SIGSTOP');
  const start = performance.now();
  const killed = await here.rye.children.kill(thread_id, { reason: 'hangs' });
  expect(performance.now() - start).toBeGreaterThan(2900);
  expect(killed).toEqual([{ thread_id, status: 'cancelled', pid }]);
  expect(await here.record(thread_id)).toMatchObject({
    status: 'cancelled',
    error: { message: expect.stringContaining('hangs') },
  });
  expect(await here.store.ledger.rows()).toMatchObject([{ status: 'released' }]);
  expect((await here.rye.threads.verify(thread_id)).ok).toBe(true);
});

// Requirement: kill-hits-reused-pid
test('kill never hits a process that got the pid of a thread later', async () => {
  const here = await lab();
  const bystander = spawn('sleep', ['60'], { stdio: 'ignore' });
  onTestFinished(() => {
    bystander.kill('SIGKILL');
  });
  const now = new Date().toISOString();
  const { registry, owners, ledger } = here.store;
  const { host } = owners.columns(owners.self());
  const owner =
    owners.ofRecord({ pid: bystander.pid ?? 0, process_start: 'an earlier process', host }) ?? null;
  assert(owner);
  await registry.register({
    threadId: 'team/job-1',
    directive: 'team/job',
    parentId: null,
    model: 'literal',
    now,
    owner,
  });
  await ledger.register('team/job-1', 10_000);
  await registry.claim('team/job-1', owner, now);
  await registry.heartbeat('team/job-1', 1, now, { cost: NO_COST });
  const killed = await here.rye.children.kill('team/job-1');
  expect(killed).toMatchObject([{ thread_id: 'team/job-1', pid: null }]);
  expect(bystander.exitCode).toBeNull();
  expect(bystander.signalCode).toBeNull();
  expect((await here.record('team/job-1')).status).toBe('cancelled');
  expect(await ledger.rows()).toMatchObject([{ status: 'released' }]);
});

test('a thread that runs inside another process than its own is not killed alone', async () => {
  const here = await lab();
  const running = here.rye.threads.execute({ directiveId: 'team/job', inputs: { name: 'own' } });
  await here.until('the arrival', () => arrived(here, 'own'));
  const [record] = await here.store.registry.list({});
  await expect(here.rye.children.kill(record?.thread_id ?? '')).rejects.toMatchObject({
    code: 'usage',
  });
  here.openGate('own');
  expect((await running).success).toBe(true);
});

test('a child in the process of its parent is killed with it only', async () => {
  const here = await lab();
  here.write(
    '.ai/directives/team/outer.md',
    directive('team/outer', {
      limits: 'turns="5" spend="0.05" spawns="3" depth="3"',
      tools: ['team/gate'],
      directives: ['team/job'],
      steps:
        '<step name="in"><execute item_type="directive" item_id="team/job"><param name="name">in</param></execute></step>',
    }),
  );
  await here.sign();
  const outer = await here.rye.children.launch({ directiveId: 'team/outer' });
  await here.until('the arrival', () => arrived(here, 'in'));
  const [inner] = await here.store.registry.list({ parentId: outer.thread_id });
  expect(inner?.status).toBe('running');
  const other = here.open().children;
  const alone = other.kill(inner?.thread_id ?? '');
  await expect(alone).rejects.toMatchObject({
    code: 'usage',
    hint: expect.stringContaining('kill'),
  });
  const killed = await other.kill(outer.thread_id, { tree: true });
  expect(killed.map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
});

test('the tree shows parents with their children and what the whole tree spent', async () => {
  const here = await lab();
  const parentThreadId = await parentOf(here);
  const child = await here.job('child', { parentThreadId, limits: { spend: 0.001 } });
  here.openGate('all');
  await here.rye.children.wait([parentThreadId, child.thread_id]);
  const other = await here.job('other');
  await here.rye.children.wait([other.thread_id]);
  const tree = await here.rye.children.tree();
  expect(tree.map(({ thread }) => thread.thread_id)).toEqual([other.thread_id, parentThreadId]);
  expect(tree[1]?.children.map(({ thread }) => thread.thread_id)).toEqual([child.thread_id]);
  expect((await here.rye.children.tree(child.thread_id)).length).toBe(1);
  expect(await here.rye.children.stats('directive')).toMatchObject([
    { key: 'team/job', threads: 3, completed: 3, open: 0, error: 0 },
  ]);
  expect(await here.rye.children.stats('model')).toMatchObject([{ key: 'literal', threads: 3 }]);
});
