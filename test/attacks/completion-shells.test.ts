// Requirement: typing-runs-nothing
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { loadTree } from '../../src/faces/cli/command.ts';
import { completionScript } from '../../src/faces/cli/commands/completion.ts';
import { ROOT } from '../../src/faces/cli/root.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { runCli } from '../helpers/run-cli.ts';
import { directive, inLab } from './lab.ts';

const TREE = await loadTree(ROOT);

/** Words that a shell would expand, or run as a command. */
const HOSTILE = [
  '$(touch${IFS}PWNED)',
  '`touch PWNED`',
  '$(>PWNED)',
  '${x:=$(touch PWNED)}',
  '<(touch PWNED)',
  '>(touch PWNED)',
  '$((a[$(touch PWNED)]))',
  'a;touch PWNED',
  'a\\ntouch PWNED',
  '| touch PWNED',
  '&& touch PWNED',
  '(touch PWNED)',
  '{touch,PWNED}',
  '~/PWNED',
  '!touch PWNED',
  '*',
  '\u001b]0;x\u0007',
  '"$(touch PWNED)"',
  "'; touch PWNED; '",
  '$HOME',
];

/** A folder in which a program called rye answers every question with hostile words. */
function hostileShell(): { readonly folder: string; readonly env: Record<string, string> } {
  const folder = mkdtempSync(join(tmpdir(), 'rye-shells-'));
  onTestFinished(() => removeFolder(folder));
  const bin = join(folder, 'bin');
  mkdirSync(bin);
  mkdirSync(join(folder, 'work'));
  writeFileSync(join(folder, 'words'), `good-word\n${HOSTILE.join('\n')}\n`);
  writeFileSync(join(bin, 'rye'), `#!/bin/sh\ncat '${join(folder, 'words')}'\n`);
  chmodSync(join(bin, 'rye'), 0o755);
  for (const shell of ['bash', 'zsh', 'fish'] as const) {
    writeFileSync(join(folder, `rye.${shell}`), completionScript(shell, TREE));
  }
  const env = {
    PATH: `${bin}:${process.env['PATH'] ?? ''}`,
    HOME: folder,
    TERM: 'dumb',
    XDG_CONFIG_HOME: join(folder, 'config'),
  };
  return { folder, env };
}

/** Command lines whose last word is completed: one for each kind of word. */
const LINES = [
  'rye run ',
  'rye chat ',
  'rye execute tool ',
  'rye threads show ',
  'rye attach ',
  'rye fetch directive ',
  'rye run a --input ',
  'rye run a --model ',
  'rye run a --async-nothing ',
  'rye models use ',
  'rye hooks explain ',
];

const BASH = `source "$1"; shift
for line in "$@"; do
  read -r -a COMP_WORDS <<< "$line"; COMP_WORDS+=(''); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1))
  _rye 2>/dev/null; printf '%s\\n' "\${COMPREPLY[@]}"
done`;

// a person at a terminal: each line with the key Tab, then a line that ends the look
const ZSH = `zmodload zsh/zpty
zpty z zsh -f -i
until_ready() {
  local text
  zpty -r z text "*ready-$1*2004h*" && print -rn -- "$text"
}
zpty -w z "PS1='> '; autoload -U compinit; compinit -D -u; source $1; cd $2; echo ready-''0"
until_ready 0
shift 2
for line in "$@"; do
  zpty -w z "$line"$'\\t\\x15'"echo ready-''$((++number))"
  until_ready $number
done
zpty -d z`;

const FISH = `source $argv[1]
for line in $argv[2..-1]; complete -C "$line"; end`;

it.each([
  ['bash', ['-c', BASH, 'bash']],
  ['zsh', ['-f', '-c', ZSH, 'zsh']],
  ['fish', ['--no-config', '-c', FISH]],
] as const)(
  'completion in %s runs nothing and offers no word that a shell would expand',
  (shell, args) => {
    const { folder, env } = hostileShell();
    const work = join(folder, 'work');
    const place = shell === 'zsh' ? [work] : [];
    const output = execFileSync(
      shell,
      [...args, join(folder, `rye.${shell}`), ...place, ...LINES],
      {
        cwd: work,
        env,
        encoding: 'utf8',
        timeout: 60_000,
      },
    );
    expect(output).toContain('good-word');
    expect(readdirSync(work)).toEqual([]);
    expect(existsSync(join(folder, 'PWNED'))).toBe(false);
    if (shell === 'bash') expect(output).not.toMatch(/touch|HOME|\*/);
  },
  90_000,
);

it('rye offers no such word, from no source of a clone', async () => {
  await inLab(async (lab) => {
    const inputs = HOSTILE.map((name) => `<input name="${name}">x</input>`).join('\n');
    lab.write(
      'directives/a.md',
      directive('a', { children: `<inputs>${inputs}<input name="good">x</input></inputs>` }),
    );
    for (const [at, name] of HOSTILE.slice(0, 6).entries()) {
      if (name.includes('/')) continue;
      lab.write(`directives/${name}.md`, directive(name));
      lab.write(`tools/${name}.sh`, '#!/bin/sh\n');
      lab.write(`state/threads/${name}/transcript.jsonl`, '');
      lab.signed(
        `config/providers/p${at}.yaml`,
        `id: p${at}\nwire: openai\nmodels: [{id: ${JSON.stringify(name)}}]\n`,
      );
    }
    for (const args of [['input', '', 'a'], ['model'], ['thread'], ['directive'], ['tool']]) {
      const { code, stdout } = await runCli(['__complete', ...args], {
        cwd: lab.project,
        env: lab.env,
      });
      expect(code, args.join(' ')).toBe(0);
      expect(stdout, args.join(' ')).toMatch(/^(?:[\w./:@=+-]+\n)*$/);
      if (args[0] === 'input') expect(stdout).toBe('good=\n');
    }
    expect(existsSync(join(lab.project, 'PWNED'))).toBe(false);
  });
}, 60_000);
