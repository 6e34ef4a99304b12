import { mkdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { sha256 } from '../../src/kernel/tools/kept-files.ts';
import { RestoredFiles } from '../../src/kernel/tools/restored-files.ts';
import { Project } from './helpers.ts';

const bytes = (text: string): Uint8Array => Buffer.from(text);

function filesOf(project: Project): RestoredFiles {
  return new RestoredFiles({ projectPath: project.path, allow: [], threadId: 't' });
}

it('a file goes back to its earlier content and permissions, and one that was not there goes', async () => {
  await using project = await Project.create({ 'a/x.txt': 'new', 'b.txt': 'new' });
  const files = filesOf(project);
  const seen = await files.look('a/x.txt');
  expect(seen).toMatchObject({ sha256: sha256('new'), bytes: 3 });
  await files.restore('a/x.txt', seen, { bytes: bytes('old'), mode: 0o600 });
  expect(await readFile(project.file('a/x.txt'), 'utf8')).toBe('old');
  expect((await stat(project.file('a/x.txt'))).mode & 0o777).toBe(0o600);
  // without another mode, the file keeps its present one
  await files.restore('a/x.txt', await files.look('a/x.txt'), { bytes: bytes('older') });
  expect((await stat(project.file('a/x.txt'))).mode & 0o777).toBe(0o600);
  await files.restore('b.txt', await files.look('b.txt'), null);
  expect(await files.look('b.txt')).toBeNull();
  await files.restore('b.txt', null, null);
  await files.restore('c/d.txt', null, { bytes: bytes('again') });
  expect(Buffer.from(await files.read('c/d.txt')).toString()).toBe('again');
});

it.each<[string, string | null, string | null]>([
  ['was changed', 'x', 'y'],
  ['was made', null, 'y'],
  ['was removed', 'x', null],
])('a file that %s since it was looked at is left as it is', async (_, before, after) => {
  await using project = await Project.create(before === null ? {} : { f: before });
  const files = filesOf(project);
  const seen = await files.look('f');
  if (after === null) await rm(project.file('f'));
  else await writeFile(project.file('f'), after);
  for (const earlier of [null, { bytes: bytes('old') }]) {
    await expect(files.restore('f', seen, earlier)).rejects.toMatchObject({ code: 'file_changed' });
  }
  const now = await readFile(project.file('f'), 'utf8').catch(() => null);
  expect(now).toBe(after);
});

it.each<[string, (project: Project) => Promise<void>, RegExp]>([
  [
    'a link has taken the place of the file',
    async (project) => {
      await rm(project.file('a/f'));
      await symlink('../other', project.file('a/f'));
    },
    /symbolic link/,
  ],
  [
    'a link has taken the place of its folder',
    async (project) => {
      await rename(project.file('a'), project.file('b'));
      await symlink('b', project.file('a'));
    },
    /symbolic link/,
  ],
  [
    'a folder has taken its place',
    async (project) => {
      await rm(project.file('a/f'));
      await mkdir(project.file('a/f'));
    },
    /a folder has taken its place/,
  ],
  [
    'a file has taken the place of its folder',
    async (project) => {
      await rm(project.file('a'), { recursive: true });
      await writeFile(project.file('a'), '');
    },
    /a file has taken the place of a folder/,
  ],
])('nothing is restored where %s', async (_, change, why) => {
  await using project = await Project.create({ 'a/f': 'x', other: 'mine' });
  const files = filesOf(project);
  const seen = await files.look('a/f');
  await change(project);
  const refused = { code: 'path_denied', message: expect.stringMatching(why) as string };
  await expect(files.look('a/f')).rejects.toMatchObject(refused);
  await expect(files.restore('a/f', seen, { bytes: bytes('old') })).rejects.toMatchObject(refused);
  expect(await readFile(project.file('other'), 'utf8')).toBe('mine');
});

it('a folder is removed only if it is an empty folder', async () => {
  await using project = await Project.create({ 'full/f': 'x', file: 'x' });
  await mkdir(project.file('empty'));
  const files = filesOf(project);
  const removed = await Promise.all(
    ['empty', 'full', 'file', 'none'].map(async (path) => await files.removeFolder(path)),
  );
  expect(removed).toEqual([true, false, false, false]);
  expect(await files.missingFolders('full/a/b/f')).toEqual(['full/a', 'full/a/b']);
});
