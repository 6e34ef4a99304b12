// The README's first command: from a fresh clone to a finished thread. The report on this repository is made by the
// shipped directive under the literal provider, so it needs no key and no network. It runs on a copy, because the folder of
// rye itself can't be a project, and with a temporary user space: a try-out leaves the reader's own alone.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = mkdtempSync(path.join(tmpdir(), 'rye-quickstart-'));
const project = path.join(folder, 'rye');
const userSpace = path.join(folder, 'user');
const rye = ['bin/rye.js', '--user-space', userSpace, '-C', project];
const NOT_COPIED = new Set(
  ['.ai', '.git', 'dist', 'node_modules'].map((name) => path.join(root, name)),
);

const steps = [
  ['scripts/ensure-installed.mjs'],
  ['scripts/build.mjs'],
  [...rye, 'keys', 'init', '--quiet'],
  [...rye, 'run', 'rye/core/project_report', '--input', 'path=.'],
  [...rye, 'verify', 'thread', 'project_report'],
  [...rye, 'search', 'knowledge', 'markers'],
];

try {
  cpSync(root, project, { recursive: true, filter: (source) => !NOT_COPIED.has(source) });
  for (const step of steps) {
    const { status } = spawnSync(process.execPath, step, { cwd: root, stdio: 'inherit' });
    if (status === 0) continue;
    process.exitCode = status ?? 1;
    break;
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
