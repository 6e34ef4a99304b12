import { mkdtempSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { assertOutsideThreads } from '../../src/kernel/app/ancestry.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

it('what is for people alone is refused below the process of a running thread, also without a mark of it', async () => {
  const projectPath = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-above-')));
  const store = openStore({ projectPath, clock: systemClock, ids: systemIds });
  onTestFinished(() => {
    store.close();
    removeFolder(projectPath);
  });
  const { owners, registry } = store;
  const run = async (threadId: string, pid: number): Promise<void> => {
    const facts = { directive: 'd', parentId: null, model: 'm', now: new Date().toISOString() };
    const owner = owners.ofProcess(pid) ?? null;
    await registry.register({ ...facts, threadId, owner, isClaimed: true });
  };
  // a program that runs a thread in its own process is no tool of it
  await run('beside', process.pid);
  await assertOutsideThreads(store, {});
  await run('above', process.ppid);
  await expect(assertOutsideThreads(store, {})).rejects.toMatchObject({
    code: 'approval_refused',
    details: { thread_id: 'above' },
  });
});
