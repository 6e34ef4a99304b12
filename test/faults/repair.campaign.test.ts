import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, type WireServer } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { marksModel } from './marks.ts';
import { copyOf, expectLegal, openWorld, ryeIn, startCli, type World } from './world.ts';

let server: WireServer;
let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;
/** A world in which `done` has completed, `boss` had a child, and the process of `dead` was killed in a turn. */
let lived: World;

beforeAll(async () => {
  await cliPackage();
  server = await startWireServer(marksModel);
  prepared = await temporaryWorkspace({ fixture: 'faults' });
  lived = copyOf(prepared, server.url);
  await ryeIn(lived, 'run', 'helper', '--thread-id', 'done');
  await ryeIn(lived, 'run', 'work', '--thread-id', 'boss');
  let asked = 0;
  let release = (): void => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const stuck = await startWireServer((request) => {
    asked += 1;
    const turn = marksModel(request);
    if (asked < 2 || typeof turn === 'string' || !('steps' in turn)) return turn;
    return { ...turn, steps: [{ kind: 'wait', until: held }] };
  });
  const world = { ...lived, env: { ...lived.env, ANTHROPIC_BASE_URL: stuck.url } };
  const { child } = await startCli(world, ['run', 'helper', '--thread-id', 'dead']);
  await vi.waitFor(() => expect(asked).toBe(2), { timeout: 60_000, interval: 20 });
  child.kill('SIGKILL');
  await once(child, 'exit');
  release();
  await stuck.close();
});

afterAll(async () => {
  removeFolder(path.dirname(lived.project));
  prepared.remove();
  await server.close();
});

async function json(world: World, ...args: readonly string[]) {
  const { code, stdout } = await ryeIn(world, ...args, '--json');
  return { code, document: JSON.parse(stdout) as Record<string, unknown> };
}

/** A copy of the world that has lived, in its own folders. */
function again(): World {
  const world = copyOf(lived, server.url);
  onTestFinished(() => removeFolder(path.dirname(world.project)));
  return world;
}

const inState = ({ project }: World, ...names: readonly string[]): string =>
  path.join(project, '.ai', 'state', ...names);

const recordOf = (world: World, id: string): string => inState(world, 'threads', id, 'thread.json');

/** Moves what the last command left in the write-ahead log into the file. */
function foldLog(file: string): void {
  const database = new Database(file);
  database.pragma('wal_checkpoint(TRUNCATE)');
  database.close();
}

function removeDatabase(file: string): void {
  for (const end of ['', '-wal', '-shm']) rmSync(`${file}${end}`, { force: true });
}

async function spends(world: World): Promise<Readonly<Record<string, unknown>>> {
  const { document } = await json(world, 'threads', 'list');
  const threads = document['threads'] as readonly { thread_id: string; cost: { spend: number } }[];
  return Object.fromEntries(threads.map(({ thread_id: id, cost }) => [id, cost.spend]));
}

describe('rye doctor --repair', () => {
  it('lists again every thread on disk when the registry was removed, and ends the dead one', async () => {
    const world = again();
    await ryeIn(world, 'threads', 'recover');
    const before = await spends(world);
    const rebuilt = again();
    removeDatabase(inState(rebuilt, 'threads', 'registry.db'));
    const listed = await ryeIn(rebuilt, 'threads', 'list');
    expect(listed.stderr).toContain('rye doctor --repair');
    const examined = await json(rebuilt, 'doctor');
    expect(examined.code).toBe(1);
    expect(examined.document['checks']).toContainEqual(
      expect.objectContaining({
        check: 'threads',
        status: 'fail',
        hint: 'Run: rye doctor --repair',
      }),
    );
    const { code, document } = await json(rebuilt, 'doctor', '--repair');
    expect(code).toBe(0);
    expect(document['repair']).toMatchObject({
      moved: [],
      recovered: [{ thread_id: 'dead', status: 'error', action: 'failed' }],
      failures: [],
      notes: [expect.stringContaining('not restored')],
    });
    const { dead, ...others } = before;
    const after = await spends(rebuilt);
    expect(after).toEqual({ ...others, dead: expect.any(Number) as number });
    // without the registry's signs of life, the bound of the call that was cut is wider
    expect(Number(after['dead'])).toBeGreaterThanOrEqual(Number(dead));
    const opened = openWorld(rebuilt);
    onTestFinished(() => opened.close());
    await expectLegal(rebuilt, opened);
    expect(await ryeIn(rebuilt, 'doctor', '--repair')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^nothing to repair\n/),
    });
    expect((await ryeIn(rebuilt, 'threads', 'resume', 'dead')).code).toBe(0);
    expect((await ryeIn(rebuilt, 'verify', 'thread', 'boss')).code).toBe(0);
  });

  it.each([
    { name: 'registry.db', file: ['threads', 'registry.db'] },
    { name: 'budget_ledger.db', file: ['threads', 'budget_ledger.db'] },
    { name: 'index.db', file: ['index.db'] },
  ])(
    'moves $name aside and makes it again when its pages are overwritten',
    async ({ name, file }) => {
      const world = again();
      await ryeIn(world, 'threads', 'recover');
      await ryeIn(world, 'search', 'knowledge', 'helper');
      const before = await spends(world);
      const database = inState(world, ...file);
      foldLog(database);
      const bytes = readFileSync(database);
      bytes.fill(0x5a, 100, 8192);
      writeFileSync(database, bytes);
      const { document: found, code: failed } = await json(world, 'doctor');
      expect(failed).toBe(1);
      expect(JSON.stringify(found['checks'])).toContain(`${name}: `);
      const { code, document } = await json(world, 'doctor', '--repair');
      expect(code).toBe(0);
      const [moved] = (document['repair'] as { moved: readonly { from: string; to: string }[] })
        .moved;
      expect(moved?.from).toBe(database);
      expect(readFileSync(moved?.to ?? '').length).toBe(bytes.length);
      expect(await spends(world)).toEqual(before);
      expect((await json(world, 'doctor')).code).toBe(0);
    },
    120_000,
  );

  it('lets two repairs at once restore each thread once', async () => {
    const world = again();
    await ryeIn(world, 'threads', 'recover');
    const before = await spends(world);
    foldLog(inState(world, 'threads', 'registry.db'));
    writeFileSync(inState(world, 'threads', 'registry.db'), 'not a database');
    const both = await Promise.all([
      json(world, 'doctor', '--repair'),
      json(world, 'doctor', '--repair'),
    ]);
    const codes = both.map(({ document }) => (document['error'] as { code?: string })?.code);
    expect(codes.filter((code) => code !== undefined && code !== 'thread_locked')).toEqual([]);
    expect(await spends(world)).toEqual(before);
    const moved = readdirSync(inState(world, 'threads')).filter((name) => name.includes('damaged'));
    expect(moved).toHaveLength(1);
  });

  it('refuses while a thread runs', async () => {
    let asked = false;
    let release = (): void => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const slow = await startWireServer((request) => {
      asked = true;
      const turn = marksModel(request);
      if (typeof turn === 'string' || !('steps' in turn)) return turn;
      return { ...turn, steps: [{ kind: 'wait', until: held }, ...turn.steps] };
    });
    onTestFinished(async () => await slow.close());
    const world = copyOf(prepared, slow.url);
    onTestFinished(() => removeFolder(path.dirname(world.project)));
    const running = await startCli(world, ['run', 'helper', '--thread-id', 'live']);
    await vi.waitFor(() => expect(asked).toBe(true), { timeout: 60_000, interval: 20 });
    const { code, document } = await json(world, 'doctor', '--repair');
    expect([code, document['error']]).toMatchObject([
      1,
      { code: 'thread_locked', message: expect.stringContaining('live') },
    ]);
    release();
    expect((await running.done).code).toBe(0);
  });
});

describe('rye threads recover', () => {
  it.each([
    { what: 'cut', damage: (file: string) => truncateSync(file, 300) },
    { what: 'emptied', damage: (file: string) => truncateSync(file, 0) },
    { what: 'removed', damage: (file: string) => rmSync(file) },
  ])(
    'rebuilds a thread.json that was $what from plan and signed log',
    async ({ damage }) => {
      const world = again();
      damage(recordOf(world, 'dead'));
      const { code, stdout } = await ryeIn(world, 'threads', 'recover');
      expect([code, stdout]).toEqual([0, expect.stringMatching(/^dead\s+error\s+failed/)]);
      expect((await ryeIn(world, 'verify', 'thread', 'dead')).code).toBe(0);
      expect((await ryeIn(world, 'run', 'helper', '--thread-id', 'next')).stderr).not.toContain(
        'dead',
      );
      expect((await ryeIn(world, 'threads', 'resume', 'dead')).code).toBe(0);
    },
    60_000,
  );

  it.each([
    { what: 'emptied', damage: (file: string) => truncateSync(file, 0) },
    { what: 'another one', damage: (file: string) => writeFileSync(file, '{"limits":{}}') },
  ])(
    'ends a thread with a signed record when its plan.json is $what too',
    async ({ damage }) => {
      const world = again();
      truncateSync(recordOf(world, 'dead'), 300);
      damage(inState(world, 'threads', 'dead', 'plan.json'));
      expect((await ryeIn(world, 'threads', 'recover')).code).toBe(0);
      const record = JSON.parse(readFileSync(recordOf(world, 'dead'), 'utf8')) as object;
      expect(record).toMatchObject({
        status: 'error',
        capabilities: [],
        error: { code: 'thread_damaged' },
        _signature: expect.any(String),
      });
      expect((await ryeIn(world, 'threads', 'recover')).stdout).toBe('No crashed threads\n');
      const { code, document } = await json(world, 'threads', 'resume', 'dead');
      expect([code, document]).toMatchObject([6, { error: { code: 'file_not_found' } }]);
    },
    60_000,
  );

  it('refuses a forged thread.json until a person has it rebuilt from the log', async () => {
    const world = again();
    const file = recordOf(world, 'dead');
    const forged = readFileSync(file, 'utf8').replace(
      '"capabilities": [',
      '"capabilities": ["rye.*",',
    );
    writeFileSync(file, forged);
    const refused = await json(world, 'threads', 'recover', 'dead');
    expect([refused.code, refused.document]).toMatchObject([
      3,
      { error: { code: 'thread_tampered', hint: expect.stringContaining('dead --rebuild') } },
    ]);
    expect(readFileSync(file, 'utf8')).toBe(forged);
    const { code, document } = await json(world, 'threads', 'recover', 'dead', '--rebuild');
    expect([code, document]).toMatchObject([
      0,
      { threads: [{ action: 'rebuilt', status: 'error' }] },
    ]);
    expect(readFileSync(file, 'utf8')).not.toContain('"rye.*"');
    const kept = readdirSync(path.dirname(file)).find((name) => name.startsWith('damaged-thread-'));
    expect(readFileSync(path.join(path.dirname(file), kept ?? ''), 'utf8')).toBe(forged);
    expect((await ryeIn(world, 'verify', 'thread', 'dead')).code).toBe(0);
    expect((await ryeIn(world, 'threads', 'resume', 'dead')).code).toBe(0);
  });

  it('rebuilds the record of a finished thread from its log on request', async () => {
    const world = again();
    const before = JSON.parse(readFileSync(recordOf(world, 'done'), 'utf8')) as object;
    truncateSync(recordOf(world, 'done'), 10);
    expect((await ryeIn(world, 'threads', 'recover', 'done', '--rebuild')).code).toBe(0);
    const after = JSON.parse(readFileSync(recordOf(world, 'done'), 'utf8')) as object;
    const { updated_at: _one, _signature: _two, ...output } = before as Record<string, unknown>;
    expect(after).toMatchObject(output);
    expect((await ryeIn(world, 'verify', 'thread', 'done')).code).toBe(0);
  });
});

describe('a lack of open files', () => {
  it('has its own error code and does not blame the key', async () => {
    const world = again();
    const program = path.join(await cliPackage(), 'bin', 'rye.js');
    const command = `for n in 22 24 26; do (ulimit -n $n; exec timeout 10 "$0" "$1" run hello --json </dev/null); done`;
    const output = execFileSync(
      'bash',
      ['-c', `${command} 2>&1; true`, process.execPath, program],
      {
        cwd: world.project,
        env: { PATH: process.env['PATH'], HOME: world.home, ...world.env },
        encoding: 'utf8',
      },
    );
    expect(output).not.toMatch(/key_unsafe|key_missing|path_denied|content_modified/);
    expect(output).toContain('too many open files');
  });
});
