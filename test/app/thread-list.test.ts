import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { main } from '../../src/faces/cli/main.ts';
import { createColors } from '../../src/faces/ui/colors.ts';
import { drawThreadTree } from '../../src/faces/ui/render/thread-tree.ts';
import { withWorkingTime } from '../../src/kernel/app/child-label.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { openThreadList, ThreadTotals } from '../../src/kernel/app/thread-list.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { ownerOf, processOwners } from '../../src/kernel/storage/owners.ts';
import type { Owner, Registry } from '../../src/kernel/storage/store.ts';
import { NOON, node, record } from '../cli/thread-nodes.ts';
import { createFakeIo } from '../helpers/fake-io.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

it('a list marks crashed threads and names the command that finalizes them', async () => {
  const project = mkdtempSync(path.join(tmpdir(), 'rye-list-'));
  onTestFinished(() => removeFolder(project));
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
  expect(longest).toBeGreaterThan(150);
  expect(longest).toBeLessThan(250);
});

/** A project with a fan of children, a session of two threads and a newer thread, created a minute apart. */
async function recentThreads() {
  const project = mkdtempSync(path.join(tmpdir(), 'rye-recent-'));
  onTestFinished(() => removeFolder(project));
  const store = openStore({ projectPath: project, clock: systemClock, ids: systemIds });
  onTestFinished(() => store.close());
  const threads = [
    ['ask-1', 'fan'],
    ['long', 'fan'],
    ['long-2', 'fan'],
    ['ask-2', 'ask'],
    ['ask-2-child', 'child', 'ask-2'],
  ] as const;
  const start = Date.now() - threads.length * 60_000;
  for (const [index, [threadId, directive, parentId = null]] of threads.entries()) {
    const now = new Date(start + index * 60_000).toISOString();
    await store.registry.register({ threadId, directive, parentId, model: 'm', now, owner: null });
  }
  await store.registry.claim('long', store.owners.self(), new Date(start).toISOString());
  await store.registry.linkContinuation('long', 'long-2', new Date(start).toISOString());
  const list = openThreadList({ projectPath: project, userSpacePath: `${project}/home`, env: {} });
  onTestFinished(() => list.close());
  return list.threads;
}

it('@ is the last session, @2 the one before; children and handoffs do not count', async () => {
  const threads = await recentThreads();
  const recent = ['@', '@1', '@2', '@3'];
  expect(await Promise.all(recent.map((id) => threads.resolveId(id)))).toEqual([
    'ask-2',
    'ask-2',
    'long',
    'ask-1',
  ]);
  const missing = { code: 'thread_not_found', hint: expect.stringContaining('@3 the first') };
  for (const id of ['@4', '@0']) await expect(threads.resolveId(id)).rejects.toMatchObject(missing);
});

it('an ambiguous ID states how many threads match and the age of the most recent one', async () => {
  const threads = await recentThreads();
  await expect(threads.resolveId('ask')).rejects.toMatchObject({
    code: 'ambiguous',
    message: '"ask" matches 3 threads',
    hint: expect.stringMatching(
      /@ for the last thread\. Most recent first: ask-2-child \(1 min ago\), ask-2, ask-1/,
    ),
    details: { candidates: ['ask-2-child', 'ask-2', 'ask-1'] },
  });
});

it('--last names the last thread, anywhere on the command line', async () => {
  const named: string[][] = [];
  const rye = {
    threads: {
      resolveId: (part: string) => Promise.resolve(`resolved ${part}`),
      session: (id: string) => Promise.resolve([id]),
    },
    trees: {
      title: (id: string, title: string) => {
        named.push([id, title]);
        return Promise.resolve([]);
      },
    },
  };
  for (const words of [
    ['--last', 'Tour'],
    ['Tour', '--last'],
    ['@', 'Tour'],
  ]) {
    const io = createFakeIo({ rye: rye as never });
    expect(await main(['threads', 'rename', ...words], io), io.err()).toBe(0);
  }
  expect(named).toEqual(Array.from({ length: 3 }, () => ['resolved @', 'Tour']));

  const refused = async (...words: string[]) => {
    const io = createFakeIo({ rye: rye as never });
    expect(await main(['threads', 'rename', ...words], io)).toBe(2);
    return io.err();
  };
  expect(await refused('Tour')).toContain('missing argument <title>');
  expect(await refused('--last')).toContain('missing argument <title>');
  expect(await refused('--last', 'a', 'Tour')).toContain('unexpected argument "Tour"');
});

it('sums up 100,000 threads of one directive', async () => {
  const records = Array.from({ length: 100_000 }, (_, index) => record(`t${index}`, 'completed'));
  const registry = { list: () => Promise.resolve(records) } as unknown as Registry;
  const totals = new ThreadTotals({ registry, owners: processOwners() }, '/nowhere');
  const begun = performance.now();
  expect(await totals.stats()).toMatchObject([{ threads: 100_000 }]);
  // minutes if each record copies its group
  expect(performance.now() - begun).toBeLessThan(20_000);
});

it('a running thread that was resumed has worked since its run began, less the runs before', () => {
  const project = mkdtempSync(path.join(tmpdir(), 'rye-list-'));
  onTestFinished(() => removeFolder(project));
  const folder = path.join(project, '.ai/state/threads/old');
  mkdirSync(folder, { recursive: true });
  const runs = [
    { run: 1, started_at: '2026-01-01T00:00:00.000Z', cost: { elapsed_seconds: 60 } },
    { run: 2, started_at: '2026-02-17T11:59:30.000Z', cost: { elapsed_seconds: 0 } },
  ];
  writeFileSync(path.join(folder, 'thread.json'), JSON.stringify({ runs }));
  const old = { created_at: '2026-01-01T00:00:00.000Z' };
  const running = withWorkingTime(project, record('old', 'running', old));
  expect(running).toMatchObject({ working_since: '2026-02-17T11:58:30.000Z' });
  expect(withWorkingTime(project, record('old', 'completed', old))).not.toHaveProperty(
    'working_since',
  );
  expect(withWorkingTime(project, record('new', 'running'))).not.toHaveProperty('working_since');
  const style = { colors: createColors(false), now: NOON };
  expect(drawThreadTree([node(running)], style).join()).toContain('1m 30s');
});
