import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type Lab, lab, processesOf } from './lab.ts';

const ONE_SLOT = 'concurrency: { max_total: 1 }\n';

const arrived = (here: Lab, name: string): boolean =>
  existsSync(path.join(here.project, `arrived-${name}`));

const spawnLog = (here: Lab, threadId: string): string =>
  readFileSync(path.join(here.project, '.ai/state/threads', threadId, 'spawn.log'), 'utf8');

test('queued threads run one after the other in the process of the thread that ended', async () => {
  const here = await lab({ coordination: ONE_SLOT });
  const first = await here.job('one');
  const second = await here.job('two');
  const third = await here.job('three');
  expect([first.status, second.status, third.status]).toEqual(['running', 'created', 'created']);
  here.openGate('one');
  await here.until('the second', () => arrived(here, 'two'));
  expect(await here.record(second.thread_id)).toMatchObject({ status: 'running', pid: first.pid });
  here.openGate('all');
  const report = await here.rye.children.wait([third.thread_id]);
  expect(report.threads).toMatchObject([{ status: 'completed', outputs: { passed: 'three' } }]);
  expect(await here.record(third.thread_id)).toMatchObject({ pid: first.pid });
  expect(spawnLog(here, third.thread_id)).toBe(
    `runs in process ${first.pid}, whose output is in the spawn.log of ${second.thread_id}\n`,
  );
  for (const { thread_id } of [first, second, third])
    expect((await here.rye.threads.verify(thread_id)).ok).toBe(true);
  await here.until('its end', () => processesOf(here.project, [first.pid ?? 0]).length === 0);
});

test('killing a thread in a shared process leaves the ended ones as they are and starts the next', async () => {
  const here = await lab({ coordination: ONE_SLOT });
  const first = await here.job('one');
  const second = await here.job('two');
  const third = await here.job('three');
  here.openGate('one');
  await here.until('the second', () => arrived(here, 'two'));
  const killed = await here.open().children.kill(second.thread_id);
  expect(killed).toMatchObject([{ thread_id: second.thread_id, pid: first.pid }]);
  expect((await here.record(first.thread_id)).status).toBe('completed');
  expect((await here.record(second.thread_id)).status).toBe('cancelled');
  await here.until('the third', () => arrived(here, 'three'));
  expect((await here.record(third.thread_id)).pid).not.toBe(first.pid);
  // the thread that has ended can't be killed with the process that another one runs in now
  expect(await here.open().children.kill(first.thread_id)).toEqual([]);
  here.openGate('all');
  const report = await here.rye.children.wait([third.thread_id]);
  expect(report.threads).toMatchObject([{ status: 'completed' }]);
});
