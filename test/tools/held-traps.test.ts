import {
  existsSync,
  lstatSync,
  mkdtempSync,
  realpathSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { holdNewTraps } from '../../src/kernel/tools/held-traps.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

it('a trap that is new, or a link in the place of another link, is moved away; what was there stays', () => {
  const project = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-held-')));
  onTestFinished(() => removeFolder(project));
  const at = (name: string): string => path.join(project, name);
  symlinkSync('mine', at('.gdbinit'));
  symlinkSync('mine', at('.pdbrc'));
  writeFileSync(at('.envrc'), 'export A=1\n');
  const hold = holdNewTraps(project, project);
  expect(hold()).toBeUndefined();
  symlinkSync('other', at('made'));
  renameSync(at('made'), at('.gdbinit'));
  writeFileSync(at('.lldbinit'), 'run\n');
  writeFileSync(at('notes.txt'), 'plain\n');
  const notice = hold();
  expect(notice).toMatch(/"\.gdbinit".*"\.lldbinit"|"\.lldbinit".*"\.gdbinit"/);
  expect(notice).not.toMatch(/pdbrc|envrc|notes/);
  expect(
    ['.gdbinit', '.lldbinit', '.envrc', 'notes.txt'].map((name) => existsSync(at(name))),
  ).toEqual([false, false, true, true]);
  expect(lstatSync(at('.pdbrc')).isSymbolicLink()).toBe(true);
});
