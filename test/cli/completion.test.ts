import { execFileSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it, test } from 'vitest';
import { loadTree } from '../../src/faces/cli/command.ts';
import { completionScript } from '../../src/faces/cli/commands/completion.ts';
import { ROOT } from '../../src/faces/cli/root.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { workspace } from '../helpers/workspace.ts';

const rootOfCli = await cliPackage();
const TREE = await loadTree(ROOT);
const folder = mkdtempSync(path.join(tmpdir(), 'rye-completion-'));
const script = path.join(folder, 'rye.bash');
writeFileSync(script, completionScript('bash', TREE));
afterAll(() => {
  removeFolder(folder);
});

/** Returns the words that bash offers after these; the last one is being typed. */
function complete(...words: readonly string[]): readonly string[] {
  const program = `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rye; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const output = execFileSync('bash', ['-c', program, 'bash', script, 'rye', ...words], {
    encoding: 'utf8',
  });
  return output.trim().split('\n');
}

describe('bash', () => {
  test.each([
    ['commands', ['th'], ['threads']],
    ['commands of a group', ['keys', 'r'], ['rotate', 'revoke']],
    ['commands after a global option with a value', ['--project', 'keys', 'ver'], ['verify']],
    ['options', ['run', 'hello', '--out'], ['--output-format', '--output']],
    ['values of an option', ['run', 'hello', '--output-format', 's'], ['stream-json']],
    ['types', ['list', 'to'], ['tool']],
    ['options of the default command', ['threads', '--act'], ['--active']],
    ['nothing for a value that only the person knows', ['run', 'hello', '--model', ''], ['']],
  ])('offers %s', (_, words, expected) => {
    expect(complete(...words)).toEqual(expected);
  });
});

it('offers IDs, models and inputs of the project', async () => {
  const { project, home, rye } = await workspace({});
  expect((await rye(['run', 'hello', '--thread-id', 'greeting-1'])).code).toBe(0);
  const program = `source "$1"; rye() { "$NODE" "$RYE" "$@"; }; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rye; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const offered = (...words: readonly string[]): readonly string[] =>
    execFileSync('bash', ['-c', program, 'bash', script, 'rye', ...words], {
      encoding: 'utf8',
      cwd: project,
      env: {
        PATH: process.env['PATH'],
        HOME: home,
        NODE: process.execPath,
        RYE: path.join(rootOfCli, 'bin', 'rye.js'),
      },
    })
      .trim()
      .split('\n');
  expect(offered('run', 'hel')).toEqual(['hello']);
  expect(offered('execute', 'tool', 'rye/core/g')).toEqual(['rye/core/greet']);
  expect(offered('fetch', 'directive', 'rye/core/project')).toEqual(['rye/core/project_report']);
  expect(offered('threads', 'show', 'gree')).toEqual(['greeting-1']);
  expect(offered('run', 'hello', '--input', 'w')).toEqual(['who=']);
  expect(offered('run', 'hello', '--model', 'claude-opus-5-5')).toContain('claude-opus-5-5');
  expect(offered('threads', 'show', 'nothing-like-it')).toEqual(['']);
});

it('gives zsh the bash completion through its own layer', () => {
  expect(completionScript('zsh', TREE)).toMatch(/^#compdef rye\n.*bashcompinit/);
});

it('gives fish a line for every command', () => {
  const fish = completionScript('fish', TREE);
  expect(fish).toContain(
    '__fish_seen_subcommand_from keys; and not __fish_seen_subcommand_from init',
  );
  expect(fish).toContain('-l output-format -x -a');
});
