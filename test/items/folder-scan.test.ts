import { mkdirSync, mkdtempSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { scanFolders } from '../../src/features/search/scan-fs.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

const LATER = Date.now() + 60_000;
let root = '';

beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), 'rye-folders-'));
  for (const name of ['a', 'b/c']) mkdirSync(path.join(root, name), { recursive: true });
  for (const name of ['a/1.md', 'b/2.md', 'b/c/3.md']) writeFileSync(path.join(root, name), name);
});
afterEach(() => removeFolder(root));

function names(paths: Iterable<string>): string[] {
  return [...paths].map((file) => path.relative(root, file)).toSorted();
}

test('everything is new at first, and nothing afterwards', () => {
  const first = scanFolders(root, new Map(), LATER);
  expect(names(first.files)).toEqual(['a/1.md', 'b/2.md', 'b/c/3.md']);
  expect(names(first.changed.keys())).toEqual(['', 'a', 'b', 'b/c']);
  expect(scanFolders(root, first.changed, LATER)).toEqual({
    files: [],
    changed: new Map(),
    gone: [],
  });
});

test('a file that is added, replaced or removed brings up its own folder only', () => {
  const { changed: known } = scanFolders(root, new Map(), LATER);
  const changes: (() => void)[] = [
    () => writeFileSync(path.join(root, 'b/c/4.md'), ''),
    () => {
      writeFileSync(path.join(root, 'b/c/new'), 'replaced');
      renameSync(path.join(root, 'b/c/new'), path.join(root, 'b/c/3.md'));
    },
    () => rmSync(path.join(root, 'b/c/4.md')),
  ];
  for (const [at, change] of changes.entries()) {
    change();
    utimesSync(path.join(root, 'b/c'), at + 1, at + 1); // a separate tick
    expect(names(scanFolders(root, known, LATER).changed.keys())).toEqual(['b/c']);
  }
});

test('a removed folder is gone, with all below it', () => {
  const { changed: known } = scanFolders(root, new Map(), LATER);
  removeFolder(path.join(root, 'b'));
  utimesSync(root, 1, 1);
  expect(names(scanFolders(root, known, LATER).gone)).toEqual(['b', 'b/c']);
});

test('a folder that changed just now is looked at again', () => {
  const { changed } = scanFolders(root, new Map(), Date.now());
  expect(names(scanFolders(root, changed, Date.now()).changed.keys())).toEqual([
    '',
    'a',
    'b',
    'b/c',
  ]);
});

test('a tree that is not there has nothing', () => {
  expect(scanFolders(path.join(root, 'none'), new Map(), LATER)).toEqual({
    files: [],
    changed: new Map(),
    gone: [],
  });
});
