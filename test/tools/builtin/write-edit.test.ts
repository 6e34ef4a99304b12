import { chmod, readdir, readFile, stat, symlink } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { FileMemory } from '../../../src/kernel/tools/builtin/options.ts';
import { builtin, Project, shown } from '../helpers.ts';

describe('write', () => {
  // Requirement: write-outcome
  it('creates with folders, updates, and reports an unchanged file', async () => {
    await using project = await Project.create();
    expect(await project.run('write', { path: 'a/b/c.txt', content: 'é' })).toEqual({
      text: 'Created a/b/c.txt (2 bytes).',
      isError: false,
      data: { path: 'a/b/c.txt', bytes: 2, status: 'created' },
    });
    expect((await project.run('write', { path: 'a/b/c.txt', content: 'x' })).data['status']).toBe(
      'updated',
    );
    expect(await project.run('write', { path: 'a/b/c.txt', content: 'x' })).toMatchObject({
      text: 'No change needed: a/b/c.txt already has this content.',
      data: { status: 'unchanged' },
    });
    expect(await readdir(project.file('a/b'))).toEqual(['c.txt']);
  });

  it('keeps the permissions of the file', async () => {
    await using project = await Project.create({ 'run.sh': 'echo 1' });
    await chmod(project.file('run.sh'), 0o750);
    await project.run('write', { path: 'run.sh', content: 'echo 2' });
    await project.run('edit', { path: 'run.sh', old_string: '2', new_string: '3' });
    expect((await stat(project.file('run.sh'))).mode & 0o777).toBe(0o750);
    expect(await readFile(project.file('run.sh'), 'utf8')).toBe('echo 3');
  });

  it('writes through a link to the file inside, keeping the link', async () => {
    await using project = await Project.create({ 'real.txt': 'x' });
    await symlink('real.txt', project.file('link.txt'));
    await project.run('write', { path: 'link.txt', content: 'y' });
    expect(await readFile(project.file('real.txt'), 'utf8')).toBe('y');
  });

  it.each(['.', '../x', '.ai/state/x', '.ai/config/keys/k', 'file/x'])(
    'refuses %s',
    async (path) => {
      await using project = await Project.create({ file: '' });
      expect((await project.run('write', { path, content: 'x' })).isError).toBe(true);
      expect(await readdir(project.path)).toEqual(['file']);
    },
  );

  it('names a file the same for every spelling of its path', () => {
    const tool = builtin('write');
    expect(tool.writes?.({ path: './a/../b.txt' })).toEqual(['b.txt']);
    expect(tool.writes?.({})).toEqual([]);
  });

  it('lets concurrent writers of a new file follow one another', async () => {
    await using project = await Project.create();
    const writes = ['1', '2', '3'].map((content) => project.run('write', { path: 'x', content }));
    const statuses = (await Promise.all(writes)).map(({ data }) => data['status']);
    expect(statuses.filter((status) => status === 'created')).toHaveLength(1);
    expect(statuses.filter((status) => status === 'updated')).toHaveLength(2);
  });
});

describe('edit', () => {
  it('reports what it did', async () => {
    await using project = await Project.create({ 'a.txt': 'one\ntwo\n' });
    expect(
      await project.run('edit', { path: 'a.txt', old_string: 'two', new_string: 'TWO' }),
    ).toEqual({
      text: 'Edited a.txt: 1 replacement, the first in line 2.',
      isError: false,
      data: { path: 'a.txt', replacements: 1, line: 2, bytes: 8 },
    });
  });

  it('loses no concurrent edit of one file', async () => {
    const words = Array.from({ length: 20 }, (_, index) => `<w${index}>`);
    await using project = await Project.create({ 'a.txt': words.join('\n') });
    const edits = words.map((word, index) =>
      project.run('edit', { path: 'a.txt', old_string: word, new_string: `[done${index}]` }),
    );
    expect((await Promise.all(edits)).every(({ isError }) => !isError)).toBe(true);
    const text = await readFile(project.file('a.txt'), 'utf8');
    expect(text).toBe(words.map((_word, index) => `[done${index}]`).join('\n'));
  });

  it.each<[string, Uint8Array, string]>([
    ['binary', Buffer.from('a\0b'), 'binary'],
    ['not UTF-8', Buffer.from('caf\xe9', 'latin1'), 'not UTF-8'],
    ['too large', Buffer.alloc(17 * 1024 * 1024, 'a'), 'too large'],
  ])('refuses a file that is %s and leaves it alone', async (_name, bytes, reason) => {
    await using project = await Project.create({ x: bytes });
    const result = await project.run('edit', {
      path: 'x',
      old_string: 'a',
      new_string: 'b',
      replace_all: true,
    });
    expect(result).toMatchObject({ isError: true, text: expect.stringContaining(reason) });
    expect((await readFile(project.file('x'))).equals(bytes)).toBe(true);
  });

  it('keeps a byte order mark', async () => {
    await using project = await Project.create({ x: '\u{FEFF}a' });
    await project.run('edit', { path: 'x', old_string: 'a', new_string: 'b' });
    expect(await readFile(project.file('x'), 'utf8')).toBe('\u{FEFF}b');
  });

  // Requirement: edits-atomic
  it('applies multi_edit in order, all or none', async () => {
    await using project = await Project.create({ x: 'a b c' });
    const edits = [
      { old_string: 'a', new_string: 'b' },
      { old_string: 'b b', new_string: 'd' },
    ];
    expect((await project.run('multi_edit', { path: 'x', edits })).data).toMatchObject({
      replacements: 2,
      bytes: 3,
    });
    const failing = await project.run('multi_edit', {
      path: 'x',
      edits: [
        { old_string: 'c', new_string: 'z' },
        { old_string: 'nowhere', new_string: '' },
      ],
    });
    expect(failing.text).toContain('Edit 2 of 2 failed, nothing was written.');
    expect(await readFile(project.file('x'), 'utf8')).toBe('d c');
  });

  // Requirement: edit-needs-read
  it('can require a read first, and lets own edits chain', async () => {
    await using project = await Project.create({ x: 'a' });
    const memory = new FileMemory({ requireReadBeforeEdit: true });
    const change = (from: string, to: string) =>
      project.run('edit', { path: 'x', old_string: from, new_string: to }, { memory });
    expect((await change('a', 'b')).text).toContain('it has not been read yet');
    await project.run('read', { path: 'x' }, { memory });
    expect((await change('a', 'b')).isError).toBe(false);
    expect((await change('b', 'c')).isError).toBe(false);
    await project.write('x', 'other');
    expect((await change('other', 'd')).text).toContain('it changed since it was read');
  });

  it('does nothing after a cancellation', async () => {
    await using project = await Project.create({ x: 'a' });
    const context = project.context({ signal: AbortSignal.abort() });
    const output = await builtin('edit').execute(
      { path: 'x', old_string: 'a', new_string: 'b' },
      context,
    );
    expect(shown(output).data).toEqual({ code: 'cancelled' });
    expect(await readFile(project.file('x'), 'utf8')).toBe('a');
  });
});
