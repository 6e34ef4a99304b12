import { existsSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, type WireServer } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { marksModel } from './marks.ts';
import { copyOf, ryeIn, startCli, type World } from './world.ts';

let server: WireServer;
let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;

beforeAll(async () => {
  await cliPackage();
  server = await startWireServer(marksModel);
  prepared = await temporaryWorkspace({ fixture: 'faults' });
});

afterAll(async () => {
  prepared.remove();
  await server.close();
});

function worldAt(url: string): World {
  const world = copyOf(prepared, url);
  onTestFinished(() => removeFolder(path.dirname(world.project)));
  return world;
}

const stateOf = ({ project }: World): string => path.join(project, '.ai', 'state');
const folderOf = (world: World, id: string): string => path.join(stateOf(world), 'threads', id);

/** Removes a database with what SQLite keeps beside it. */
function removeDatabase(world: World, name: string): void {
  for (const end of ['', '-wal', '-shm']) {
    rmSync(path.join(stateOf(world), 'threads', `${name}${end}`), { force: true });
  }
}

describe('a start', () => {
  it('refuses an id whose folder holds a thread when the registry has lost it', async () => {
    const world = worldAt(server.url);
    await ryeIn(world, 'run', 'helper', '--thread-id', 't');
    const record = path.join(folderOf(world, 't'), 'thread.json');
    const before = readFileSync(record, 'utf8');
    removeDatabase(world, 'registry.db');
    for (const extra of [[], ['--async']]) {
      const again = ['run', 'helper', '--thread-id', 't', '--json', ...extra];
      const { code, stdout } = await ryeIn(world, ...again);
      expect(JSON.parse(stdout)).toMatchObject({
        success: false,
        error: { code: 'thread_exists', hint: expect.stringContaining('rye doctor --repair') },
      });
      expect(code).toBe(2);
      expect(readFileSync(record, 'utf8')).toBe(before);
    }
  });
});

describe('a running thread', () => {
  it.each([
    {
      what: 'the state folder is renamed',
      lose: stateOf,
      to: (folder: string) => `${folder}.away`,
    },
    { what: 'the state folder is removed', lose: stateOf },
    { what: 'its own folder is removed', lose: (world: World) => folderOf(world, 't') },
  ])(
    'ends as an error when $what',
    async ({ lose, to }) => {
      let release = (): void => {};
      const held = new Promise<void>((resolve) => {
        release = resolve;
      });
      let asked = 0;
      const model = await startWireServer((request) => {
        asked += 1;
        const turn = marksModel(request);
        if (asked !== 2 || typeof turn === 'string' || !('steps' in turn)) return turn;
        return { ...turn, steps: [{ kind: 'wait', until: held }, ...turn.steps] };
      });
      onTestFinished(async () => await model.close());
      const world = worldAt(model.url);
      const running = await startCli(world, ['run', 'helper', '--thread-id', 't', '--json']);
      await vi.waitFor(() => expect(asked).toBe(2), { timeout: 60_000, interval: 20 });
      const folder = lose(world);
      if (to) renameSync(folder, to(folder));
      else removeFolder(folder);
      release();
      const { code, stdout } = await running.done;
      expect(JSON.parse(stdout)).toMatchObject({
        success: false,
        status: 'error',
        error: { code: 'state_missing' },
      });
      expect(code).toBe(1);
      if (folder === stateOf(world)) expect(existsSync(folder)).toBe(false);
      else expect(readdirSync(folder)).toEqual(['thread.json']);
    },
    60_000,
  );
});
