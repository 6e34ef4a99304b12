import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

const DIRECTIVE = `# D
\`\`\`xml
<directive name="d" version="1.0.0"><metadata><description>D.</description><category></category><author>t</author>
<model provider="literal"/><limits turns="2" spend="1"/><permissions><execute><tool>rye/file-system/ls</tool></execute></permissions></metadata>
<process><step name="look"><execute item_type="tool" item_id="rye/file-system/ls"/></step></process></directive>
\`\`\`
`;

test('a repository of another user is called that, until its user calls it safe', async () => {
  const here = await workspace();
  const git = (...args: readonly string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], {
      cwd: here.project,
    });
  mkdirSync(path.join(here.project, '.ai/directives'), { recursive: true });
  writeFileSync(path.join(here.project, '.ai/directives/d.md'), DIRECTIVE);
  await here.rye(['sign', 'directive', 'd']);
  git('init', '-q');
  git('add', '-A');
  git('commit', '-qm', 'first');
  // git takes each repository for another user's if this is set
  const bin = path.join(here.home, 'bin');
  mkdirSync(bin);
  const real = execFileSync('sh', ['-c', 'command -v git'], { encoding: 'utf8' }).trim();
  writeFileSync(
    path.join(bin, 'git'),
    `#!/bin/sh\nexport GIT_TEST_ASSUME_DIFFERENT_OWNER=1\nexec ${real} "$@"\n`,
  );
  chmodSync(path.join(bin, 'git'), 0o755);
  const env = { PATH: `${bin}:${process.env['PATH'] ?? ''}`, LANG: 'de_DE.UTF-8' };
  const hint = `If you trust it: git config --global --add safe.directory ${here.project}`;
  const error = (code: string) => ({
    error: {
      code,
      message: `${here.project} is in a git repository of another user, which git refuses`,
      hint,
    },
  });
  const isolated = ['run', 'd', '--isolation', 'worktree'];
  expect(await here.json(isolated, { env })).toMatchObject(error('isolation_unavailable'));
  expect(await here.json(['git', 'setup'], { env })).toMatchObject(error('usage'));
  writeFileSync(path.join(here.home, '.gitconfig'), `[safe]\n\tdirectory = ${here.project}\n`);
  expect(await here.json(isolated, { env })).toMatchObject({ status: 'completed' });
  expect((await here.rye(['git', 'setup'], { env })).code).toBe(0);
});
