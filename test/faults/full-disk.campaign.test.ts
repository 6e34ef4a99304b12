import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, type WireServer } from '../helpers/wire-server.ts';
import { temporaryWorkspace, workspace } from '../helpers/workspace.ts';
import { marksModel } from './marks.ts';
import { smallDisk } from './small-disk.ts';

const BROKEN_DISK = path.resolve(import.meta.dirname, 'broken-disk.mjs');

let program: string;
let server: WireServer;
let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;

beforeAll(async () => {
  program = path.join(await cliPackage(), 'bin', 'rye.js');
  server = await startWireServer(marksModel);
  prepared = await temporaryWorkspace({ fixture: 'faults' });
});

afterAll(async () => {
  prepared.remove();
  await server.close();
});

function run(argv: readonly string[], cwd: string, env: Readonly<Record<string, string>>) {
  const [command = '', ...rest] = argv;
  const { status, signal, stdout, stderr } = spawnSync(command, rest, {
    cwd,
    env: { PATH: process.env['PATH'], ...env },
    encoding: 'utf8',
  });
  return { code: status, signal, stdout, stderr };
}

/** Unfinished files below a folder. */
function unfinished(folder: string): readonly string[] {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  return names.filter((name) => path.basename(name).startsWith('.rye-'));
}

describe('rye sign', () => {
  it.each([{ mounted: true }, { mounted: false }])(
    'leaves a file as it was and fails when the disk takes a part of it ($mounted)',
    async (kind) => {
      const disk = smallDisk(400, kind);
      const project = path.join(disk.folder, 'p');
      cpSync(prepared.project, project, { recursive: true });
      const helper = readFileSync(path.join(project, '.ai/directives/helper.md'), 'utf8');
      const [, body = ''] = /^[^\n]*\n([\s\S]*)$/.exec(helper) ?? [];
      const file = path.join(project, '.ai/directives/helper.md');
      const text = `${body}\n${'A line of a long directive that a person wrote.\n'.repeat(1400)}`;
      writeFileSync(file, text);
      disk.leave(24);
      const argv = disk.command([process.execPath, program, 'sign', 'directive', 'helper']);
      const { code, stderr } = run(argv, project, { HOME: prepared.home });
      expect(stderr).toContain('[storage_failed]');
      expect(stderr).toContain(disk.code);
      expect(stderr).toContain('helper.md');
      expect(code).toBe(1);
      expect(readFileSync(file, 'utf8')).toBe(text);
      expect(unfinished(project)).toEqual([]);
      disk.leave(120);
      const again = disk.command([process.execPath, program, 'sign', 'directive', 'helper']);
      expect(run(again, project, { HOME: prepared.home }).code).toBe(0);
      expect(readFileSync(file, 'utf8').endsWith(text)).toBe(true);
    },
  );

  it.each([
    { at: 'write', code: 'EIO' },
    { at: 'write', code: 'EDQUOT' },
    { at: 'write', code: 'EROFS' },
    { at: 'sync', code: 'EIO' },
    { at: 'sync', code: 'ENOSPC' },
  ])('leaves a file as it was when the system refuses to $at it with $code', async (fault) => {
    const { project, home } = await workspace();
    const file = path.join(project, '.ai/directives/example.md');
    const text = readFileSync(file, 'utf8').replace('How many', 'How very many');
    writeFileSync(file, text);
    const argv = [
      process.execPath,
      '--import',
      BROKEN_DISK,
      program,
      'sign',
      'directive',
      'example',
    ];
    const { code, stderr } = run(argv, project, {
      HOME: home,
      RYE_TEST_DISK: JSON.stringify({ name: '.tmp', after: 0, ...fault }),
    });
    expect(code).toBe(1);
    expect(stderr).toContain(fault.code);
    expect(readFileSync(file, 'utf8')).toBe(text);
    expect(unfinished(project)).toEqual([]);
  });
});

describe('a command that writes a file', () => {
  it.each([
    { what: 'keys rotate', args: ['keys', 'rotate', '--yes'] },
    { what: 'keys trust', args: ['keys', 'trust', 'other.pem', '--yes'] },
    { what: 'init --force', args: ['init', '--force'] },
    { what: 'run --output', args: ['run', 'helper', '--thread-id', 'o', '--output', 'kept.txt'] },
    { what: 'run --record', args: ['run', 'helper', '--thread-id', 'r', '--record', 'kept.txt'] },
    {
      what: 'threads export',
      args: ['threads', 'export', 'done', '--format', 'md', '--out', 'kept.txt'],
    },
  ])(
    '$what leaves every file that it would have replaced as it was when the disk is full',
    async ({ args }) => {
      const { project, home, rye } = await workspace({ fixture: 'faults' });
      const env = { HOME: home, ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
      await rye(['run', 'helper', '--thread-id', 'done'], { env });
      const pem = run(['openssl', 'genpkey', '-algorithm', 'ed25519'], project, {}).stdout;
      writeFileSync(path.join(project, 'private.pem'), pem);
      const shown = run(['openssl', 'pkey', '-in', 'private.pem', '-pubout'], project, {}).stdout;
      writeFileSync(path.join(project, 'other.pem'), shown);
      writeFileSync(path.join(project, 'kept.txt'), 'what was there before\n');
      const kept = (): readonly string[] =>
        [home, project].flatMap((root) =>
          readdirSync(root, { recursive: true, withFileTypes: true, encoding: 'utf8' })
            .filter((entry) => entry.isFile() && !entry.parentPath.includes('/state/'))
            .map((entry) => path.join(entry.parentPath, entry.name))
            .map((file) => `${file} ${readFileSync(file, 'base64')}`),
        );
      const before = kept();
      const { code, stderr } = run(
        [process.execPath, '--import', BROKEN_DISK, program, ...args],
        project,
        {
          ...env,
          RYE_TEST_DISK: JSON.stringify({ name: '.tmp', code: 'ENOSPC', after: 0 }),
        },
      );
      expect(stderr).toMatch(/ENOSPC/);
      expect(code).toBe(1);
      expect(kept()).toEqual(before);
    },
  );
});
