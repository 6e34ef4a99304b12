import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { FileMemory } from '../../../src/kernel/tools/builtin/options.ts';
import { Project } from '../helpers.ts';

function numbered(count: number): string {
  return Array.from({ length: count }, (_, index) => `line ${index + 1}\n`).join('');
}

describe('read', () => {
  // Requirement: numbered-lines
  it('numbers lines and describes the slice in data', async () => {
    await using project = await Project.create({ 'a.txt': 'one\r\ntwo\nthree' });
    expect(await project.run('read', { path: 'a.txt' })).toEqual({
      text: '1\tone\n2\ttwo\n3\tthree',
      isError: false,
      data: {
        path: 'a.txt',
        offset: 1,
        bytes: 14,
        content: 'one\ntwo\nthree',
        lines: 3,
        truncated: false,
      },
    });
    expect((await project.run('read', { path: 'a.txt' }, { readLineNumbers: false })).text).toBe(
      'one\ntwo\nthree',
    );
  });

  // Requirement: read-defaults, read-next-offset
  it('shows 2000 lines by default and pages by the footer', async () => {
    await using project = await Project.create({ 'a.txt': numbered(2500) });
    const first = await project.run('read', { path: 'a.txt' });
    expect(first.text.split('\n').at(-1)).toBe(
      '(lines 1-2000 shown; the file has more: continue with offset=2001)',
    );
    expect(first.data).toMatchObject({ lines: 2000, truncated: true, next_offset: 2001 });
    const second = await project.run('read', { path: 'a.txt', offset: 2001 });
    expect(second.text.split('\n').at(-1)).toBe('2500\tline 2500');
    expect(second.data).toMatchObject({ lines: 500, truncated: false });
    expect((await project.run('read', { path: 'a.txt', limit: 0 })).data['lines']).toBe(2500);
  });

  it('is not truncated when the limit is exactly the file', async () => {
    await using project = await Project.create({ 'a.txt': numbered(3) });
    expect((await project.run('read', { path: 'a.txt', limit: 3 })).data['truncated']).toBe(false);
  });

  // Requirement: zero-disables-cap
  it('cuts at whole lines by maxBytes, and inside a line that alone is too long', async () => {
    await using project = await Project.create({
      'a.txt': 'aaaa\nbbbb\ncccc\n',
      'b.txt': `${'é'.repeat(50)}\nx`,
    });
    const lines = await project.run('read', { path: 'a.txt', maxBytes: 12 });
    expect(lines.data).toMatchObject({ content: 'aaaa\nbbbb', next_offset: 3 });
    const long = await project.run('read', { path: 'b.txt', maxBytes: 11 });
    expect(long.data).toMatchObject({ content: 'ééééé', truncated: true, next_offset: 2 });
    expect(long.text).toContain('(line 1 is longer than a page; continue with from_byte=10,');
    const next = await project.run('read', { path: 'b.txt', from_byte: 10, maxBytes: 11 });
    expect(next.text).toBe('ééééé\n(bytes 10-20 of 102 shown; continue with from_byte=20)');
    expect(next.data).toMatchObject({ next_byte: 20, truncated: true });
    const last = await project.run('read', { path: 'b.txt', from_byte: 98 });
    expect(last.text).toBe('é\nx\n(bytes 98-102 of 102 shown)');
    const past = await project.run('read', { path: 'b.txt', from_byte: 102 });
    expect(past.isError).toBe(true);
    expect((await project.run('read', { path: 'b.txt', maxBytes: 0 })).data['lines']).toBe(2);
  });

  it('keeps every page with its notice below the size at which results leave the context', async () => {
    await using project = await Project.create({
      'a.txt': numbered(5000),
      'one.json': JSON.stringify('é'.repeat(20_000)),
    });
    const read: string[] = [];
    for (let offset: number | undefined = 1; offset !== undefined; ) {
      const page = await project.run('read', { path: 'a.txt', offset }, { maxResultBytes: 8192 });
      expect(Buffer.byteLength(page.text)).toBeLessThanOrEqual(8192);
      read.push(page.data['content'] as string);
      offset = page.data['next_offset'] as number | undefined;
    }
    expect(`${read.join('\n')}\n`).toBe(numbered(5000));
    const bytes: string[] = [];
    for (let from: number | undefined = 0; from !== undefined; ) {
      const page = await project.run(
        'read',
        { path: 'one.json', from_byte: from },
        { maxResultBytes: 8192 },
      );
      expect(Buffer.byteLength(page.text)).toBeLessThanOrEqual(8192);
      bytes.push(page.data['content'] as string);
      from = page.data['next_byte'] as number | undefined;
    }
    expect(bytes.join('')).toBe(JSON.stringify('é'.repeat(20_000)));
  });

  it('reads the head of a 1 GB file and a 10 MB line in bounded memory', async () => {
    await using project = await Project.create({ 'line.txt': 'x'.repeat(10 * 1024 * 1024) });
    const handle = await open(project.file('huge.txt'), 'w');
    await handle.write(numbered(3000));
    await handle.truncate(1024 ** 3);
    await handle.close();
    const before = process.memoryUsage().rss;
    expect((await project.run('read', { path: 'huge.txt' })).data['lines']).toBe(2000);
    expect((await project.run('read', { path: 'line.txt' })).data).toMatchObject({
      bytes: 10 * 1024 * 1024,
      truncated: true,
    });
    expect(process.memoryUsage().rss - before).toBeLessThan(150 * 1024 * 1024);
  });

  it.each<[string, Uint8Array]>([
    ['NUL byte', Buffer.from('PNG\0\x01')],
    ['NUL byte later', Buffer.concat([Buffer.alloc(10_000, 'xxxxxxxxx\n'), Buffer.from([0])])],
    ['dense invalid UTF-8', Buffer.alloc(100, 0xff)],
    ['UTF-16', Buffer.from('hello', 'utf16le')],
    // Requirement: binary-marker
  ])('marks binary files: %s', async (_name, bytes) => {
    await using project = await Project.create({ x: bytes });
    const result = await project.run('read', { path: 'x' });
    expect(result.text).toBe(`[binary file: x, ${bytes.length} bytes; not shown]`);
    expect(result.data).toMatchObject({ binary: true, lines: 0 });
  });

  it('shows text with a stray invalid byte, and hides a byte order mark', async () => {
    await using project = await Project.create({
      'latin.txt': Buffer.from('a long line with one caf\xe9 in it', 'latin1'),
      'bom.txt': '\u{FEFF}hi',
    });
    expect((await project.run('read', { path: 'latin.txt' })).text).toContain('caf\u{FFFD}');
    expect((await project.run('read', { path: 'bom.txt' })).text).toBe('1\thi');
  });

  it('explains an empty file, an offset past the end, a folder and a missing file', async () => {
    await using project = await Project.create({ 'empty.txt': '', 'dir/a.txt': 'x' });
    expect(await project.run('read', { path: 'empty.txt' })).toMatchObject({
      text: '(empty.txt is empty)',
      isError: false,
      data: { lines: 0 },
    });
    const past = await project.run('read', { path: 'dir/a.txt', offset: 9 });
    expect(past).toMatchObject({
      isError: true,
      text: 'offset 9 is past the end: dir/a.txt has 1 lines.',
    });
    expect((await project.run('read', { path: 'dir' })).text).toContain('is a folder');
    const missing = await project.run('read', { path: 'dir/b.txt' });
    expect(missing.data).toEqual({ code: 'file_not_found' });
    expect(missing.text).toContain('Did you mean a.txt?');
    expect((await project.run('read', { path: '../x' })).data).toEqual({ code: 'path_denied' });
  });

  // Requirement: identical-read-stub
  it('answers an identical re-read with a stub until the file or the slice changes', async () => {
    await using project = await Project.create({ 'a.txt': 'one\ntwo\n' });
    const memory = new FileMemory();
    const read = (input = {}) => project.run('read', { path: 'a.txt', ...input }, { memory });
    await read();
    const again = await read();
    expect(again.text).toBe(
      'Unchanged since the last read of a.txt (lines 1-2): the earlier result still holds.',
    );
    expect(again.data).toMatchObject({ unchanged: true, content: 'one\ntwo' });
    expect((await read({ limit: 1 })).data['unchanged']).toBeUndefined();
    await read();
    // another slice, although it shows the same
    expect((await read({ limit: 7 })).data['unchanged']).toBeUndefined();
    await read();
    await project.write('a.txt', 'one\nTWO\n');
    expect((await read()).text).toBe('1\tone\n2\tTWO');
    memory.clear();
    expect((await read()).data['unchanged']).toBeUndefined();
  });

  it('records the hash of the whole file, not of the slice', async () => {
    await using project = await Project.create({ 'a.txt': numbered(10) });
    const memory = new FileMemory({ requireReadBeforeEdit: true });
    await project.run('read', { path: 'a.txt', limit: 1 }, { memory });
    const hash = createHash('sha256').update(numbered(10)).digest('hex');
    expect(memory.editProblem(project.file('a.txt'), hash)).toBeUndefined();
    expect(memory.editProblem(project.file('a.txt'), 'other')).toBe('it changed since it was read');
    expect(memory.editProblem(project.file('b.txt'), hash)).toBe('it has not been read yet');
  });
});
