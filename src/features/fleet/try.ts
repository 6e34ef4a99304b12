import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FleetTry } from '../../kernel/app/api/fleet.ts';
import { systemSpacePath } from '../../kernel/app/system.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { threadsFolder } from '../../kernel/threads/thread-files-fs.ts';
import { startEmbeddedPostgres } from './embedded-postgres.ts';
import { enrollWorker, initFleet } from './init.ts';

const WORKERS = ['one', 'two'];

/**
 * Makes a fleet of this machine for a try: a server and two workers, which trust the user's own key. The project has its own
 * threads again when it stops.
 */
export async function tryFleet(workspace: () => Workspace): Promise<FleetTry> {
  const { projectPath, userSpacePath, env } = workspace().options;
  const config = join(projectPath, '.ai', 'config', 'store.yaml');
  if (existsSync(config)) {
    throw new RyeError('already_exists', `${config} names a store already`, {
      hint: 'Try the fleet in another folder, or remove the file.',
    });
  }
  const postgres = await startEmbeddedPostgres();
  const folder = mkdtempSync(join(tmpdir(), 'rye-workers-'));
  const children: ChildProcess[] = [];
  const stop = async (): Promise<void> => {
    for (const child of children) child.kill('SIGTERM');
    await Promise.all(children.map(async (child) => child.exitCode ?? (await once(child, 'exit'))));
    await forgetThreads(workspace());
    rmSync(config, { force: true });
    const { unpin } = await import('../../kernel/app/guards.ts');
    await unpin(workspace(), { type: 'config', id: 'store' });
    rmSync(folder, { recursive: true, force: true });
    await postgres.stop();
  };
  try {
    await initFleet(workspace(), { database: postgres.url });
    for (const label of WORKERS) {
      const { token } = await enrollWorker(workspace(), { label, days: 1 });
      const home = join(folder, label);
      mkdirSync(home);
      const file = join(folder, `${label}.token`);
      writeFileSync(file, token, { mode: 0o600 });
      const words = [
        'worker',
        '--token',
        file,
        '--slots',
        '2',
        '--drain',
        '10s',
        '--sources',
        'https,ssh,file',
      ];
      children.push(
        spawn(
          process.execPath,
          [
            join(systemSpacePath(), 'bin', 'rye.js'),
            '--user-space',
            userSpacePath,
            '-c',
            'resilience.tools.sandbox=auto',
            ...words,
          ],
          { cwd: home, env, stdio: ['ignore', 'pipe', 'inherit'], detached: true },
        ),
      );
    }
    await Promise.all(
      children.map(async (child) => await once(child.stdout as NodeJS.EventEmitter, 'data')),
    );
    return { workers: WORKERS, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Removes the local copies of the threads of a try: what they are copies of ends with the server. */
async function forgetThreads({ store, options }: Workspace): Promise<void> {
  try {
    for (const { thread_id: id } of await store.registry.list({})) {
      const folder = join(threadsFolder(options.projectPath), id);
      // a thread that was pulled is whole
      if (!existsSync(join(folder, 'transcript.jsonl')))
        rmSync(folder, { recursive: true, force: true });
    }
  } catch {
    // without the server there is no list; the copies stay
  }
}
