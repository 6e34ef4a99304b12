import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { family, starts } from './family.ts';
import { calls, type House, house, marks } from './house.ts';

const SOON = { timeout: 60_000, interval: 200 };

/** A thread that waits for Ada, who is not its owner. */
async function waitsForAda() {
  const here = await house(calls(marks('mark')));
  const ada = await here.person('ada');
  here.policy({ rules: [{ tool: 'rye/bash', ask: ['ada'] }] }, [ada]);
  return { here, ada, ...(await here.asks()) };
}

async function statusOf(here: House, threadId: string): Promise<string> {
  const { thread } = (await here.json(['threads', 'show', threadId])) as {
    thread: { status: string };
  };
  return thread.status;
}

it('threads wait --approvals of the owner continues the thread once the last of a quorum has decided, and waits for its end', async () => {
  const here = await house(calls(marks('mark')));
  const ada = await here.person('ada');
  here.policy({ rules: [{ tool: 'rye/bash', ask: ['me', 'ada'], quorum: 2 }] }, [ada]);
  const { threadId, id } = await here.asks();
  await here.json(['approve', id]);
  const ended = here.cli(['threads', 'wait', threadId, '--approvals', '--json']);
  const decided = await ada.cli(['approve', id]);
  expect(decided.stdout).toContain('its owner continues it');
  const { code, stdout } = await ended;
  expect([code, JSON.parse(stdout)]).toEqual([
    0,
    expect.objectContaining({
      threads: [expect.objectContaining({ thread_id: threadId, status: 'completed', done: true })],
    }),
  ]);
  expect(here.file('mark')).toBe('ran\n');
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
}, 240_000);

it('threads wait --approvals of a parent continues the child that was decided about', async () => {
  const here = await family({
    parent: [calls(starts('free'))],
    free: [calls(marks('mark'))],
  });
  const ada = await here.person('ada');
  here.policy({ rules: [{ tool: 'rye/bash', ask: ['ada'] }] }, [ada]);
  const { threadId, id } = await here.asks('parent');
  expect((await ada.cli(['approve', id])).code).toBe(0);
  await here.json(['threads', 'wait', threadId, '--approvals']);
  expect([await statusOf(here, threadId), here.file('mark')]).toEqual(['completed', 'ran\n']);
}, 240_000);

it('threads wait --approvals continues a thread whose request has expired, without its call', async () => {
  const here = await house(calls(marks('mark')));
  here.policy({ rules: [{ tool: 'rye/bash', ask: ['me'], expires: '1s' }] });
  const { threadId } = await here.asks();
  await here.json(['threads', 'wait', threadId, '--approvals']);
  expect([await statusOf(here, threadId), here.file('mark')]).toEqual(['completed', undefined]);
}, 240_000);

it('threads wait --approvals of another person continues nothing', async () => {
  const { here, ada, threadId, id } = await waitsForAda();
  expect((await ada.cli(['approve', id])).code).toBe(0);
  const waited = await ada.cli(['threads', 'wait', threadId, '--approvals', '--timeout', '2']);
  expect(waited.code, waited.stderr).toBe(5);
  expect(await statusOf(here, threadId)).toBe('suspended');
  expect((await here.cli(['threads', 'wait', threadId])).code).toBe(1);
}, 240_000);

it('approvals --watch --resume of the owner continues each thread that others decide about', async () => {
  const { here, ada, threadId, id } = await waitsForAda();
  const program = join(await cliPackage(), 'bin/rye.js');
  const child = spawn(process.execPath, [program, 'approvals', '--watch', '--resume'], {
    cwd: here.project,
    env: here.env,
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  let [shown, told] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    shown += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    told += text;
  });
  await vi.waitUntil(() => shown.includes(id), SOON);
  expect((await ada.cli(['approve', id])).code).toBe(0);
  await here.until(threadId, 'completed');
  expect(here.file('mark')).toBe('ran\n');
  expect(told).toContain(`thread ${threadId} continues\n`);
  child.kill('SIGINT');
  expect(await ended).toEqual([0, null]);
  const alone = await here.cli(['approvals', '--resume']);
  expect([alone.code, alone.stderr]).toEqual([
    2,
    expect.stringContaining('--resume needs --watch'),
  ]);
}, 240_000);
