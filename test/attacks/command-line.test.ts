import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { type CliResult, runCli } from '../helpers/run-cli.ts';
import { directive } from './lab.ts';

let base: string;
let project: string;

const rye = (args: readonly string[], env: Record<string, string> = {}): Promise<CliResult> =>
  runCli(args, { cwd: project, env });

function write(name: string, text: string): void {
  const target = path.join(project, '.ai', name);
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, text);
}

beforeAll(async () => {
  base = mkdtempSync(path.join(tmpdir(), 'rye-attack-cli-'));
  project = path.join(base, 'project');
  mkdirSync(project);
  await rye(['init']);
});
afterAll(() => {
  removeFolder(base);
});

describe('refusals at the command line', () => {
  it.each([
    // Requirement: direct-directive-unchecked
    { name: 'an unsigned directive', args: ['run', 'job'], code: 'unsigned', exit: 3 },
    {
      name: 'a path for an id',
      args: ['run', '../../etc/passwd'],
      code: 'file_not_found',
      exit: 6,
    },
    {
      name: 'a parent that does not exist',
      args: ['run', 'hello', '--parent', 'nobody-1'],
      code: 'thread_not_found',
      exit: 6,
    },
    { name: 'a thread by a path', args: ['verify', 'thread', '../x'], code: 'thread', exit: 6 },
    {
      name: 'a shell without acknowledgement',
      args: ['execute', 'tool', 'rye/bash', '--params', '{"command": "id"}'],
      code: 'acknowledge_required',
      exit: 4,
    },
    {
      name: 'a file outside of the project',
      args: ['execute', 'tool', 'rye/file-system/read', '--params', '{"path": "/etc/passwd"}'],
      code: 'path_denied',
      exit: 1,
    },
    { name: 'a second key', args: ['keys', 'init'], code: 'already_exists', exit: 2 },
    {
      name: 'a limit that is none',
      args: ['run', 'hello', '--limit', 'turns=-1'],
      code: 'invalid_limit',
      exit: 2,
    },
  ])(
    '$name: $code, exit $exit',
    async ({ args, code, exit }) => {
      write('directives/job.md', directive('job'));
      const result = await rye(args);
      expect(`${result.stdout}${result.stderr}`).toContain(code);
      expect(result.code).toBe(exit);
      expect(`${result.stdout}${result.stderr}`).not.toMatch(/^\s+at .*\(/m);
    },
    60_000,
  );

  it('an unsafe key: key_unsafe, exit 3', async () => {
    const key = path.join(project, '.home/.ai/config/keys/signing/private_key.pem');
    chmodSync(key, 0o644);
    const result = await rye(['run', 'hello']);
    chmodSync(key, 0o600);
    expect(result).toMatchObject({ code: 3 });
    expect(result.stderr).toContain('key_unsafe');
  });

  it('passes no key in arguments or the environment of its processes', async () => {
    const secret = 'sk-ant-process-list-0123456789';
    const command = 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" " "; env';
    const args = ['execute', 'tool', 'rye/bash', '--params', JSON.stringify({ command })];
    const { stdout } = await rye([...args, '--acknowledge', 'elevated'], {
      ANTHROPIC_API_KEY: secret,
    });
    expect(stdout).toContain('RYE_PROJECT=');
    expect(stdout).not.toContain(secret);
    expect(stdout).not.toContain('***');
  });

  it('reads a tool without the python3 that a project brings', async () => {
    write('tools/t.py', '__tool_description__ = "A tool."\nprint("{}")\n');
    const program = path.join(project, 'python3');
    writeFileSync(program, `#!/bin/sh\ntouch ${project}/ran\n`, { mode: 0o755 });
    const { stdout } = await rye(['validate'], { PATH: `.:${process.env['PATH'] ?? ''}` });
    rmSync(program);
    expect(stdout).toContain('t.py');
    expect(readdirSync(project)).not.toContain('ran');
  });

  it('registers nothing when it refuses', () => {
    const threads = path.join(project, '.ai/state/threads');
    const made = readdirSync(path.join(project, '.ai')).includes('state')
      ? readdirSync(threads)
      : [];
    expect(made.filter((name) => name.startsWith('job'))).toEqual([]);
  });
});
