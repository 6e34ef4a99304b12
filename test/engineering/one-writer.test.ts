import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';

const SOURCES = path.resolve(import.meta.dirname, '../../src');
const FS_IMPORT = /^import (?:type )?(.+?) from 'node:fs(?:\/promises)?';$/gms;

/** Calls that write or rename files; a namespace import of the file system could do all of it. */
const WRITER =
  /^(?:writeFile|appendFile|copyFile|cp|rename|link|createWriteStream|write|writev|f?truncate)(?:Sync)?$|\*/;
const METHOD = /\.(?:writeFile|appendFile|createWriteStream)\(/g;

/** Files that write directly, with the reason. */
const EXCEPTIONS: Readonly<Record<string, readonly string[]>> = {
  // the one writer
  'kernel/disk/whole-file.ts': ['ftruncateSync', 'linkSync', 'renameSync', 'writeSync'],
  // the log takes a half-written batch off again
  'kernel/storage/files/log-store.ts': ['ftruncateSync'],
  'kernel/storage/files/log-quarantine.ts': ['ftruncateSync'],
  // the entry of a running thread grows with the answer; its end replaces it whole
  'kernel/threads/thread-files-fs.ts': ['writeSync'],
  // the lease keeps its file open to see whether it was taken
  'kernel/storage/files/lease.ts': ['linkSync', 'renameSync', 'writeSync'],
  // copies of verified bytes in a private folder that is removed after the call
  'kernel/tools/item/item-tool.ts': ['writeFile'],
  'features/skills/skill-tools.ts': ['writeFile'],
  // a private copy of the tree under review, removed afterwards
  'features/rye-os/review.ts': ['writeFile'],
  // three versions of a text for git's own merge, in a private folder that is removed
  'kernel/app/git.ts': ['writeFileSync'],
  // the server and the workers of a try, in private folders that are removed
  'features/fleet/embedded-postgres.ts': ['cpSync', 'writeFileSync'],
  'features/fleet/try.ts': ['writeFileSync'],
  // the text under edit, in a private folder that is removed
  'faces/ui/editor-program.ts': ['writeFileSync'],
  // the summary of a job, whose file is the runner's
  'faces/cli/ci-report.ts': ['appendFileSync'],
  // one line into the open output of a background process
  'kernel/threads/family/process-fs.ts': ['writeSync'],
  // the file of heads is put aside as it is
  'kernel/threads/heads-fs.ts': ['renameSync'],
  // what a command made is moved out of reach as it is
  'kernel/tools/held-traps.ts': ['renameSync'],
  // its own environment, in its own memory
  'kernel/app/hidden-environment.ts': ['writeSync'],
  // the terminal
  'kernel/app/passphrase.ts': ['writeSync'],
  'faces/ui/browser/terminal.ts': ['writeSync'],
  'faces/ui/keyboard.ts': ['writeSync'],
};

it('the sources write files through src/kernel/disk alone', () => {
  const found: Record<string, readonly string[]> = {};
  for (const name of readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.ts')) continue;
    const text = readFileSync(path.join(SOURCES, name), 'utf8');
    const imported = [...text.matchAll(FS_IMPORT)]
      .flatMap(([, names = '']) => names.replaceAll(/[{}]/g, '').split(','))
      .map((one) => one.trim().replace(/ as .*/, ''));
    const writers = imported.filter((one) => WRITER.test(one));
    const methods = [...text.matchAll(METHOD)].map(([call]) => call);
    if (writers.length + methods.length > 0) found[name] = [...writers, ...methods].toSorted();
  }
  expect(found).toEqual(EXCEPTIONS);
});
