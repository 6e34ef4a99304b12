import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { mergeChanges } from '../../src/features/worktrees/merge.ts';
import { GitWorktrees } from '../../src/features/worktrees/worktrees.ts';
import { RestoredFiles } from '../../src/kernel/tools/restored-files.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

/** A repository with one commit of these files, and a worktree of it. */
async function desk(files: Readonly<Record<string, string>>, prepare?: (at: string) => void) {
  const project = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-bytes-')));
  onTestFinished(() => removeFolder(project));
  const git = (cwd: string, ...args: readonly string[]): string =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], {
      cwd,
      encoding: 'utf8',
    });
  const put = (root: string, file: string, content: string | Uint8Array): void => {
    mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
    writeFileSync(path.join(root, file), content);
  };
  git(project, 'init', '-q');
  for (const [file, text] of Object.entries({ 'a.txt': 'one\n', ...files }))
    put(project, file, text);
  prepare?.(project);
  git(project, 'add', '-A');
  git(project, 'commit', '-qm', 'first');
  const worktrees = new GitWorktrees({ projectPath: project, env: process.env });
  const plan = await worktrees.plan('6f1c1b52-3f0e-4a86-9d55-000000000001', 'patch');
  await worktrees.open(plan);
  const root = path.join(project, plan.path);
  return {
    root,
    git: (...args: readonly string[]) => git(root, ...args),
    put: (file: string, content: string | Uint8Array) => put(root, file, content),
    merge: async () =>
      await mergeChanges({
        contentOf: async (file, blob) => await worktrees.content(plan, file, blob),
        files: (await worktrees.collect(plan)).files,
        target: {
          path: project,
          files: new RestoredFiles({ projectPath: project, allow: [], threadId: 't' }),
        },
        keep: async () => await Promise.resolve(),
        env: process.env,
      }),
    project,
    found: async () => {
      const { files: changed, leftOut } = await worktrees.collect(plan);
      const contents = await Promise.all(
        changed.map(async ({ path: file, after: { mode, blob } }) => {
          if (mode === '000000') return [file, null];
          if (mode === '160000') return [file, 'a commit'];
          return [file, (await worktrees.content(plan, file, blob)).toString('latin1')];
        }),
      );
      return { files: Object.fromEntries(contents) as Record<string, string | null>, leftOut };
    },
  };
}
type Desk = Awaited<ReturnType<typeof desk>>;

interface Case {
  readonly files?: Readonly<Record<string, string>>;
  readonly prepare?: (project: string) => void;
  readonly work: (at: Desk) => void;
  /** Contents by path; null for a file that is gone. */
  readonly collected?: Readonly<Record<string, string | null>>;
  readonly left?: readonly string[];
}

/** Adds a submodule, whose commit is not there. */
function submodule(project: string): void {
  mkdirSync(path.join(project, 'sub'));
  const entry = `160000,${'1'.repeat(40)},sub`;
  execFileSync('git', ['update-index', '--add', '--cacheinfo', entry], { cwd: project });
}

const CRLF = 'one\r\ntwo\r\n';

test.each<readonly [string, Case]>([
  ['CRLF in a new file', { work: (at) => at.put('n.txt', CRLF), collected: { 'n.txt': CRLF } }],
  [
    'CRLF with text=auto',
    {
      files: { '.gitattributes': '* text=auto\n' },
      work: (at) => at.put('n.txt', CRLF),
      // the patch has the form of the repository, and the worktree the bytes
      collected: { 'n.txt': 'one\ntwo\n' },
      left: ['n.txt'],
    },
  ],
  [
    'CRLF with eol=crlf, which git writes again',
    {
      files: { '.gitattributes': '*.bat text eol=crlf\n', 'a.bat': CRLF },
      work: (at) => at.put('a.bat', `${CRLF}three\r\n`),
      collected: { 'a.bat': `${CRLF}three\r\n` },
    },
  ],
  [
    'mixed ends with eol=lf',
    {
      files: { '.gitattributes': '*.txt text eol=lf\n' },
      work: (at) => at.put('a.txt', 'one\r\ntwo\n'),
      collected: { 'a.txt': 'one\ntwo\n' },
      left: ['a.txt'],
    },
  ],
  [
    'UTF-16 with working-tree-encoding',
    {
      files: { '.gitattributes': '*.u16 working-tree-encoding=UTF-16LE-BOM\n' },
      work: (at) => at.put('n.u16', Buffer.from('\uFEFFhi\n', 'utf16le')),
      collected: { 'n.u16': Buffer.from('\uFEFFhi\n', 'utf16le').toString('latin1') },
    },
  ],
  [
    'a keyword with ident',
    {
      files: { '.gitattributes': '*.c ident\n' },
      work: (at) => at.put('n.c', '/* $Id: mine $ */\n'),
      collected: { 'n.c': expect.stringMatching(/^\/\* \$Id: [0-9a-f]{40} \$/) as string },
      left: ['n.c'],
    },
  ],
  [
    'attributes that the thread wrote',
    {
      work: (at) => {
        at.put('.gitattributes', '* text=auto\n');
        at.put('n.txt', CRLF);
      },
      collected: { '.gitattributes': '* text=auto\n', 'n.txt': 'one\ntwo\n' },
      left: ['n.txt'],
    },
  ],
  [
    'a file that the index assumes unchanged',
    {
      work: (at) => {
        at.git('update-index', '--assume-unchanged', 'a.txt');
        at.put('a.txt', 'two\n');
      },
      collected: { 'a.txt': 'two\n' },
    },
  ],
  [
    'a file that the index skips',
    {
      work: (at) => {
        at.git('update-index', '--skip-worktree', 'a.txt');
        at.put('a.txt', 'two\n');
      },
      collected: { 'a.txt': 'two\n' },
    },
  ],
  [
    'a commit that the thread made',
    {
      work: (at) => {
        at.put('n.txt', 'new\n');
        at.git('add', '-A');
        at.git('commit', '-qm', 'mine');
      },
      collected: { 'n.txt': 'new\n' },
    },
  ],
  [
    'a commit on another branch, which was left',
    {
      work: (at) => {
        at.git('switch', '-qc', 'side');
        at.put('n.txt', 'new\n');
        at.git('add', '-A');
        at.git('commit', '-qm', 'mine');
      },
      collected: { 'n.txt': 'new\n' },
    },
  ],
  [
    'an ignored file',
    { files: { '.gitignore': '*.log\n' }, work: (at) => at.put('n.log', 'x'), left: ['n.log'] },
  ],
  [
    'an ignored folder',
    { files: { '.gitignore': 'out/\n' }, work: (at) => at.put('out/n', 'x'), left: ['out/'] },
  ],
  [
    'a file that the thread ignores',
    {
      work: (at) => {
        at.put('.gitignore', 'n.txt\n');
        at.put('n.txt', 'x');
      },
      collected: { '.gitignore': 'n.txt\n' },
      left: ['n.txt'],
    },
  ],
  [
    'a committed file that is ignored',
    {
      files: { 'k.log': 'old\n' },
      work: (at) => {
        at.put('.gitignore', '*.log\n');
        at.put('k.log', 'new\n');
      },
      collected: { '.gitignore': '*.log\n', 'k.log': 'new\n' },
    },
  ],
  [
    'a repository in it',
    {
      work: (at) => {
        at.put('sub/n.txt', 'x');
        at.git('init', '-q', 'sub');
      },
      left: ['sub/'],
    },
  ],
  [
    'a repository in it, with a commit',
    {
      work: (at) => {
        at.put('sub/n.txt', 'x');
        at.git('init', '-q', 'sub');
        at.git('-C', 'sub', 'add', '-A');
        at.git('-C', 'sub', 'commit', '-qm', 'x');
      },
      left: ['sub/'],
    },
  ],
  [
    'a repository in a folder that is committed',
    {
      files: { 'lib/a.txt': 'old\n' },
      work: (at) => {
        at.git('init', '-q', 'lib');
        at.put('lib/a.txt', 'new\n');
        at.put('lib/n.txt', 'x');
      },
      collected: { 'lib/a.txt': 'new\n', 'lib/n.txt': 'x' },
    },
  ],
  [
    'a file in a submodule that is not there',
    { prepare: submodule, work: (at) => at.put('sub/n.txt', 'x'), left: ['sub/'] },
  ],
  [
    'a commit in a submodule',
    {
      prepare: submodule,
      work: (at) => {
        at.git('init', '-q', 'sub');
        at.put('sub/n.txt', 'x');
        at.git('-C', 'sub', 'add', '-A');
        at.git('-C', 'sub', 'commit', '-qm', 'x');
      },
      collected: { sub: 'a commit' },
      left: ['sub/'],
    },
  ],
  [
    'a mode',
    {
      files: { 'run.sh': 'exit\n' },
      work: (at) => chmodSync(path.join(at.root, 'run.sh'), 0o755),
      collected: { 'run.sh': 'exit\n' },
    },
  ],
  [
    'a link',
    {
      work: (at) => symlinkSync('/nowhere', path.join(at.root, 'link')),
      collected: { link: '/nowhere' },
    },
  ],
  [
    'a link in place of a file',
    {
      work: (at) => {
        rmSync(path.join(at.root, 'a.txt'));
        symlinkSync('b', path.join(at.root, 'a.txt'));
      },
      collected: { 'a.txt': 'b' },
    },
  ],
  [
    'a folder in place of a file',
    {
      work: (at) => {
        rmSync(path.join(at.root, 'a.txt'));
        at.put('a.txt/n', 'x');
      },
      collected: { 'a.txt': null, 'a.txt/n': 'x' },
    },
  ],
  [
    'a deleted file',
    { work: (at) => rmSync(path.join(at.root, 'a.txt')), collected: { 'a.txt': null } },
  ],
  [
    'names with a tab, a line feed, quotes and leading dashes',
    {
      work: (at) => {
        at.put('a\tb', '1');
        at.put('a\nb', '2');
        at.put('"q"', '3');
        at.put('-rf', '4');
        at.put(':(glob)x', '5');
      },
      collected: { 'a\tb': '1', 'a\nb': '2', '"q"': '3', '-rf': '4', ':(glob)x': '5' },
    },
  ],
  [
    'bytes of no text',
    {
      work: (at) => at.put('n.bin', new Uint8Array([0, 255, 10, 13, 10])),
      collected: { 'n.bin': '\0\u00ff\n\r\n' },
    },
  ],
  [
    'a file that sparse-checkout leaves out',
    {
      files: { 'far/a.txt': 'far\n' },
      work: (at) => {
        at.git('sparse-checkout', 'set', '--no-cone', '/a.txt');
        at.put('far/a.txt', 'near\n');
        at.put('far/n.txt', 'x');
      },
      collected: { 'far/a.txt': 'near\n', 'far/n.txt': 'x' },
    },
  ],
])('a worktree keeps %s', async (_, { files = {}, prepare, work, collected = {}, left = [] }) => {
  const at = await desk(files, prepare);
  work(at);
  expect(await at.found()).toEqual({ files: collected, leftOut: left });
});

test('a merge into a file with the line ends of its attributes keeps them', async () => {
  const text = `${CRLF}three\r\nfour\r\nfive\r\n`;
  const at = await desk({ '.gitattributes': '*.bat text eol=crlf\n', 'a.bat': text });
  at.put('a.bat', text.replace('one', 'ONE'));
  writeFileSync(path.join(at.project, 'a.bat'), text.replace('five', 'FIVE'));
  expect(await at.merge()).toEqual({ conflicts: [], merged: [] });
  expect(readFileSync(path.join(at.project, 'a.bat'), 'utf8')).toBe(
    text.replace('one', 'ONE').replace('five', 'FIVE'),
  );
});
