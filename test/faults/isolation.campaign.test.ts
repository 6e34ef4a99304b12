import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { directive } from '../attacks/lab.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, text, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { copyOf, expectLegal, openWorld, startCli, type World } from './world.ts';

const RUN = ['run', 'work', '--thread-id', 't', '--isolation', 'worktree'] as const;
const edit = (old_string: string, new_string: string): WireTurn => ({
  steps: [toolUse('rye_file_system_edit', { path: 'a.txt', old_string, new_string })],
});

let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;

beforeAll(async () => {
  await cliPackage();
  prepared = await temporaryWorkspace({});
  const { project } = prepared;
  mkdirSync(path.join(project, '.ai/directives'), { recursive: true });
  const permissions = '<execute><tool>rye/file-system/*</tool></execute>';
  writeFileSync(
    path.join(project, '.ai/directives/work.md'),
    directive('work', { permissions, limits: 'turns="9" spend="2.00"' }),
  );
  writeFileSync(path.join(project, 'a.txt'), 'one\ntwo\n');
  expect(await prepared.rye(['sign', 'directive', 'work'])).toMatchObject({ code: 0 });
  const identity = ['-c', 'user.name=t', '-c', 'user.email=t@example.com'];
  for (const args of [
    ['init', '--quiet'],
    ['add', '--all'],
    ['commit', '--quiet', '-m', 'first'],
  ]) {
    execFileSync('git', [...identity, ...args], { cwd: project });
  }
});

afterAll(() => prepared.remove());

function worktrees({ project }: World): readonly string[] {
  const folder = path.join(project, '.ai/state/worktrees');
  const names = existsSync(folder) ? readdirSync(folder) : [];
  return names.filter((name) => /^[0-9a-f-]{36}$/.test(name));
}

/** A run that was killed after its first edit in its worktree. */
async function killed(...later: readonly WireTurn[]) {
  const turns = [edit('one', 'ONE'), 'hang' as const, ...later];
  let served = 0;
  const server = await startWireServer(() => {
    served += 1;
    return turns[served - 1] ?? { steps: [text('Done.')] };
  });
  const world = copyOf(prepared, server.url);
  const rye = openWorld(world);
  onTestFinished(async () => {
    rye.close();
    removeFolder(path.dirname(world.project));
    await server.close();
  });
  const { child, done } = await startCli(world, [...RUN, '--isolation-result', 'merge']);
  await server.request(1);
  child.kill('SIGKILL');
  await done;
  expect(worktrees(world)).toHaveLength(1);
  return { world, rye };
}

it('a thread that was killed finds its worktree again, and merges what it did before and after', async () => {
  const { world, rye } = await killed(edit('two', 'TWO'));
  expect((await rye.recovery.recover()).failures).toEqual([]);
  // what it did is kept as a patch, so that nothing is left for a person to clean up
  expect(worktrees(world)).toEqual([]);
  expect((await rye.threads.show('t')).document?.changes).toMatchObject({
    status: 'patch',
    files: [{ path: 'a.txt', change: 'modified' }],
  });
  await expectLegal(world, rye);
  const result = await rye.recovery.resume({ threadId: 't' });
  expect(result).toMatchObject({ status: 'completed', changes: { status: 'merged' } });
  expect(readFileSync(path.join(world.project, 'a.txt'), 'utf8')).toBe('ONE\nTWO\n');
  expect(worktrees(world)).toEqual([]);
  await expectLegal(world, rye);
});

it('gc removes a worktree that no thread needs, and git forgets it', async () => {
  const { world, rye } = await killed();
  await rye.recovery.recover();
  const left = path.join(world.project, '.ai/state/worktrees/00000000-0000-4000-8000-000000000000');
  execFileSync('git', ['worktree', 'add', '--quiet', '--detach', left], { cwd: world.project });
  await rye.recovery.collect({ olderThanMs: 0, dryRun: true });
  expect(worktrees(world)).toHaveLength(1);
  await rye.recovery.collect({ olderThanMs: 0 });
  expect(worktrees(world)).toEqual([]);
  const listed = execFileSync('git', ['worktree', 'list'], { cwd: world.project });
  expect(listed.toString('utf8').trim().split('\n')).toHaveLength(1);
});
