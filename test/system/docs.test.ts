import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { missingLines, type PageFile, readConsolePage } from '../helpers/console-page.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';

const DOCS = path.resolve(import.meta.dirname, '../../docs');
/** Each runs in a separate folder; all but the tutorial start in a project. */
const PAGES = [
  'tutorial',
  'directives',
  'tools',
  'threads',
  'sessions',
  'hooks',
  'trust',
  'approvals',
  'security',
  'providers',
  'library',
];

let folder = '';
beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'rye-tutorial-'));
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  for (const name of ['bin', 'home', 'project', 'node_modules']) mkdirSync(path.join(folder, name));
  // as `npm install rye` leaves it, for the examples of the library
  const packages = path.join(folder, 'node_modules');
  symlinkSync(path.dirname(path.dirname(program)), path.join(packages, 'rye'));
  mkdirSync(path.join(packages, '.bin'));
  symlinkSync(
    path.resolve('node_modules/vitest/vitest.mjs'),
    path.join(packages, '.bin', 'vitest'),
  );
  const launcher = path.join(folder, 'bin', 'rye');
  writeFileSync(launcher, `#!/bin/sh\nexec '${process.execPath}' '${program}' "$@"\n`);
  chmodSync(launcher, 0o755);
});
// a thread that a page started may still write its last files
afterEach(() => remove(10));

/** Retries, because the process of a thread may still write its last files; `rmSync` does not remove files created meanwhile. */
function remove(tries: number): void {
  try {
    removeFolder(folder);
  } catch (error) {
    if (tries === 0) throw error;
    remove(tries - 1);
  }
}

/** Returns both output streams of the line, run in the same folder as the lines before. */
async function type(command: string): Promise<string> {
  const env = { PATH: `${folder}/bin:${process.env['PATH']}`, HOME: `${folder}/home` };
  const options = { cwd: path.join(folder, 'project'), env };
  return await new Promise((resolve) => {
    execFile('sh', ['-c', `{ ${command}\n} 2>&1`], options, (_error, stdout) => resolve(stdout));
  });
}

function save({ path: name, content }: PageFile): void {
  const target = path.join(folder, 'project', name);
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, content);
}

// Requirement: broken-documentation
describe('the documentation is true word for word', () => {
  it.each(PAGES)(
    'docs/%s.md',
    async (page) => {
      const steps = readConsolePage(path.join(DOCS, `${page}.md`));
      expect(steps.filter(({ kind }) => kind === 'command').length).toBeGreaterThan(1);
      if (page !== 'tutorial') await type('rye init');
      const surprises: {
        line: number;
        command: string;
        missing: readonly string[];
        output: string;
      }[] = [];
      for (const step of steps) {
        if (step.kind === 'file') {
          save(step);
          continue;
        }
        const output = await type(step.command);
        const missing = missingLines(output, step.expected);
        if (missing.length > 0)
          surprises.push({ line: step.line, command: step.command, missing, output });
      }
      expect(surprises).toEqual([]);
    },
    120_000,
  );
});
