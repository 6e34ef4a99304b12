import { execFileSync, spawnSync } from 'node:child_process';
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { GitIgnore } from '../../../src/kernel/tools/git-ignore.ts';
import { runs } from '../../helpers/runs.ts';
import { Project } from '../helpers.ts';

const ENV = { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_NOSYSTEM: '1' };

function git(folder: string, args: readonly string[], input = ''): string {
  return spawnSync('git', args, { cwd: folder, env: ENV, input, encoding: 'utf8' }).stdout;
}

const FILES = {
  '.gitignore': '\uFEFF# built\r\nbuild/\r\n*.log\r\n!keep.log\r\n/top.txt\r\n',
  '.git/info/exclude': 'private.txt\n',
  'a.ts': 'needle\n',
  'a.log': 'needle\n',
  'keep.log': 'needle\n',
  'top.txt': 'needle\n',
  'private.txt': 'needle\n',
  'build/out.js': 'needle\n',
  'sub/.gitignore': '!*.log\nlocal*\n',
  'sub/b.log': 'needle\n',
  'sub/top.txt': 'needle\n',
  'sub/local.ts': 'needle\n',
  'other/.git/HEAD': 'x',
  'other/c.log': 'needle\n',
  'other/build/d.ts': 'needle\n',
};
const SEEN = ['a.ts', 'keep.log', 'other/build/d.ts', 'other/c.log', 'sub/b.log', 'sub/top.txt'];
const HIDDEN = ['a.log', 'build/out.js', 'private.txt', 'sub/local.ts', 'top.txt'];
const RULES = ['.gitignore', 'sub/.gitignore'];

describe('files that git ignores', () => {
  it('are not in the results of glob, grep and ls unless they are asked for', async () => {
    await using project = await Project.create(FILES);
    const all = { include_ignored: true };
    const found = async (name: string, input: object, ripgrep = true) => {
      const { data } = await project.run(name, { ...input }, { ripgrep });
      return data['paths'];
    };
    expect(await found('glob', { pattern: '**' })).toEqual([...RULES, ...SEEN].toSorted());
    expect(await found('glob', { pattern: '**', ...all })).toEqual(
      [...RULES, ...SEEN, ...HIDDEN].toSorted(),
    );
    const needle = { pattern: 'needle', output_mode: 'files' };
    for (const ripgrep of [true, false]) {
      expect(await found('grep', needle, ripgrep)).toEqual(SEEN);
      expect(await found('grep', { ...needle, ...all }, ripgrep)).toEqual(
        [...SEEN, ...HIDDEN].toSorted(),
      );
    }
    const listed = await project.run('ls', {});
    expect(listed.text).toBe(
      '.git/\n.gitignore\t48\na.ts\t7\nkeep.log\t7\nother/\nsub/\n(4 that git ignores hidden; set include_ignored)',
    );
    expect(listed.data).toMatchObject({ count: 6 });
    expect((await project.run('ls', all)).data).toMatchObject({ count: 10 });
  });

  it('are found in a folder and in a file that a call names', async () => {
    await using project = await Project.create(FILES);
    const within = { path: 'build', pattern: '**' };
    expect((await project.run('glob', within)).text).toBe('build/out.js');
    expect((await project.run('grep', { ...within, pattern: 'n' })).text).toContain('out.js:1');
    expect((await project.run('grep', { path: 'a.log', pattern: 'n' })).text).toContain('a.log:1');
    expect((await project.run('ls', { path: 'build' })).text).toBe('out.js\t7');
  });

  it('are counted where nothing else was found', async () => {
    await using project = await Project.create({ '.gitignore': 'x*\n', x1: 'only\n', x2: '' });
    const note = ' (2 entries that git ignores skipped; set include_ignored to search them)';
    expect((await project.run('grep', { pattern: 'only' })).text).toBe(`No matches.${note}`);
    expect((await project.run('glob', { pattern: 'x*' })).text).toBe(`No files match.${note}`);
    const rules = JSON.stringify(await project.run('glob', { pattern: 'y' }));
    expect(rules).toContain('include_ignored');
  });

  it('come from the repository above the project, also from a worktree', async () => {
    await using outer = await Project.create({
      '.gitignore': '*.tmp\n',
      'inner/a.tmp': '',
      'inner/b.ts': '',
    });
    git(outer.path, ['init', '-q']);
    writeFileSync(outer.file('.git/info/exclude'), 'excluded\n');
    git(outer.path, ['add', 'inner/b.ts']);
    git(outer.path, ['-c', 'user.name=t', '-c', 'user.email=t@t', 'commit', '-qm', 'x']);
    git(outer.path, ['worktree', 'add', '-q', 'tree']);
    const inner = outer.file('inner');
    expect(GitIgnore.of(inner, inner).ignores(join(inner, 'a.tmp'), false)).toBe(true);
    const tree = outer.file('tree');
    expect(GitIgnore.of(tree, tree).ignores(join(tree, 'excluded'), false)).toBe(true);
  });

  it('are not told by links and pipes in place of a file of rules', async () => {
    await using project = await Project.create({ real: 'a.ts\n', 'a.ts': '', 'sub/b.ts': '' });
    symlinkSync('real', project.file('.gitignore'));
    execFileSync('mkfifo', [project.file('sub/.gitignore')]);
    expect((await project.run('glob', { pattern: '**/*.ts' })).data['paths']).toEqual([
      'a.ts',
      'sub/b.ts',
    ]);
  });
});

const NAMES = 'a b ab abc a.b .a b] [ ] ]a [a [a] #a !a ! b-c - 9 * \\ a\\ é ^ :'
  .split(' ')
  .concat('x y', 'a ');
/** A class, whole or torn, with slashes and brackets among its members. */
const bracket = fc
  .tuple(
    fc.constantFrom('[', '[!', '[^', 'a[', '*['),
    fc.array(
      fc.constantFrom(
        ...'a b ] [ / - \\ ! ^ : é 9 a-c b-a --9 \\] \\/ [: :] [:] [::] [:digit:]'.split(' '),
      ),
      { maxLength: 4 },
    ),
    fc.constantFrom(']', ']', ']', ']*', '', ']b'),
  )
  .map(([start, members, end]) => `${start}${members.join('')}${end}`);
const piece = fc.oneof(
  { arbitrary: bracket, weight: 2 },
  fc.constantFrom(...NAMES),
  fc.constantFrom(
    '*',
    '?',
    '**',
    'a*',
    '*b',
    '[ab]',
    '[!a]*',
    '[^b]',
    '[a-c]b',
    '[]]',
    '[]a]',
    '\\[',
    '[',
    'a[',
    '[a/b]',
    '[!a/]',
    '***',
    'a**',
    '**b',
    '\\*',
  ),
  fc.constantFrom(
    '\\a',
    'a\\',
    '[[:alpha:]]',
    '[[:digit:]]',
    '[[:no:]]',
    '[[:constructor:]]',
    'a**b',
    '*.*',
    '[\\]]',
  ),
);
const pattern = fc
  .tuple(
    fc.constantFrom('', '!', '#', '/', '\\#', '\\!', '**/'),
    fc.array(piece, { minLength: 1, maxLength: 3 }),
    fc.constantFrom('', '/', '/**', ' ', '\\ ', '/*', '\t'),
  )
  .map(([start, parts, end]) => `${start}${parts.join('/')}${end}`);

describe('rules', () => {
  it('mean what they mean to git', async () => {
    await using project = await Project.create();
    git(project.path, ['init', '-q']);
    const paths = NAMES.flatMap((one) => [one, ...NAMES.map((two) => `d/${one}/${two}`)]);
    await fc.assert(
      fc.asyncProperty(fc.array(pattern, { minLength: 1, maxLength: 4 }), async (patterns) => {
        writeFileSync(project.file('.gitignore'), `${patterns.join('\n')}\n`);
        const told = git(
          project.path,
          ['check-ignore', '--no-index', '--stdin', '-z', '-v', '-n'],
          paths.map((one) => `./${one}\0`).join(''),
        ).split('\0');
        const ignored = new Set<string>();
        for (let at = 0; at + 3 < told.length; at += 4) {
          const [source, , rule = '', path = ''] = told.slice(at, at + 4);
          if (source !== '' && !rule.startsWith('!')) ignored.add(path.slice(2));
        }
        const rules = GitIgnore.of(project.path, project.path).inside(
          project.path,
          new Set(['.git', '.gitignore']),
        );
        const ours = paths.filter((path) => {
          const parts = path.split('/');
          return parts.some((_, index) =>
            rules.ignores(
              join(project.path, ...parts.slice(0, index + 1)),
              index < parts.length - 1,
            ),
          );
        });
        expect(ours).toEqual(paths.filter((path) => ignored.has(path)));
      }),
      runs(60),
    );
  });

  it('of a stranger take no time', async () => {
    const name = 'a'.repeat(200);
    const rules = [
      `${'*a'.repeat(90)}*b`,
      `${'**/a*/'.repeat(40)}b`,
      `${'**/'.repeat(1000)}b`,
      `[${'[:'.repeat(100_000)}x]`,
      `${'?*'.repeat(1000)}b/`,
      '[[:constructor:]]',
      '[[:__proto__:]]',
    ].join('\n');
    await using project = await Project.create({ '.gitignore': rules, [name]: '' });
    expect((await project.run('glob', { pattern: 'a*' })).data['paths']).toEqual([name]);
  });
});
