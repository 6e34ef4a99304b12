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

/** Runs command lines one after the other in one process, from the sources, and prints each exit status. */
const DRIVER = `
import { tsImport } from 'tsx/esm/api';
import { definitions } from './define.mjs';
for (const [name, json] of Object.entries(await definitions())) globalThis[name] = JSON.parse(json);
const { createProcessIo, main } = await tsImport('../src/faces/cli/main.ts', import.meta.url);
for (const words of JSON.parse(process.argv[2])) {
  process.stdout.write(words.join(' ') + ': exit ' + (await main(words, createProcessIo())) + '\\n');
}
process.exit();
`;

it.each(FEATURES)(
  'without %s, rye compiles and does what the quickstart shows',
  async (feature) => {
    const copy = without(feature);
    const node = async (...args: readonly string[]) =>
      await run(process.execPath, args, {
        cwd: copy,
        env: { ...process.env, HOME: copy },
        timeout: 120_000,
      });
    await node(
      path.join(ROOT, 'node_modules/@typescript/native/bin/tsc'),
      '--noEmit',
      '-p',
      'tsconfig.build.json',
    );
    const project = path.join(copy, 'demo');
    cpSync(path.join(ROOT, 'docs'), path.join(project, 'docs'), { recursive: true });
    writeFileSync(path.join(copy, 'scripts', 'driver.mjs'), DRIVER);
    const place = ['--user-space', path.join(copy, 'user'), '-C', project];
    const lines = [
      ['run', 'rye/core/project_report', '--input', 'path=docs', ...place],
      ['verify', 'thread', '@', ...place],
      ['search', 'knowledge', 'markers', ...place],
    ];
    const { stdout } = await node('scripts/driver.mjs', JSON.stringify(lines));
    const ends = [...stdout.matchAll(/^\w+ .*: exit (\d+)$/gm)].map(([, status]) => status);
    expect(ends).toEqual(['0', '0', feature === 'search' ? '2' : '0']);
    if (feature !== 'search') expect(stdout).toContain('agent/threads/rye/core/project_report');
  },
);
