// Requirement: worktree-runs-nothing
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { GitWorktrees } from '../../src/features/worktrees/worktrees.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

const ID = '01234567-89ab-4cde-8f01-23456789abcd';

it.each([
  ['the repository', '[include]\n\tpath = evil'],
  ['worktrees', '[includeIf "gitdir:**/worktrees/**"]\n\tpath = evil'],
  ['any case', '[includeIf "gitdir/i:**/WORKTREES/**"]\n\tpath = evil'],
  ['a worktree by its name', `[includeIf "gitdir:**/${ID}/**"]\n\tpath = evil`],
  ['a worktree by its folder', `[includeIf "gitdir:**/${ID}"]\n\tpath = evil`],
  ['no branch', '[includeIf "onbranch:**"]\n\tpath = evil'],
  ['the main folder', '[includeIf "gitdir:**/.git"]\n\tpath = evil'],
])('making and collecting a worktree runs no filter of settings for %s', async (_, setting) => {
  const project = mkdtempSync(join(tmpdir(), 'rye-filters-'));
  onTestFinished(() => removeFolder(project));
  const git = (...args: readonly string[]): void => {
    const identity = ['-c', 'user.name=t', '-c', 'user.email=t@t.example'];
    execFileSync('git', [...identity, ...args], { cwd: project, stdio: 'ignore' });
  };
  git('init', '-q', '-b', 'main');
  writeFileSync(join(project, '.gitattributes'), '* filter=evil\n');
  writeFileSync(join(project, 'a.txt'), 'text\n');
  git('add', '-A');
  git('commit', '-qm', 'first');
  const ran = join(project, 'PWNED');
  const program = `"touch '${ran}'; cat"`;
  const lines = ['smudge', 'clean'].map((kind) => `\t${kind} = ${program}`);
  writeFileSync(
    join(project, '.git/evil'),
    `[filter "evil"]\n${lines.join('\n')}\n\tprocess = ${program}\n\trequired = true\n`,
  );
  const config = join(project, '.git/config');
  writeFileSync(config, `${readFileSync(config, 'utf8')}\n${setting}\n`);
  const worktrees = new GitWorktrees({ projectPath: project, env: process.env });
  const made = await worktrees.plan(ID, 'patch');
  await worktrees.open(made);
  const root = join(project, made.path);
  expect(readFileSync(join(root, 'a.txt'), 'utf8')).toBe('text\n');
  writeFileSync(join(root, 'a.txt'), 'changed\n');
  const { files } = await worktrees.collect(made);
  expect(files.map(({ path }) => path)).toEqual(['a.txt']);
  expect(existsSync(ran)).toBe(false);
});
