import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { main } from '../../src/faces/cli/main.ts';
import { createColors } from '../../src/faces/ui/colors.ts';
import { drawThreadTree } from '../../src/faces/ui/render/thread-tree.ts';
import { withWorkingTime } from '../../src/kernel/app/child-label.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { listThreads, openThreadList, ThreadTotals } from '../../src/kernel/app/thread-list.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { ownerOf, processOwners } from '../../src/kernel/storage/owners.ts';
import type { Owner, Registry } from '../../src/kernel/storage/store.ts';
import { NOON, node, record } from '../cli/thread-nodes.ts';
import { createFakeIo, type FakeIoOptions } from '../helpers/fake-io.ts';
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

/** A project with `count` roots, `kids` children of the first one, and a newest thread that failed; created in this order. */
async function manyThreads(count: number, kids = 0) {
  const project = mkdtempSync(path.join(tmpdir(), 'rye-many-'));
  onTestFinished(() => removeFolder(project));
  const store = openStore({ projectPath: project, clock: systemClock, ids: systemIds });
  onTestFinished(() => store.close());
  const failed = record('failed', 'error', { directive: 'team/other', spawn_count: 0 });
  const all = [
    ...Array.from({ length: count }, (_, at) =>
      record(`root-${at}`, 'completed', { spawn_count: at === 0 ? kids : 0 }),
    ),
    ...Array.from({ length: kids }, (_, at) =>
      record(`kid-${at}`, 'completed', { parent_id: 'root-0' }),
    ),
    failed,
  ];
  for (const [at, thread] of all.entries()) {
    const created_at = new Date(NOON + at * 1000).toISOString();
    await store.registry.restore({ ...thread, created_at });
  }
  const list = openThreadList({ projectPath: project, userSpacePath: `${project}/home`, env: {} });
  onTestFinished(() => list.close());
  const rye = async (args: readonly string[], options: FakeIoOptions = {}) => {
    const io = createFakeIo({ rye: list as never, ...options });
    expect(await main(['--no-color', ...args], io), io.err()).toBe(0);
    const rows = io
      .out()
      .split('\n')
      .filter((line) => /^(?:root|kid|failed)/.test(line));
    return { io, rows, lines: io.out().trimEnd().split('\n') };
  };
  return { store, rye };
}

it.each([
  [['threads'], 24, 16, '15 more: rye threads list --limit 31'],
  [['ps'], 10, 5, '26 more: rye threads list --limit 31'],
  [['threads', '--limit', '40'], 24, 31, undefined],
  [['threads', '--limit', '3'], 24, 3, undefined],
  [['threads', '--all'], 24, 91, undefined],
  [['threads', '--status', 'completed'], 24, 16, '74 more: add --limit 90'],
  [['threads', '--parent', 'root-0'], 24, 16, '44 more: add --limit 60'],
  [['threads', '--status', 'error'], 24, 1, undefined],
] as const)('at a terminal %j on %i rows lists %i threads', async (...row) => {
  const [args, height, shown, hint] = row;
  const { rye } = await manyThreads(30, 60);
  const { rows, lines } = await rye(args, { stdoutIsTty: true, rows: height });
  expect(rows).toHaveLength(shown);
  expect(lines.find((line) => line.includes(' more: '))).toBe(hint);
  expect(lines.at(-1)).toMatch(/^\d+ threads? (?:· |\()/);
});

it('a pipe gets the newest 30, and standard error tells how many there are; a document has all', async () => {
  const { rye } = await manyThreads(130, 2);
  const { rows, io } = await rye(['threads', 'list']);
  expect(rows).toHaveLength(30);
  expect(rows[0]).toMatch(/^failed /);
  expect(rows[1]).toMatch(/^root-129 /);
  expect(io.err()).toBe('hint: 101 more: rye threads list --limit 100\n');
  expect((await rye(['threads', 'list', '--limit', '100'])).rows).toHaveLength(100);
  // the filter comes before the limit
  const some = await rye(['threads', 'list', '--directive', 'team/job']);
  expect(some.rows[0]).toMatch(/^kid-1 /);
  expect(some.io.err()).toBe('hint: 102 more: add --limit 100\n');
  expect((await rye(['threads', 'list', '--directive', '*/other'])).rows).toHaveLength(1);

  const whole = JSON.parse((await rye(['threads', 'list', '--json'])).io.out());
  expect(whole.threads).toHaveLength(133);
  expect(whole.total).toBe(133);
  const part = JSON.parse((await rye(['threads', 'list', '--json', '--limit', '2'])).io.out());
  expect(part.threads).toMatchObject([{ thread_id: 'failed' }, { thread_id: 'kid-1' }]);
  expect(part.total).toBe(133);
});

it('a list and a tree read the rows that they show, and what is below them', async () => {
  const { store } = await manyThreads(300, 4);
  const read: string[] = [];
  const registry: Registry = {
    ...store.registry,
    list: async (filter) => {
      const rows = await store.registry.list(filter);
      read.push(...rows.map(({ thread_id: id }) => id));
      return rows;
    },
  };
  const view = { registry, owners: store.owners };
  const ids = (threads: readonly { readonly thread_id: string }[]) =>
    threads.map(({ thread_id: id }) => id);
  const page = { roots: true, sessions: true, limit: 3 };
  expect(ids(await listThreads(view, page))).toEqual(['failed', 'root-299', 'root-298']);
  expect(read).toHaveLength(3);

  const totals = new ThreadTotals(view, '/nowhere');
  read.length = 0;
  await totals.tree(undefined, { limit: 3 });
  expect(read).toHaveLength(3);
  read.length = 0;
  const [root] = await totals.tree('root-0');
  expect(ids(root?.children.map(({ thread }) => thread) ?? [])).toEqual(
    [0, 1, 2, 3].map((at) => `kid-${at}`),
  );
  expect(read).toHaveLength(4);
});

it('a child whose parent is not in the project is among the roots', async () => {
  const { store, rye } = await manyThreads(2);
  const created_at = new Date(NOON + 500).toISOString();
  await store.registry.restore(record('kid-9', 'error', { parent_id: 'elsewhere', created_at }));
  const { rows } = await rye(['threads', 'list']);
  expect(rows.map((line) => line.split(' ')[0])).toEqual(['failed', 'root-1', 'kid-9', 'root-0']);
});

it('completes the newest roots; children once no root begins with the word', async () => {
  const { rye } = await manyThreads(30, 60);
  const offered = async (word: string) => (await rye(['__complete', 'thread', word])).lines;
  const newest = Array.from({ length: 19 }, (_, at) => `root-${29 - at}`);
  expect(await offered('')).toEqual(['failed', ...newest]);
  expect(await offered('root-29')).toEqual(['root-29']);
  expect(await offered('kid-5')).toHaveLength(11);
});

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
