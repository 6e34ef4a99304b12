import { mkdtempSync, rmSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { systemClock, systemIds } from '../../src/app/system.ts';
import { openThreadList } from '../../src/app/thread-list.ts';
import { main } from '../../src/cli/main.ts';
import { NO_COST } from '../../src/core/usage.ts';
import { openStore } from '../../src/storage/open-store.ts';
import { ownerOf } from '../../src/storage/owners.ts';
import type { Owner } from '../../src/storage/store.ts';
import { createFakeIo } from '../helpers/fake-io.ts';

it('a list marks crashed threads and names the command that finalizes them', async () => {
  const project = mkdtempSync(path.join(tmpdir(), 'rye-list-'));
  onTestFinished(() => rmSync(project, { recursive: true, force: true }));
  const store = openStore({ projectPath: project, clock: systemClock, ids: systemIds });
  onTestFinished(() => store.close());
  const self = store.owners.self();
  const owners: Readonly<Record<string, Owner>> = {
    alive: self,
    gone: ownerOf({ pid: process.pid, process_start: 'another boot:1', host: hostname() }),
    elsewhere: ownerOf({
      pid: process.pid,
      process_start: 'another boot:1',
      host: `not-${hostname()}`,
    }),
  };
  for (const [threadId, owner] of Object.entries(owners)) {
    const now = '2026-11-21T08:00:00.000Z';
    await store.registry.register({
      threadId,
      directive: 'd',
      parentId: null,
      model: 'm',
      now,
      owner,
    });
  }
  await store.registry.finish('elsewhere', {
    status: 'error',
    now: '2026-11-21T08:00:01.000Z',
    cost: NO_COST,
    result: 'long '.repeat(50_000),
    epoch: 1,
  });
  const list = openThreadList({
    projectPath: project,
    userSpacePath: path.join(project, 'home'),
    env: {},
  });
  onTestFinished(() => list.close());
  const listed = await list.threads.list();
  expect(listed.filter((one) => one.process_gone).map((one) => one.thread_id)).toEqual(['gone']);

  const io = createFakeIo({ rye: list as never });
  expect(await main(['threads', 'list'], io)).toBe(0);
  expect(io.out()).toMatch(/^gone +created \(crashed\)/m);
  expect(io.out()).toMatch(/^alive +created +2026/m);
  expect(io.err()).toContain('rye threads recover');
  const longest = Math.max(
    ...io
      .out()
      .split('\n')
      .map((line) => line.length),
  );
  expect(longest).toBeGreaterThan(500);
  expect(longest).toBeLessThan(700);
});
