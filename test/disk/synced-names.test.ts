import fs, { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import {
  appendLine,
  createWhole,
  moveAside,
  moveFolder,
  writeWhole,
} from '../../src/kernel/disk/whole-file.ts';
import { quarantineTail } from '../../src/kernel/storage/files/log-quarantine.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

/** Returns the names of the files and folders that are synced meanwhile, in order; an unfinished file is `…`. */
function syncedBy(act: () => void): readonly string[] {
  const names: string[] = [];
  const real = fs.fsyncSync;
  fs.fsyncSync = (fd) => {
    const name = path.basename(fs.readlinkSync(`/proc/self/fd/${fd}`));
    names.push(name.startsWith('.rye-') ? '…' : name);
    real(fd);
  };
  syncBuiltinESMExports();
  try {
    act();
  } finally {
    fs.fsyncSync = real;
    syncBuiltinESMExports();
  }
  return names;
}

const LOG = 'transcript.jsonl';

it.each<[string, (place: (name: string) => string) => void, readonly string[]]>([
  ['a file and its name', (place) => writeWhole(place('new'), 'x'), ['…', 'folder']],
  ['a file that is replaced', (place) => writeWhole(place('old'), 'x'), ['…', 'folder']],
  ['the content alone', (place) => writeWhole(place('new'), 'x', { sync: 'content' }), ['…']],
  ['what can be made again', (place) => writeWhole(place('new'), 'x', { sync: 'none' }), []],
  ['a file that must be new', (place) => void createWhole(place('new'), 'x'), ['…', 'folder']],
  ['one that is not new', (place) => void createWhole(place('old'), 'x'), ['…']],
  ['a new name', (place) => moveAside(place('old'), place('kept')), ['folder']],
  ['no name of nothing', (place) => moveAside(place('none'), place('kept')), []],
  [
    'the new name of a folder',
    (place) => void moveFolder(place('sub'), place('other')),
    ['folder'],
  ],
  ['no line of a list that is only a memory', (place) => appendLine(place('old'), 'x\n'), []],
  [
    'the end of a log before it is cut off',
    (place) => quarantineTail(place(LOG), 3),
    ['…', 'folder', LOG],
  ],
  ['nothing of a log that has no such end', (place) => quarantineTail(place(LOG), 6), []],
])('the disk has, before the call returns: %s', (_, act, names) => {
  const root = mkdtempSync(path.join(tmpdir(), 'rye-synced-'));
  onTestFinished(() => removeFolder(root));
  const folder = path.join(root, 'folder');
  mkdirSync(path.join(folder, 'sub'), { recursive: true });
  writeFileSync(path.join(folder, 'old'), 'old');
  writeFileSync(path.join(folder, LOG), 'abcdef');
  expect(syncedBy(() => act((name) => path.join(folder, name)))).toEqual(names);
  expect(readFileSync(path.join(folder, LOG), 'utf8')).toBe(names.includes(LOG) ? 'abc' : 'abcdef');
});
