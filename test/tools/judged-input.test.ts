import { mkdirSync, mkdtempSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { judgedInput, nameOnDisk } from '../../src/kernel/tools/judged-input.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

it('a name has the letter case of the disk where the file system ignores case', () => {
  const names = ['.env', 'Docs'];
  const folding = (name: string): boolean =>
    names.some((one) => one.toLowerCase() === name.toLowerCase());
  const exact = (name: string): boolean => names.includes(name);
  for (const [name, has, expected] of [
    ['.ENV', folding, '.env'],
    ['.Env', folding, '.env'],
    ['docs', folding, 'Docs'],
    ['Docs', folding, 'Docs'],
    ['new', folding, 'new'],
    ['.ENV', exact, '.ENV'],
    ['.env', exact, '.env'],
  ] as const) {
    expect(
      nameOnDisk(name, has, () => names),
      name,
    ).toBe(expected);
  }
});

it('paths are judged by where they lead, one by one in a list; other members are left as they are', async () => {
  const projectPath = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-judged-')));
  onTestFinished(() => removeFolder(projectPath));
  mkdirSync(path.join(projectPath, 'real'));
  writeFileSync(path.join(projectPath, 'real/key'), '');
  symlinkSync('real', path.join(projectPath, 'link'));
  const judging = { projectPath, allow: [], threadId: 't', listsFiles: false };
  const given = { path: 'link/key', files: ['a', 'link/key'], command: 'cat link/key', file: 7 };
  expect((await judgedInput('team/copy', given, judging)).input).toEqual({
    path: 'real/key',
    files: ['a', 'real/key'],
    command: 'cat link/key',
    file: 7,
  });
  const plain = { paths: ['a', 'real/key'] };
  expect((await judgedInput('team/copy', plain, judging)).input).toBe(plain);
});

it('a search that opens more files than can be listed is judged as one that opens any', async () => {
  const projectPath = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-judged-')));
  onTestFinished(() => removeFolder(projectPath));
  const judging = { projectPath, allow: [], threadId: 't', listsFiles: true };
  const judged = async (listsFiles = true) =>
    await judgedInput('rye/file-system/grep', { pattern: 'x' }, { ...judging, listsFiles });
  for (let at = 0; at < 20_000; at += 1) writeFileSync(path.join(projectPath, `f${at}`), '');
  expect((await judged()).files).toHaveLength(20_000);
  writeFileSync(path.join(projectPath, 'more'), '');
  expect((await judged()).files).toBeNull();
  expect(await judged(false)).not.toHaveProperty('files');
});
