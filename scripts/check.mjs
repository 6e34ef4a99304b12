// Runs the checkers at the same time: `npm run check`, or `npm run check -- --changed` for the files that this branch
// changes. Prints the output of those that fail, the seconds of each, and exits with 1 unless all pass.
import { execFileSync, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const LINTED = ['src', 'test', 'testing', 'scripts', 'startup', 'bench', 'bin'];
const CODE = /\.(?:[cm]?js|ts)$/;

const isText = (file) =>
  [...LINTED, 'docs', '.ai', 'README.md', 'AGENTS.md'].includes(file.split('/')[0]);

const program = (name, file) => [process.execPath, path.join(ROOT, 'node_modules', name, file)];
const TSC = program('@typescript/native', 'bin/tsc');
const BIOME = program('@biomejs/biome', 'bin/biome');
const OXLINT = program('oxlint', 'bin/oxlint');

/** The checkers of the whole tree, the longest first. */
export const ALL = [
  { name: 'lint', command: [...OXLINT, ...LINTED] },
  { name: 'types', command: [...TSC, '--noEmit'] },
  { name: 'dead code', command: program('knip', 'bin/knip.js') },
  { name: 'imports', command: ['npm', 'run', '--silent', 'check:imports'] },
  { name: 'format', command: [...BIOME, 'ci', '.'] },
  { name: 'page types', command: [...TSC, '-p', 'src/features/html/client'] },
  { name: 'words', command: [process.execPath, 'scripts/check-words.mjs'] },
  { name: 'budgets', command: [process.execPath, 'scripts/check-budgets.mjs'] },
];

const named = (name, command, files) =>
  files.length === 0 ? [] : [{ name, command: [...command, ...files] }];

/** The checkers that take single files, for these files, and the types. */
export function checksOf(files) {
  const code = files.filter((file) => CODE.test(file) && LINTED.includes(file.split('/')[0]));
  return [
    ...named('lint', OXLINT, code),
    ...ALL.filter(({ name }) => name === 'types' && code.length > 0),
    ...named('format', [...BIOME, 'ci', '--no-errors-on-unmatched'], files),
    ...named('words', [process.execPath, 'scripts/check-words.mjs'], files.filter(isText)),
  ];
}

/** Runs these checkers, at most one a core. Returns true if all of them pass. */
export async function runChecks(
  checks,
  { cwd = ROOT, write = (text) => process.stdout.write(text) } = {},
) {
  const waiting = [...checks];
  let passes = true;
  const work = async () => {
    for (let check = waiting.shift(); check !== undefined; check = waiting.shift()) {
      const { name, command } = check;
      const begun = performance.now();
      const { status, output } = await outcomeOf(command, cwd);
      const seconds = ((performance.now() - begun) / 1000).toFixed(1);
      if (status !== 0) passes = false;
      write(
        status === 0 ? `ok   ${name} ${seconds} s\n` : `FAIL ${name} ${seconds} s\n${output}\n`,
      );
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, work));
  return passes;
}

/** Runs a program to its end. One that can't be started or that a signal ends has no status. */
async function outcomeOf([file, ...args], cwd) {
  return await new Promise((resolve) => {
    const child = spawn(file, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        output += text;
      });
    }
    child.once('error', ({ message }) => resolve({ status: null, output: message }));
    child.once('close', (status, signal) => {
      resolve({ status, output: signal === null ? output : `${output}ended by ${signal}\n` });
    });
  });
}

const git = (...args) =>
  execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });

/** Files that differ from the commit where this branch left `main`, and new ones. */
function changedFiles() {
  const base = ['main', 'origin/main'].map((branch) => {
    try {
      return git('merge-base', 'HEAD', branch).trim();
    } catch {
      return undefined;
    }
  });
  const from = base.find((commit) => commit !== undefined) ?? 'HEAD';
  const names = [
    ...git('diff', '--name-only', '-z', '--relative', from).split('\0'),
    ...git('ls-files', '--others', '--exclude-standard', '-z').split('\0'),
  ];
  return names.filter((name) => name !== '' && existsSync(path.join(ROOT, name)));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const begun = performance.now();
  const checks = process.argv.includes('--changed') ? checksOf(changedFiles()) : ALL;
  const passes = await runChecks(checks);
  const seconds = ((performance.now() - begun) / 1000).toFixed(1);
  process.stdout.write(`check: ${passes ? 'passed' : 'failed'} in ${seconds} s\n`);
  process.exitCode = passes ? 0 : 1;
}
