// The README's first command: from a fresh clone to a finished thread. A shipped directive, which spells out its steps,
// reports on a copy of this repository, so it needs no key and no network. The copy and the user space are temporary: a
// try-out changes neither the clone nor the reader's own space.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = mkdtempSync(path.join(tmpdir(), 'rye-quickstart-'));
const project = path.join(folder, 'project');
const userSpace = path.join(folder, 'user');
const NOT_COPIED = new Set(
  ['.ai', '.git', 'dist', 'node_modules'].map((name) => path.join(root, name)),
);

const prepare = [['scripts/ensure-installed.mjs'], ['scripts/build.mjs']];
const demo = [
  ['run', 'rye/core/project_report', '--input', 'path=.'],
  ['verify', 'thread', '@'],
  ['search', 'knowledge', 'markers'],
];
const END = `
rye ran a signed directive as a thread, verified the thread's signed record and found it with a search.
It worked on a copy of this folder, which is gone. Next, put \`rye\` on your PATH and start in a folder of yours:

  npm link
  mkdir demo && cd demo && rye init && rye run hello --input who=you
`;

/** Runs a script of Node in the clone. Returns true if it succeeds. */
function node(...args) {
  const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit' });
  process.exitCode = status ?? 1;
  return status === 0;
}

/** Runs the demo on a copy of the clone. Returns true if it succeeds. */
function show() {
  cpSync(root, project, { recursive: true, filter: (source) => !NOT_COPIED.has(source) });
  const rye = ['bin/rye.js', '--user-space', userSpace, '-C', project];
  return (
    node(...rye, 'keys', 'init', '--quiet') &&
    demo.every((step) => {
      process.stdout.write(`\n$ rye ${step.join(' ')}\n`);
      return node(...rye, ...step);
    })
  );
}

try {
  if (prepare.every((step) => node(...step)) && show()) process.stdout.write(END);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
