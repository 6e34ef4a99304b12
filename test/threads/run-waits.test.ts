import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { reply } from '../helpers/wire-server.ts';

let lab: Lab;
let store: Store;

beforeEach(async () => {
  lab = await openLab();
  await lab.model(() => reply('The first answer.'));
  lab.signed('directives/work.md', directive('work'));
  store = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
});

afterEach(async () => {
  store.close();
  await lab.remove();
});

it('waits for the run that is current when the wait begins, and answers with its end', async () => {
  const { registry, owners } = store;
  const ran = await lab.run('work', { model: 'claude-haiku-5-5', provider: 'anthropic' });
  const id = ran.thread_id;
  const rye = lab.rye();
  const now = '2027-01-01T00:00:00.000Z';
  const again = async () => {
    const before = await registry.get(id);
    if (!before) throw new Error('the thread is gone');
    return await registry.resume(before, owners.self(), now);
  };
  const end = async (epoch: number, result: string) =>
    await registry.finish(id, { status: 'completed', now, cost: ran.cost, result, epoch });

  // no run is under way: the last end is the answer
  expect((await rye.children.wait([id])).threads).toMatchObject([{ result: 'The first answer.' }]);
  const second = await again();
  const looked = await rye.children.wait([id], { timeoutSeconds: 0 });
  expect(looked.threads).toMatchObject([{ done: false, status: 'running', result: '' }]);
  const ends: string[] = [];
  let looks = 0;
  const waiting = rye.children.wait([id], {
    onLook: () => {
      looks += 1;
    },
    onEnd: ({ result }) => void ends.push(result ?? ''),
  });
  await expect.poll(() => looks).toBeGreaterThan(1);
  await end(second.epoch, 'The second answer.');
  const third = await again();
  expect((await waiting).threads).toMatchObject([
    { done: true, status: 'completed', result: 'The second answer.' },
  ]);
  expect(ends).toEqual(['The second answer.']);
  expect((await rye.children.wait([id], { timeoutSeconds: 0 })).timed_out).toBe(true);
  await end(third.epoch, 'The third answer.');
  expect((await rye.children.wait([id])).threads).toMatchObject([{ result: 'The third answer.' }]);
});

it('looks at a running thread while another process writes to the registry', async () => {
  const { registry, owners } = store;
  const { thread_id: id } = await lab.run('work', {
    model: 'claude-haiku-5-5',
    provider: 'anthropic',
  });
  const before = await registry.get(id);
  if (!before) throw new Error('the thread is gone');
  await registry.resume(before, owners.self(), '2027-01-01T00:00:00.000Z');
  const writer = new Database(path.join(lab.project, '.ai/state/threads/registry.db'));
  try {
    writer.exec('BEGIN IMMEDIATE');
    const looked = await lab.rye().children.wait([id], { timeoutSeconds: 0 });
    expect(looked.threads).toMatchObject([{ done: false, status: 'running' }]);
  } finally {
    writer.close();
  }
});
