import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { gitWorktrees } from '../../src/features/worktrees/git-worktrees.ts';
import { CarriedWorktree } from '../../src/kernel/threads/run/isolation.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

type Env = Parameters<(typeof CarriedWorktree)['open']>[0];
type Way = Parameters<(typeof CarriedWorktree)['open']>[2];

test('what no patch has is named with each save, and told once', async () => {
  const project = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-carried-')));
  onTestFinished(() => removeFolder(project));
  const write = (name: string, text: string) => {
    mkdirSync(path.dirname(path.join(project, name)), { recursive: true });
    writeFileSync(path.join(project, name), text);
  };
  const git = (...args: readonly string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { cwd: project });
  write('.gitignore', 'build/\n');
  write('a.txt', 'one\n');
  write('run.sh', 'exit\n');
  git('init', '-q');
  git('config', 'core.fileMode', 'false');
  git('add', '-A');
  git('commit', '-qm', 'first');
  const notices: string[] = [];
  const events: Record<string, unknown>[] = [];
  const worktrees = gitWorktrees({ projectPath: project, env: process.env });
  const env = {
    worktrees,
    files: { writeSaved: async (_id: string, slot: number) => `worktree-${slot}.patch` },
    onNotice: (notice: string) => notices.push(notice),
  } as unknown as Env;
  const recorder = {
    record: (drafts: readonly { readonly payload: Record<string, unknown> }[]) =>
      events.push(...drafts.map(({ payload }) => payload)),
    settled: async () => undefined,
  } as unknown as Way['recorder'];
  const worktree = await worktrees.plan('6f1c1b52-3f0e-4a86-9d55-000000000001', 'patch');
  const carried = await CarriedWorktree.open(
    env,
    { threadId: 't', worktree },
    { recorder, logs: [] },
  );
  const saved = async () => {
    const count = events.length;
    await carried.save();
    return events.slice(count);
  };
  expect(await saved()).toEqual([]);
  write(`${worktree.path}/build/out.js`, 'x');
  const [first] = await saved();
  const left = { paths: ['build/'], total: 1, worktree: worktree.path };
  expect(first).toMatchObject({ patch: null, files: [], left_out: left });
  expect(await saved()).toEqual([]);
  write(`${worktree.path}/a.txt`, 'two\n');
  const [second] = await saved();
  expect(second).toMatchObject({ files: [{ path: 'a.txt', change: 'modified' }], left_out: left });
  rmSync(path.join(project, worktree.path, 'build'), { recursive: true });
  const [third] = await saved();
  expect(third).toMatchObject({ patch: 'worktree-0.patch', files: [{ path: 'a.txt' }] });
  expect(third).not.toHaveProperty('left_out');
  chmodSync(path.join(project, worktree.path, 'run.sh'), 0o755);
  const [fourth] = await saved();
  expect(fourth).toMatchObject({ files: [{ path: 'a.txt' }, { path: 'run.sh' }] });
  expect(notices).toEqual([
    'no patch of t has build/: another machine would continue without them',
  ]);
});

test('a worktree is found again with what was done in it, and a fresh one has only its commit', async () => {
  const project = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-fresh-')));
  onTestFinished(() => removeFolder(project));
  const git = (...args: readonly string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { cwd: project });
  writeFileSync(path.join(project, 'a.txt'), 'one\n');
  git('init', '-q');
  git('add', '-A');
  git('commit', '-qm', 'first');
  const worktrees = gitWorktrees({ projectPath: project, env: process.env });
  const worktree = await worktrees.plan('6f1c1b52-3f0e-4a86-9d55-000000000002', 'patch');
  const at = path.join(project, worktree.path);
  const files = () => [readdirSync(at).toSorted(), readFileSync(path.join(at, 'a.txt'), 'utf8')];
  await worktrees.open(worktree);
  writeFileSync(path.join(at, 'a.txt'), 'two\n');
  writeFileSync(path.join(at, 'left.txt'), 'x');
  await worktrees.open(worktree);
  expect(files()).toEqual([['.git', 'a.txt', 'left.txt'], 'two\n']);
  await worktrees.open(worktree, undefined, { isFresh: true });
  expect(files()).toEqual([['.git', 'a.txt'], 'one\n']);
});
