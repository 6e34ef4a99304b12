import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { findProject, resolveUserSpace } from '../../src/kernel/app/user-space.ts';
import { openRye } from '../../src/open-rye.ts';
import { cliPackage, runCli } from '../helpers/run-cli.ts';
import { workspace } from '../helpers/workspace.ts';
import { attacks, directive, openLab } from './lab.ts';

/** A clone that contains a key and a directive signed by it. */
async function plantedClone(home: string) {
  const lab = await openLab();
  lab.write(
    'config/keys/signing/private_key.pem',
    lab.read('~/.ai/config/keys/signing/private_key.pem'),
  );
  lab.signed('directives/pwn.md', directive('pwn'));
  const { code, stdout } = await runCli(['verify', 'directive', 'pwn', '--json'], {
    cwd: lab.project,
    env: { HOME: home === '.' ? lab.project : home },
  });
  await lab.remove();
  const [item] = (JSON.parse(stdout) as { items?: readonly { code?: string }[] }).items ?? [];
  const { error } = JSON.parse(stdout) as { error?: { code: string } };
  return { code, reason: item?.code ?? error?.code };
}

/** Runs a command in a folder that is deleted before rye starts. */
async function runInDeleted(
  folder: string,
  words: readonly string[],
): Promise<readonly [number | null, unknown]> {
  mkdirSync(folder);
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const shell = spawn(
    '/bin/sh',
    ['-c', 'rmdir "$PWD"; exec "$@"', 'sh', process.execPath, program, ...words],
    { cwd: folder, env: { PATH: process.env['PATH'], HOME: path.join(folder, '../../home') } },
  );
  let stdout = '';
  shell.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  shell.stderr.resume();
  await once(shell, 'close');
  return [shell.exitCode, JSON.parse(stdout)];
}

describe('a project that ships signing keys', () => {
  it.each([
    ['empty', ''],
    ['relative', 'home'],
  ])('does not vouch for itself when HOME is %s', async (_, home) => {
    expect(await plantedClone(home)).toEqual({ code: 3, reason: 'key_untrusted' });
  });

  it('needs a private key that others cannot read when HOME is the project', async () => {
    expect(await plantedClone('.')).toEqual({ code: 3, reason: 'key_unsafe' });
  });
});

describe('the user space', () => {
  attacks([
    {
      name: 'the .ai of the project',
      code: 'user_space_refused',
      run: (lab) => lab.rye({ userSpacePath: lab.path('.') }),
    },
    {
      name: 'a folder in the .ai of the project, which does not exist yet',
      code: 'user_space_refused',
      run: (lab) => lab.rye({ userSpacePath: lab.path('state/home') }),
    },
    {
      name: 'a folder in the target of a link that is the .ai of the project',
      code: 'user_space_refused',
      run: (lab) => {
        symlinkSync(lab.home, path.join(lab.project, 'sub'));
        rmSync(lab.path('.'), { recursive: true });
        symlinkSync(lab.home, lab.path('.'));
        return lab.rye({ userSpacePath: path.join(lab.project, 'sub', 'below') });
      },
    },
  ]);

  it.each([
    [{ HOME: '/home/eve' }, '/home/eve'],
    [{ HOME: '' }, '/home/account'],
    [{}, '/home/account'],
    [{ HOME: 'sub/folder' }, '/home/account'],
    [{ HOME: '/home/eve', RYE_USER_SPACE: '' }, '/home/eve'],
    [{ HOME: '/home/eve', RYE_USER_SPACE: 'mine' }, '/home/eve/dir/mine'],
  ])('is chosen from %j as %s', (env, expected) => {
    const chosen = resolveUserSpace({
      option: '',
      env,
      accountHome: '/home/account',
      absolute: (name) => path.resolve('/home/eve/dir', name),
    });
    expect(chosen).toBe(expected);
  });

  it('is refused when neither HOME nor the account has one', () => {
    const sources = { option: undefined, env: {}, accountHome: undefined };
    expect(() => resolveUserSpace({ ...sources, absolute: path.resolve })).toThrow(
      expect.objectContaining({ code: 'user_space_refused' }),
    );
  });
});

describe('the folder of rye itself', () => {
  const REFUSED = { error: { code: 'read_only_space' } };
  const COMMANDS = ['run hello', 'init', 'threads', 'list directive', 'keys list'];

  it.each(COMMANDS)('is not a project of `rye %s`', async (command) => {
    const { rye } = await workspace({ init: false });
    const words = [...command.split(' '), '-C', await cliPackage(), '--json'];
    const { code, stdout } = await rye(words, { spawned: true });
    expect([code, JSON.parse(stdout)]).toMatchObject([2, REFUSED]);
    expect(existsSync(path.join(await cliPackage(), '.ai', 'state'))).toBe(false);
  });

  it('is not a user space', async () => {
    const { project } = await workspace({ init: false });
    const home = await cliPackage();
    const { code, stdout } = await runCli(['init', '--json'], {
      cwd: project,
      env: { HOME: home },
      spawned: true,
    });
    expect([code, JSON.parse(stdout)]).toMatchObject([2, REFUSED]);
    expect(existsSync(path.join(home, '.ai', 'config', 'keys'))).toBe(false);
  });

  it('is the project of a folder below it when it has the sources', () => {
    const clone = path.resolve(import.meta.dirname, '../..');
    expect(findProject(path.join(clone, 'docs'), '/home/eve')).toBe(clone);
  });
});

describe('a folder that is missing', () => {
  const COMMANDS = ['run hello', 'init', 'threads list', 'doctor', 'keys list', 'list directive'];

  it.each(COMMANDS)('ends `rye %s` and is not created when -C names it', async (command) => {
    const { project, rye } = await workspace({ init: false });
    const { code, stdout } = await rye([...command.split(' '), '-C', 'missing', '--json']);
    expect([code, JSON.parse(stdout)]).toMatchObject([6, { error: { code: 'file_not_found' } }]);
    expect(existsSync(path.join(project, 'missing'))).toBe(false);
  });

  it.each(COMMANDS)('ends `rye %s` when it was the working directory', async (command) => {
    const { project } = await workspace({ init: false });
    const words = [...command.split(' '), '--json'];
    expect(await runInDeleted(path.join(project, 'gone'), words)).toMatchObject([
      6,
      { error: { code: 'file_not_found' } },
    ]);
  });

  it('does not matter when the project is named', async () => {
    const { project } = await workspace();
    const words = ['run', 'hello', '-C', project, '--json'];
    expect(await runInDeleted(path.join(project, 'gone'), words)).toMatchObject([
      0,
      { status: 'completed' },
    ]);
  });

  it('is refused by the library too', () => {
    expect(() =>
      openRye({ projectPath: '/missing/project', userSpacePath: '/missing/home', env: {} }),
    ).toThrow(expect.objectContaining({ code: 'file_not_found' }));
  });
});
