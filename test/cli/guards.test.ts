import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const HOOKS = `hooks:
  - id: no_greetings
    event: tool_gate
    action: { control: fail, error: "greeting refused" }
`;
const HOOKS_FILE = '.ai/config/agent/hooks.yaml';

const write = ({ project }: Workspace, name: string, text: string): void =>
  writeFileSync(path.join(project, name), text);

const read = ({ project }: Workspace, name: string): string =>
  readFileSync(path.join(project, name), 'utf8');

/** A project with a signed guard that blocks `hello`. */
async function guardedWorkspace(): Promise<Workspace> {
  const made = await workspace();
  write(made, HOOKS_FILE, HOOKS);
  expect((await made.rye(['sign', 'config', 'agent/hooks'])).code).toBe(0);
  expect((await made.rye(['run', 'hello'])).code).toBe(1);
  return made;
}

/** Removes the first line, like `sed -i 1d`. */
const unsign = (made: Workspace): void =>
  write(made, HOOKS_FILE, read(made, HOOKS_FILE).replace(/^.*\n/, ''));

describe('rye init', () => {
  it('pins what it signs, in the project and for the user alone', async () => {
    const { project, home, rye } = await workspace();
    expect(JSON.parse(read({ project } as Workspace, '.ai/lock.json'))).toMatchObject({
      serial: 1,
      files: [{ type: 'config', id: 'agent/resilience' }],
    });
    const memory = path.join(home, '.ai/state/projects');
    expect(statSync(memory).mode & 0o777).toBe(0o700);
    expect((await rye(['lock'])).stdout).toContain('1 power file pinned, lock version 1');
  });
});

describe('a power file that lost its signature', () => {
  it.each([['-q'], ['--async'], ['--json'], ['--dry-run'], ['--output-format=stream-json']])(
    'refuses rye run %s with the commands that accept it',
    async (flag) => {
      const made = await guardedWorkspace();
      unsign(made);
      const { code, stdout, stderr } = await made.rye(['run', 'hello', flag]);
      expect(code).toBe(3);
      expect(stdout + stderr).toContain('guard_changed');
      expect(stdout + stderr).toContain('config agent/hooks is no longer signed');
      expect(stdout + stderr).toContain('rye lock accept');
      expect(stdout + stderr).toContain('rye sign config agent/hooks');
    },
  );

  it('is in force again once it is signed', async () => {
    const made = await guardedWorkspace();
    unsign(made);
    expect((await made.rye(['sign', 'config', 'agent/hooks'])).code).toBe(0);
    const { code, stderr } = await made.rye(['run', 'hello']);
    expect([code, stderr.includes('greeting refused')]).toEqual([1, true]);
  });

  it('is given up, and reported at every run, once that is accepted', async () => {
    const made = await guardedWorkspace();
    unsign(made);
    expect((await made.rye(['lock', 'accept'])).stdout).toContain(
      'accepted unsigned config agent/hooks',
    );
    const { code, stderr } = await made.rye(['run', 'hello', '-q']);
    expect([code, stderr.includes('ignored: ')]).toEqual([0, true]);
  });

  it('is reported by commands that only look', async () => {
    const made = await guardedWorkspace();
    unsign(made);
    for (const args of [
      ['list', 'rule'],
      ['hooks', 'list'],
      ['verify', 'directive', 'example'],
    ]) {
      const { code, stderr } = await made.rye(args);
      expect([args, code, stderr.includes('guard_changed')]).toEqual([args, 0, true]);
    }
    expect((await made.rye(['doctor'])).stdout).toContain('fail guards: runs are refused');
    const { code, stdout } = await made.rye(['lock', '--json']);
    expect(code).toBe(3);
    expect(JSON.parse(stdout)).toMatchObject({
      success: false,
      error: { code: 'guard_changed' },
      changes: [{ type: 'config', id: 'agent/hooks', change: 'unsigned' }],
    });
  });
});

it('lets a person accept a lock that is gone, rolled back or of another branch by one command', async () => {
  const made = await guardedWorkspace();
  const older = ['.ai/lock.json', HOOKS_FILE].map((name) => [name, read(made, name)] as const);
  write(made, HOOKS_FILE, HOOKS.replace('no_greetings', 'no_talk'));
  expect((await made.rye(['sign', 'config', 'agent/hooks'])).code).toBe(0);
  for (const [name, text] of older) write(made, name, text);
  const refused = await made.rye(['run', 'hello']);
  expect(refused.stderr).toContain('rolled back');
  expect((await made.rye(['lock', 'accept'])).code).toBe(0);
  expect((await made.rye(['run', 'hello'])).stderr).toContain('greeting refused');
  rmSync(path.join(made.project, '.ai/lock.json'));
  expect((await made.rye(['run', 'hello'])).code).toBe(3);
  expect((await made.rye(['lock', 'accept'])).code).toBe(0);
  expect(existsSync(path.join(made.project, '.ai/lock.json'))).toBe(true);
  expect((await made.rye(['run', 'hello'])).code).toBe(1);
});

it('does not accept a file that was edited under its signature', async () => {
  const made = await guardedWorkspace();
  write(made, HOOKS_FILE, `${read(made, HOOKS_FILE)}# edited\n`);
  const refused = await made.rye(['run', 'hello']);
  expect(refused.stderr).toContain('was modified after it was signed');
  expect((await made.rye(['lock', 'accept'])).code).toBe(3);
  expect((await made.rye(['sign', 'config', 'agent/hooks'])).code).toBe(0);
  expect((await made.rye(['run', 'hello'])).stderr).toContain('greeting refused');
});

// Requirement: ignored-power-files-reported
it('reports an ignored power file in plan, log, result and on stderr, with every option', async () => {
  const made = await workspace();
  const { rye } = made;
  write(made, HOOKS_FILE, HOOKS);
  const warning = 'config agent/hooks is not signed [unsigned]';
  const told = async (...flags: readonly string[]): Promise<[number | null, number]> => {
    const { code, stderr } = await rye(['run', 'hello', ...flags]);
    return [code, stderr.split(warning).length - 1];
  };
  for (const flags of [
    [],
    ['-q'],
    ['-p'],
    ['--json'],
    ['-q', '--json'],
    ['--output-format=stream-json'],
  ])
    expect([flags, await told(...flags)]).toEqual([flags, [0, 1]]);
  expect(await told('-q', '--async', '--thread-id', 'later')).toEqual([0, 1]);
  expect((await rye(['threads', 'wait', 'later'])).code).toBe(0);
  expect((await rye(['threads', 'logs', 'later', '--text'])).stdout).toContain(warning);
  const result = JSON.parse(
    (await rye(['run', 'hello', '-q', '--json', '-c', 'resilience.tools.sandbox=off'])).stdout,
  );
  expect(result).toMatchObject({ success: true, warnings: [expect.stringContaining(warning)] });
  const dry = JSON.parse((await rye(['run', 'hello', '--dry-run', '--json'])).stdout);
  expect(dry).toMatchObject({ plan: { warnings: [expect.stringContaining(warning)] } });
});
