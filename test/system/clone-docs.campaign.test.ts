import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type PageCommand, readConsolePage } from '../helpers/console-page.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

/**
 * Runs what a page tells the reader of a clone to type, in this clone. What is beside it is in a temporary folder. Leaves
 * out the lines of `.ci/run`, such as `npm run check`: they have just been run in the same clone.
 */
function typeIn(folder: string, page: string): void {
  const commands = readConsolePage(page).filter(
    (step): step is PageCommand => step.kind === 'clone',
  );
  expect(commands.length).toBeGreaterThan(0);
  const alreadyRun = readFileSync('.ci/run', 'utf8').split('\n');
  const env = { PATH: process.env['PATH'], HOME: path.join(folder, 'home') };
  for (const { command } of commands) {
    const typed = command.replace(/\s+#.*$/, '');
    if (alreadyRun.includes(typed)) continue;
    const moved = typed.replaceAll(/\.\.(?=\/|$)/g, folder);
    execFileSync('sh', ['-ec', moved], { env, stdio: 'pipe' });
  }
}

it.each(['docs/contributing.md', 'docs/library.md'])('%s works in a clone', (page) => {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-clone-')));
  onTestFinished(() => removeFolder(folder));
  for (const name of ['home', 'program']) mkdirSync(path.join(folder, name));
  typeIn(folder, page);
});

it('CI runs exactly the commands that the README shows to the reader of a clone', () => {
  const shown = readConsolePage('README.md').flatMap((step) =>
    step.kind === 'clone' ? [step.command.replace(/\s+#.*$/, '')] : [],
  );
  const printed = execFileSync(process.execPath, ['scripts/readme-commands.mjs']).toString();
  expect(printed.trim().split('\n')).toEqual(shown);
  expect(shown).toEqual(['npm run quickstart', 'npm test']);
  expect(readFileSync('.ci/run', 'utf8')).toContain('node scripts/readme-commands.mjs');
});
