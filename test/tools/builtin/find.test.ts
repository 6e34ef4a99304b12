import { execFileSync } from 'node:child_process';
import { symlink } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ripgrepPath } from '../../../src/kernel/tools/builtin/grep.ts';
import { builtin, Project, shown } from '../helpers.ts';

const FILES = {
  'src/a.ts': 'const Foo = 1;\nconst bar = 2;\n',
  'src/b/c.ts': 'foo();\n',
  'src/b.txt': 'foo foo\r\n',
  '.hidden/x.ts': 'foo\n',
  '.git/config': 'foo\n',
  'node_modules/p/i.ts': 'foo\n',
  '.ai/state/threads/t/transcript.jsonl': 'foo\n',
  '.ai/config/keys/k.pem': 'foo\n',
  '.AI/State/other-case.txt': 'foo\n',
  '.ai/directives/d.md': 'foo\n',
  'bin.dat': Buffer.from('foo\n\0foo\n'),
  'odd\nname "é".txt': 'foo\n',
};

describe('ls', () => {
  it('lists sorted with kinds and sizes', async () => {
    await using project = await Project.create({ 'b.txt': 'xy', 'a/x': '', '.h': '' });
    await symlink('b.txt', project.file('l'));
    expect(await project.run('ls', {})).toEqual({
      text: '.h\t0\na/\nb.txt\t2\nl -> b.txt',
      isError: false,
      data: {
        path: '.',
        entries: [
          { name: '.h', type: 'file', bytes: 0 },
          { name: 'a', type: 'folder' },
          { name: 'b.txt', type: 'file', bytes: 2 },
          { name: 'l', type: 'link' },
        ],
        count: 4,
        truncated: false,
      },
    });
  });

  it('quotes names with control characters, and bounds the list', async () => {
    await using project = await Project.create({ 'a\nb': '', c: '', d: '' });
    const listed = await project.run('ls', { limit: 2 });
    expect(listed.text).toBe(
      '"a\\nb"\t0\nc\t0\n(2 of 3 entries shown; raise limit or use rye_file_system_glob)',
    );
    expect(listed.data).toMatchObject({ count: 3, truncated: true });
  });

  it('explains files, empty and missing folders', async () => {
    await using project = await Project.create({ f: '' });
    expect((await project.run('ls', { path: 'f' })).text).toContain('not a folder');
    expect((await project.run('ls', { path: 'g' })).data).toEqual({ code: 'file_not_found' });
    await using empty = await Project.create();
    expect((await empty.run('ls', {})).text).toBe('(. is empty)');
  });
});

describe('glob', () => {
  it('finds sorted files, without version control, dependencies, state and keys', async () => {
    await using project = await Project.create(FILES);
    const found = await project.run('glob', { pattern: '**' });
    expect(found.data['paths']).toEqual([
      '.ai/directives/d.md',
      '.hidden/x.ts',
      'bin.dat',
      'odd\nname "é".txt',
      'src/a.ts',
      'src/b/c.ts',
      'src/b.txt',
    ]);
    expect(found.text).toContain('"odd\\nname \\"é\\".txt"');
    expect((await project.run('glob', { pattern: '**/*.ts', path: 'src' })).data).toEqual({
      paths: ['src/a.ts', 'src/b/c.ts'],
      count: 2,
      truncated: false,
    });
    expect(
      (await project.run('glob', { pattern: '**', path: 'node_modules/p' })).data['count'],
    ).toBe(1);
  });

  it('counts what it does not show', async () => {
    await using project = await Project.create(FILES);
    const found = await project.run('glob', { pattern: '**/*.ts', limit: 1 });
    expect(found.data).toEqual({ paths: ['.hidden/x.ts'], count: 3, truncated: true });
    expect(found.text).toContain('(1 of 3 files shown');
  });

  it('does not follow links, and refuses patterns that leave', async () => {
    await using outside = await Project.create({ 'secret.ts': '' });
    await using project = await Project.create();
    await symlink(outside.path, project.file('out'));
    expect((await project.run('glob', { pattern: '**' })).text).toBe('No files match.');
    expect((await project.run('glob', { pattern: '../**' })).data).toEqual({
      code: 'pattern_invalid',
    });
  });
});

/** ripgrep is optional: its rows run where it is on PATH. */
const withRipgrep = ripgrepPath(process.env['PATH']) === undefined ? [] : [true];

describe.each([false, ...withRipgrep])('grep, ripgrep %s', (ripgrep) => {
  const run = (project: Project, input: Parameters<Project['run']>[1]) =>
    project.run('grep', input, { ripgrep });

  it('shows path:line:text in file order', async () => {
    await using project = await Project.create(FILES);
    const found = await run(project, { pattern: 'foo' });
    expect(found.text.split('\n')).toEqual([
      '.ai/directives/d.md:1:foo',
      '.hidden/x.ts:1:foo',
      '"odd\\nname \\"é\\".txt":1:foo',
      'src/b/c.ts:1:foo();',
      'src/b.txt:1:foo foo',
    ]);
    expect(found.data).toMatchObject({ count: 5, files: 5, truncated: false });
  });

  it('filters by glob, path and case', async () => {
    await using project = await Project.create(FILES);
    const lines = async (input: Parameters<Project['run']>[1]) =>
      (await run(project, input)).text.split('\n');
    expect(
      await lines({ pattern: 'foo', glob: '*.ts', case_insensitive: true, path: 'src' }),
    ).toEqual(['src/a.ts:1:const Foo = 1;', 'src/b/c.ts:1:foo();']);
    expect(await lines({ pattern: 'foo', glob: 'b/**', path: 'src' })).toEqual([
      'src/b/c.ts:1:foo();',
    ]);
    expect(await lines({ pattern: 'foo', path: 'src/b.txt' })).toEqual(['src/b.txt:1:foo foo']);
    expect(await lines({ pattern: 'foo', path: 'node_modules/p' })).toEqual([
      'node_modules/p/i.ts:1:foo',
    ]);
  });

  it('never searches keys or state, even from inside .ai', async () => {
    await using project = await Project.create(FILES);
    expect((await run(project, { pattern: 'foo', path: '.ai' })).data).toMatchObject({ files: 1 });
    expect((await run(project, { pattern: 'foo', path: '.ai/config' })).data).toMatchObject({
      files: 0,
    });
    expect((await run(project, { pattern: 'foo', path: '.ai/state' })).data).toEqual({
      code: 'path_denied',
    });
  });

  // Requirement: grep-ripgrep
  it('pages with head_limit and offset', async () => {
    await using project = await Project.create({ 'a.txt': 'x\n'.repeat(600) });
    const first = await run(project, { pattern: 'x' });
    expect(first.text.split('\n')).toHaveLength(251);
    expect(first.text).toContain('(results 1-250 of 600 shown; continue with offset=250)');
    expect(first.data).toMatchObject({ count: 600, truncated: true });
    const last = await run(project, { pattern: 'x', offset: 500 });
    expect(last.text.split('\n')).toHaveLength(100);
    expect(last.data['truncated']).toBe(false);
    expect((await run(project, { pattern: 'x', offset: 600 })).isError).toBe(true);
  });

  it('lists files and counts', async () => {
    await using project = await Project.create({ a: 'x\nx\n', b: 'x\n', c: '' });
    expect((await run(project, { pattern: 'x', output_mode: 'files' })).text).toBe('a\nb');
    expect((await run(project, { pattern: 'x', output_mode: 'count' })).text).toBe('a:2\nb:1');
    expect((await run(project, { pattern: 'nope' })).text).toBe('No matches.');
  });

  it('stops at the bound of matches, and cuts long lines', async () => {
    await using project = await Project.create({
      a: 'x\n'.repeat(20_000),
      b: `${'y'.repeat(10_000)}\n`,
    });
    const many = await run(project, { pattern: 'x' });
    expect(many.data).toMatchObject({ count: 10_000, truncated: true });
    expect((await run(project, { pattern: 'yy' })).text).toBe(`b:1:${'y'.repeat(500)}…`);
  });

  it('refuses patterns that need backtracking, and survives hostile ones', async () => {
    await using project = await Project.create({ a: `${'a'.repeat(20_000)}\n` });
    const refused = await run(project, { pattern: '(?=x)y' });
    expect(refused).toMatchObject({ isError: true, data: { code: 'pattern_invalid' } });
    expect((await run(project, { pattern: '^(a+)+$b' })).text).toBe('No matches.');
    expect((await run(project, { pattern: '-e' })).text).toBe('No matches.');
  });

  // Requirement: grep-ripgrep
  it('skips pipes and links, and stops when cancelled', async () => {
    await using project = await Project.create({ a: 'x' });
    execFileSync('mkfifo', [project.file('pipe')]);
    await symlink('a', project.file('link'));
    expect((await run(project, { pattern: 'x' })).data['files']).toBe(1);
    const context = project.context({ signal: AbortSignal.abort() });
    const output = await builtin('grep', { ripgrep }).execute({ pattern: 'x' }, context);
    expect(shown(output).data).toEqual({ code: 'cancelled' });
  });
});

describe('ripgrepPath', () => {
  it('looks along PATH for something executable', async () => {
    await using project = await Project.create({ 'one/rg': 'x', 'two/rg': 'x' });
    execFileSync('chmod', ['+x', project.file('two/rg')]);
    const path = ['', '/nowhere', project.file('one'), project.file('two')].join(delimiter);
    expect(ripgrepPath(path)).toBe(join(project.file('two'), 'rg'));
    expect(ripgrepPath(undefined)).toBeUndefined();
  });
});
