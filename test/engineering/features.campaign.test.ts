import { execFile } from 'node:child_process';
import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';

const run = promisify(execFile);
const ROOT = path.resolve(import.meta.dirname, '../..');
const FEATURES = readdirSync(path.join(ROOT, 'src', 'features'), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name);
const PARTS = [
  '.ai',
  'bin',
  'package.json',
  'scripts',
  'src',
  'startup',
  'testing',
  'tsconfig.build.json',
  'tsconfig.json',
];

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'rye-features-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A copy of the sources without a feature: its folder is gone, and its one line in the list of features. */
function without(feature: string): string {
  const copy = path.join(folder, feature);
  for (const part of PARTS)
    cpSync(path.join(ROOT, part), path.join(copy, part), { recursive: true });
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(copy, 'node_modules'));
  rmSync(path.join(copy, 'src', 'features', feature), { recursive: true });
  const list = path.join(copy, 'src', 'features', 'all.ts');
  const lines = readFileSync(list, 'utf8').split('\n');
  const kept = lines.filter((line) => !line.includes(`'./${feature}/`));
  expect(lines.length - kept.length).toBe(1);
  writeFileSync(list, kept.join('\n'));
  return copy;
}

it.each(FEATURES)(
  'without %s, rye compiles and does what the quickstart shows',
  async (feature) => {
    const copy = without(feature);
    const node = async (...args: readonly string[]) =>
      await run(process.execPath, args, { cwd: copy, env: { ...process.env, HOME: copy } });
    await node(
      path.join(ROOT, 'node_modules/@typescript/native/bin/tsc'),
      '--noEmit',
      '-p',
      'tsconfig.build.json',
    );
    const project = path.join(copy, 'demo');
    cpSync(path.join(ROOT, 'docs'), path.join(project, 'docs'), { recursive: true });
    const rye = async (...args: readonly string[]) =>
      await node(
        'scripts/dev.mjs',
        '--user-space',
        path.join(copy, 'user'),
        '-C',
        project,
        ...args,
      );
    await rye('run', 'rye/core/project_report', '--input', 'path=docs');
    expect((await rye('verify', 'thread', '@')).stdout).toContain('verified');
    const found = rye('search', 'knowledge', 'markers');
    if (feature === 'search') await expect(found).rejects.toMatchObject({ code: 2 });
    else expect((await found).stdout).toContain('project_report');
  },
);
