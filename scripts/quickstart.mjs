// The README's first command: from a fresh clone to a finished thread. The report on this repository is made by the
// shipped directive under the literal provider, so it needs no key and no network. Signing key and trust go to a
// temporary user space: a try-out leaves the reader's own alone.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const userSpace = mkdtempSync(path.join(tmpdir(), 'rye-quickstart-'));

const steps = [
  ['scripts/ensure-installed.mjs'],
  ['scripts/build.mjs'],
  ['bin/rye.js', '--user-space', userSpace, 'keys', 'init', '--quiet'],
  ['bin/rye.js', '--user-space', userSpace, 'run', 'rye/core/project_report', '--input', 'path=.'],
];

try {
  for (const step of steps) {
    const { status } = spawnSync(process.execPath, step, { cwd: root, stdio: 'inherit' });
    if (status === 0) continue;
    process.exitCode = status ?? 1;
    break;
  }
} finally {
  rmSync(userSpace, { recursive: true, force: true });
}
