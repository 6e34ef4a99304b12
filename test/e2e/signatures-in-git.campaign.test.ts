import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type CliResult, runCli } from '../helpers/run-cli.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const FILE = '.ai/directives/greet.md';

const GREET = `# Greet

\`\`\`xml
<directive name="greet" version="1.0.0">
  <metadata>
    <description>Says hello.</description>
    <category></category>
    <author>ada</author>
    <model provider="literal"/>
    <permissions><execute><tool>rye/core/greet</tool></execute></permissions>
  </metadata>
  <process>
    <step name="greet">
      <execute item_type="tool" item_id="rye/core/greet"><param name="who">you</param></execute>
    </step>
  </process>
</directive>
\`\`\`

One.

Two.

Three.

Four.
`;

interface Person {
  readonly clone: string;
  rye(...args: readonly string[]): Promise<CliResult>;
  git(...args: readonly string[]): string;
  edit(from: string, to: string): void;
  text(): string;
}

function person(clone: string, home: string): Person {
  const env = { HOME: home, PATH: process.env['PATH'] ?? '', GIT_CONFIG_NOSYSTEM: '1' };
  return {
    clone,
    rye: async (...args) => await runCli(args, { cwd: clone, env }),
    git: (...args) =>
      execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], {
        cwd: clone,
        env,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    edit(from, to) {
      const target = path.join(clone, FILE);
      writeFileSync(target, readFileSync(target, 'utf8').replace(from, to));
    },
    text: () => readFileSync(path.join(clone, FILE), 'utf8'),
  };
}

/** Two clones of one repository, each with a key that the other trusts. */
async function twoClones(setting: 'inline' | 'detached') {
  const one = await workspace();
  const two = await workspace();
  const origin = path.join(one.home, 'origin.git');
  execFileSync('git', ['init', '-q', '--bare', '-b', 'main', origin]);
  for (const [from, to] of [
    [one, two],
    [two, one],
  ] as const) {
    const pem = path.join(to.home, 'other.pem');
    writeFileSync(pem, (await from.rye(['keys', 'export'])).stdout);
    await to.rye(['keys', 'trust', pem, '--yes']);
  }
  const cloneOf = ({ home }: Workspace): Person => {
    const clone = path.join(home, 'clone');
    execFileSync('git', ['clone', '-q', origin, clone], { stdio: 'ignore' });
    return person(realpathSync(clone), home);
  };
  const ada = cloneOf(one);
  ada.git('checkout', '-q', '-b', 'main');
  mkdirSync(path.join(ada.clone, '.ai/directives'), { recursive: true });
  mkdirSync(path.join(ada.clone, '.ai/config'));
  writeFileSync(path.join(ada.clone, FILE), GREET);
  writeFileSync(path.join(ada.clone, '.gitignore'), '.ai/state\n');
  if (setting === 'detached') {
    writeFileSync(path.join(ada.clone, '.ai/config/trust.yaml'), 'signing: detached\n');
  } else expect((await ada.rye('git', 'setup')).code).toBe(0);
  expect((await ada.rye('sign', 'directive', 'greet')).stdout).toContain('signed');
  commit(ada, 'start');
  ada.git('push', '-q', 'origin', 'main');
  const bob = cloneOf(two);
  if (setting === 'inline') expect((await bob.rye('git', 'setup')).code).toBe(0);
  return { ada, bob };
}

function commit({ git }: Person, message: string): void {
  git('add', '-A');
  git('commit', '-q', '-m', message);
}

test.each(['inline', 'detached'] as const)(
  'with %s signatures, edits of two people merge, and the merged text is signed again',
  async (setting) => {
    const { ada, bob } = await twoClones(setting);
    expect(ada.text().includes('rye:signed:')).toBe(setting === 'inline');
    expect((await bob.rye('run', 'greet')).code).toBe(0);
    ada.edit('One.', 'One, says Ada.');
    await ada.rye('sign', 'directive', 'greet');
    commit(ada, 'ada');
    ada.git('push', '-q', 'origin', 'main');
    bob.edit('Four.', 'Four, says Bob.');
    await bob.rye('sign', 'directive', 'greet');
    commit(bob, 'bob');
    bob.git('pull', '-q', '--no-rebase', '--no-edit', 'origin', 'main');
    expect(bob.git('status', '--porcelain')).toBe('');
    expect(bob.text()).toContain('One, says Ada.');
    expect(bob.text()).toContain('Four, says Bob.');
    const refused = await bob.rye('run', 'greet');
    expect(refused.code).toBe(3);
    expect(refused.stderr).toContain('rye sign directive greet');
    expect((await bob.rye('sign', 'directive', 'greet')).code).toBe(0);
    expect((await bob.rye('run', 'greet')).code).toBe(0);
    commit(bob, 'sign the merge');
    bob.git('push', '-q', 'origin', 'main');
    ada.git('pull', '-q', '--no-rebase', 'origin', 'main');
    expect((await ada.rye('run', 'greet')).code).toBe(0);
    if (setting === 'detached') {
      expect(readdirSync(path.join(ada.clone, '.ai/signatures/directives'))).toHaveLength(1);
    }
  },
);

test('edits of the same line conflict without their signatures, and the markers are named', async () => {
  const { ada, bob } = await twoClones('inline');
  ada.edit('One.', 'One, says Ada.');
  await ada.rye('sign', 'directive', 'greet');
  commit(ada, 'ada');
  ada.git('push', '-q', 'origin', 'main');
  bob.edit('One.', 'One, says Bob.');
  await bob.rye('sign', 'directive', 'greet');
  commit(bob, 'bob');
  expect(() => bob.git('pull', '-q', '--no-rebase', 'origin', 'main')).toThrow('Command failed');
  expect(bob.text().match(/^<{7} ours/gm)).toHaveLength(1);
  expect(bob.text()).not.toContain('rye:signed:');
  const line =
    bob
      .text()
      .split('\n')
      .findIndex((text) => text.startsWith('<<<<<<<')) + 1;
  for (const args of [
    ['validate', 'directive', 'greet'],
    ['sign', 'directive', 'greet'],
  ]) {
    const before = bob.text();
    const { code, stdout, stderr } = await bob.rye(...args);
    expect(code).toBe(2);
    expect(`${stdout}${stderr}`).toContain(`greet.md:${line}: `);
    expect(`${stdout}${stderr}`).toContain('conflict marker');
    expect(bob.text()).toBe(before);
  }
  expect((await bob.rye('run', 'greet')).stderr).toContain('conflict marker');
});

test('a detached signature counts for its item and text only', async () => {
  const { ada } = await twoClones('detached');
  const folder = path.join(ada.clone, '.ai/signatures/directives');
  const [name = ''] = readdirSync(folder);
  const signature = readFileSync(path.join(folder, name), 'utf8');
  const run = async () => (await ada.rye('run', 'greet')).stderr;
  // moved to another item with the same text
  const other = ada.text().replaceAll('greet"', 'other"');
  writeFileSync(path.join(ada.clone, '.ai/directives/other.md'), ada.text());
  writeFileSync(path.join(folder, name.replace('greet', 'other')), signature);
  expect((await ada.rye('verify', 'directive', 'other')).stdout).toContain('[item_moved]');
  writeFileSync(path.join(ada.clone, '.ai/directives/other.md'), other);
  expect((await ada.rye('run', 'other')).stderr).toContain('[content_modified]');
  // edited, under the name that the new text has, and cut off
  writeFileSync(path.join(folder, name), signature.replace(/:2\d{3}-/, ':2020-'));
  expect(await run()).toContain('[signature_invalid]');
  writeFileSync(path.join(folder, name), signature.slice(0, 80));
  expect(await run()).toContain('[unsigned]');
  renameSync(path.join(folder, name), path.join(ada.clone, 'kept'));
  expect(await run()).toContain('[unsigned]');
  writeFileSync(path.join(folder, name), signature);
  expect(await run()).not.toContain('[');
  ada.edit('One.', 'Uno.');
  expect(await run()).toContain('[content_modified]');
});

test('sign moves signatures between the two places and leaves no other', async () => {
  const { ada } = await twoClones('inline');
  const bare = GREET;
  const folder = path.join(ada.clone, '.ai/signatures/directives');
  const trust = path.join(ada.clone, '.ai/config/trust.yaml');
  writeFileSync(trust, 'signing: detached\n');
  expect((await ada.rye('sign', 'directive', 'greet')).stdout).toContain('signed');
  expect(ada.text()).toBe(bare);
  expect((await ada.rye('sign', 'directive', 'greet')).stdout).toContain('unchanged');
  expect((await ada.rye('run', 'greet')).code).toBe(0);
  writeFileSync(trust, 'signing: inline\n');
  expect((await ada.rye('sign', 'directive', 'greet')).stdout).toContain('signed');
  expect(ada.text()).toContain('rye:signed:');
  expect(readdirSync(folder)).toEqual([]);
  expect((await ada.rye('run', 'greet')).code).toBe(0);
  writeFileSync(trust, 'signing: elsewhere\n');
  const refused = await ada.rye('sign', 'config', 'trust');
  expect(refused.code).toBe(2);
  expect(existsSync(folder) && readdirSync(folder)).toEqual([]);
});

test('JSON and configuration have detached signatures too', async () => {
  const { ada } = await twoClones('detached');
  const hooks = path.join(ada.clone, '.ai/config/agent/hooks.yaml');
  mkdirSync(path.dirname(hooks), { recursive: true });
  writeFileSync(hooks, 'hooks: []\n');
  expect((await ada.rye('sign', 'config', '**')).code).toBe(0);
  expect(readFileSync(hooks, 'utf8')).toBe('hooks: []\n');
  expect((await ada.rye('verify', 'config', '**')).stdout).not.toContain('FAIL');
  writeFileSync(hooks, 'hooks: [ ]\n');
  expect((await ada.rye('run', 'greet')).stderr).toContain('[guard_changed]');
});

test('git setup is repeatable, keeps other attributes, and needs a repository', async () => {
  const { ada } = await twoClones('inline');
  const attributes = path.join(ada.clone, '.gitattributes');
  writeFileSync(attributes, '*.png binary');
  await ada.rye('git', 'setup');
  const first = readFileSync(attributes, 'utf8');
  expect(first.startsWith('*.png binary\n')).toBe(true);
  expect((await ada.rye('git', 'setup')).stdout).toContain('set up already');
  expect(readFileSync(attributes, 'utf8')).toBe(first);
  const elsewhere = await workspace();
  const { code, stderr } = await elsewhere.rye(['git', 'setup']);
  expect(code).toBe(2);
  expect(stderr).toContain('git init');
});
