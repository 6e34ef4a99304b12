import {
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { MAX_COPY_BYTES } from '../../src/kernel/core/file-change.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { text } from '../helpers/wire-server.ts';
import { bash, edit, execute, undoDesk, write } from './undo-desk.ts';

describe('undo of files', () => {
  it('restores content and permissions, recreates nothing it need not, and removes new files and folders', async () => {
    const desk = await undoDesk();
    desk.put('old.sh', 'echo one\n', 0o754);
    desk.put('plain.txt', 'A\n');
    const id = await desk.run(
      [edit('old.sh', 'one', 'two'), write('deep/er/new.txt', 'new\n')],
      [write('old.sh', 'echo three\n'), edit('plain.txt', 'A', 'B')],
    );
    expect(desk.get('old.sh')).toBe('echo three\n');
    const done = await desk.undo(id);
    expect(done.files).toEqual([
      { path: 'deep/er/new.txt', action: 'removed' },
      { path: 'old.sh', action: 'restored' },
      { path: 'plain.txt', action: 'restored' },
    ]);
    expect(done.folders).toEqual(['deep/er', 'deep']);
    expect(desk.get('old.sh')).toBe('echo one\n');
    expect(desk.modeOf('old.sh')).toBe(0o754);
    expect(desk.get('plain.txt')).toBe('A\n');
    expect(desk.has('deep')).toBe(false);
    expect((await desk.lab.rye().threads.verify(id)).ok).toBe(true);
    expect((await desk.undo(id)).files).toEqual([]);
  });

  it('goes back to the moment of an entry, and forward to a later one', async () => {
    const desk = await undoDesk();
    desk.put('a.txt', '0');
    const id = await desk.run([write('a.txt', '1')], [write('a.txt', '2')], [write('a.txt', '3')]);
    const answers = await desk.entries(id, 'assistant');
    const results = await desk.entries(id, 'tool_result');
    const state = async (to: string): Promise<string | null> => {
      await desk.undo(id, { to });
      return desk.get('a.txt');
    };
    expect(await state(answers[1] ?? '')).toBe('1');
    expect(await state(results[1] ?? '')).toBe('2');
    expect(await state(answers[0] ?? '')).toBe('0');
    expect(await state(results[2] ?? '')).toBe('3');
    expect(await state('root')).toBe('0');
    expect((await desk.lab.rye().threads.verify(id)).ok).toBe(true);
  });

  it('recreates a file that was removed since only with force, and refuses a file that changed outside the thread', async () => {
    const desk = await undoDesk();
    desk.put('a.txt', 'A');
    desk.put('b.txt', 'B');
    const id = await desk.run([write('a.txt', 'A2'), write('b.txt', 'B2')]);
    desk.put('a.txt', 'mine');
    desk.drop('b.txt');
    await expect(desk.undo(id)).rejects.toMatchObject({
      code: 'file_changed',
      exitCode: 2,
      message: expect.stringMatching(/a\.txt.*b\.txt/),
    });
    expect(desk.get('a.txt')).toBe('mine');
    expect((await desk.undo(id, { dryRun: true })).files).toMatchObject([
      { path: 'a.txt', action: 'kept', problem: { code: 'file_changed' } },
      { path: 'b.txt', action: 'kept', problem: { code: 'file_changed' } },
    ]);
    const { files } = await desk.undo(id, { force: true });
    expect(files).toMatchObject([
      { path: 'a.txt', action: 'restored' },
      { path: 'b.txt', action: 'recreated' },
    ]);
    expect([desk.get('a.txt'), desk.get('b.txt')]).toEqual(['A', 'B']);
  });

  it.each([
    ['changed to one that is too large to keep', 'a.txt'],
    ['replaced by one that is too large to keep', 'new.txt'],
  ])('refuses a file %s, also with force', async (_, file) => {
    const desk = await undoDesk();
    desk.put('a.txt', 'A');
    const id = await desk.run([write('a.txt', 'A2'), write('new.txt', 'N')]);
    const path = join(desk.lab.project, file);
    truncateSync(path, MAX_COPY_BYTES + 1);
    const { files } = await desk.undo(id, { force: true, dryRun: true });
    const problem = { code: 'item_too_large' };
    expect(files.find((one) => one.path === file)).toMatchObject({ action: 'kept', problem });
    truncateSync(path, MAX_COPY_BYTES);
    const again = await desk.undo(id, { dryRun: true });
    const known = again.files.find((one) => one.path === file);
    expect(known?.problem).toMatchObject({ code: 'file_changed' });
  });

  it('takes back the changes of children, except with own', async () => {
    const desk = await undoDesk();
    desk.put('a.txt', '0');
    const id = await desk.run(
      [write('a.txt', '1')],
      [execute('child')],
      [write('a.txt', '2'), write('child.txt', 'c')],
      [text('Child done.')],
      [edit('a.txt', '2', '3')],
    );
    expect(desk.get('a.txt')).toBe('3');
    const own = await desk.undo(id, { own: true, dryRun: true });
    expect(own.files.map(({ path }) => path)).toEqual(['a.txt']);
    expect(own.warnings).toEqual(['a.txt: changed outside the thread between two of its changes']);
    const answers = await desk.entries(id, 'assistant');
    await desk.undo(id, { to: answers[1] ?? '' });
    expect([desk.get('a.txt'), desk.get('child.txt')]).toEqual(['1', null]);
    await desk.undo(id, { to: answers[2] ?? '' });
    expect([desk.get('a.txt'), desk.get('child.txt')]).toEqual(['2', 'c']);
    await desk.undo(id);
    expect([desk.get('a.txt'), desk.get('child.txt')]).toEqual(['0', null]);
  });

  it('waits for a child that has not ended, except with own', async () => {
    const desk = await undoDesk();
    desk.put('a.txt', '0');
    const id = await desk.run([write('a.txt', '1')]);
    const { project: projectPath } = desk.lab;
    const store = openStore({ projectPath, clock: systemClock, ids: systemIds });
    onTestFinished(() => store.close());
    const now = new Date().toISOString();
    const child = { threadId: 'late', parentId: id, directive: 'child', model: 'm' };
    await store.registry.register({ ...child, now, owner: null });
    await expect(desk.undo(id)).rejects.toMatchObject({
      code: 'thread_locked',
      message: 'thread late is created and may still change files',
    });
    expect(desk.get('a.txt')).toBe('1');
    await desk.undo(id, { own: true });
    expect(desk.get('a.txt')).toBe('0');
  });

  it('names calls that may have changed files without a record', async () => {
    const desk = await undoDesk();
    const id = await desk.run([bash('echo x > shell.txt'), write('a.txt', '1')]);
    const done = await desk.undo(id);
    expect(done.unrecorded_calls).toMatchObject([{ thread_id: id, tool: 'rye/bash' }]);
    expect([desk.get('shell.txt'), desk.get('a.txt')]).toEqual(['x\n', null]);
  });

  it('refuses links, folders and guarded paths that are in the way, and copies that were changed', async () => {
    const desk = await undoDesk();
    desk.put('a/one.txt', '1');
    desk.put('b.txt', '1');
    desk.put('c.txt', '1');
    const id = await desk.run([write('a/one.txt', '2'), write('b.txt', '2'), write('c.txt', '2')]);
    const outside = join(desk.lab.home, 'target');
    mkdirSync(outside);
    writeFileSync(join(outside, 'one.txt'), '2');
    desk.drop('a');
    symlinkSync(outside, join(desk.lab.project, 'a'));
    desk.drop('b.txt');
    mkdirSync(join(desk.lab.project, 'b.txt'));
    await expect(desk.undo(id)).rejects.toMatchObject({ code: 'path_denied', exitCode: 4 });
    const copies = join(desk.lab.path('state/threads'), id, 'copies');
    for (const name of readdirSync(copies)) {
      expect(statSync(join(copies, name)).mode & 0o777).toBe(0o600);
      writeFileSync(join(copies, name), 'x');
    }
    const { files } = await desk.undo(id, { force: true });
    expect(files).toMatchObject([
      { action: 'kept', problem: { code: 'path_denied' } },
      { action: 'kept', problem: { code: 'path_denied' } },
      { action: 'kept', problem: { code: 'part_outdated' } },
    ]);
    expect([readFileSync(join(outside, 'one.txt'), 'utf8'), desk.get('c.txt')]).toEqual(['2', '2']);
  });

  it('restores a guarded path only for a thread that may write it', async () => {
    const desk = await undoDesk();
    const id = await desk.run([write('hooks/config', 'x')]);
    // the folder has become a bare repository since
    for (const name of ['HEAD', 'objects', 'refs']) desk.put(`hooks/${name}`, '');
    await expect(desk.undo(id)).rejects.toMatchObject({ code: 'path_denied' });
    expect(desk.get('hooks/config')).toBe('x');
  });

  it('follows the session over resumes and branches', async () => {
    const desk = await undoDesk();
    desk.put('a.txt', '0');
    const id = await desk.run([write('a.txt', '1')]);
    await desk.resume(id, 'More.', [write('a.txt', '2'), write('b.txt', 'b')]);
    const [, second] = await desk.entries(id, 'user');
    const answers = await desk.entries(id, 'assistant');
    await desk.lab.rye().trees.branch(id, { at: answers[1] ?? '' });
    await desk.resume(id, 'Otherwise.', [write('a.txt', '3')]);
    // the file never was what the first branch left when the second began
    await desk.undo(id, { to: second ?? '' });
    expect([desk.get('a.txt'), desk.get('b.txt')]).toEqual(['1', null]);
    await desk.undo(id);
    expect(desk.get('a.txt')).toBe('0');
    expect((await desk.lab.rye().threads.verify(id)).ok).toBe(true);
  });

  it('leaves copies that a log names, and removes copies of archived threads', async () => {
    const desk = await undoDesk();
    desk.put('a.txt', '0');
    const id = await desk.run([write('a.txt', '1')]);
    const copies = join(desk.lab.path('state/threads'), id, 'copies');
    writeFileSync(join(copies, 'a'.repeat(64)), 'left by a crash');
    const { recovery, doctor } = desk.lab.rye();
    expect(JSON.stringify(await doctor())).toContain('2 copies of files that tools changed');
    const young = await recovery.collect({ olderThanMs: 3_600_000 });
    expect(young).toMatchObject({ archived: [], copies: { files: 1, bytes: 15 }, failures: [] });
    expect((await desk.undo(id, { dryRun: true })).files).toHaveLength(1);
    const all = await recovery.collect({ olderThanMs: 0 });
    expect(all).toMatchObject({ archived: [{ thread_id: id }], copies: { files: 1, bytes: 1 } });
    await expect(desk.undo(id)).rejects.toMatchObject({ code: 'part_missing', exitCode: 3 });
    expect(desk.get('a.txt')).toBe('1');
  });
});
