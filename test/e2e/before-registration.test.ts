import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { calls, reply, startWireServer, toolUse } from '../helpers/wire-server.ts';
import { workspace } from '../helpers/workspace.ts';

function write(root: string, file: string, text: string | Uint8Array): void {
  const target = path.join(root, '.ai', file);
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, text);
}

const directive = (id: string, { metadata = '', attributes = '' } = {}): string => {
  const at = id.lastIndexOf('/');
  return `\`\`\`xml
<directive name="${id.slice(at + 1)}" version="1.0.0"${attributes}>
  <metadata><description>d</description><category>${id.slice(0, Math.max(at, 0))}</category><author>a</author>${metadata}</metadata>
</directive>
\`\`\`

Do the work.
`;
};

test('a run whose private key is lost is refused before anything is registered', async () => {
  const here = await workspace();
  const env = { HOME: path.join(here.home, 'fresh') };
  const keys = '.ai/config/keys/signing';
  mkdirSync(path.join(env.HOME, keys), { recursive: true, mode: 0o700 });
  cpSync(path.join(here.home, keys, 'public_key.pem'), path.join(env.HOME, keys, 'public_key.pem'));
  const run = await here.rye(['run', 'hello'], { env });
  expect(run.code).toBe(3);
  expect(run.stderr).toContain('no signing key');
  const started = await here.rye(['run', 'hello', '--async'], { env });
  expect(started.code).toBe(3);
  expect(await here.json(['threads', 'list'], { env })).toMatchObject({ total: 0 });
});

test('a dry run without a signing key creates none', async () => {
  const here = await workspace();
  const env = { HOME: path.join(here.home, 'fresh') };
  mkdirSync(env.HOME);
  const dry = await here.json(['run', 'hello', '--dry-run'], { env });
  expect(JSON.stringify(dry)).not.toContain('signing key');
  expect(readdirSync(env.HOME)).toEqual([]);
});

test('eight rye init with one new home at once all succeed with one key', async () => {
  const here = await workspace({ init: false });
  const projects = Array.from({ length: 8 }, (_, index) => path.join(here.project, `p${index}`));
  for (const project of projects) mkdirSync(project);
  const runs = await Promise.all(
    projects.map((project) => here.rye(['init', '--project', project, '--json'])),
  );
  expect(runs.map(({ code, stderr }) => `${code}${stderr}`)).toEqual(projects.map(() => '0'));
  const keys = runs.map(({ stdout }) => (JSON.parse(stdout) as { key_id: string }).key_id);
  expect(new Set(keys).size).toBe(1);
});

test('rye init keeps state and exports out of git, and adds only what is missing', async () => {
  const here = await workspace({ init: false });
  writeFileSync(path.join(here.project, '.gitignore'), 'dist/\n/.ai/state/');
  await here.rye(['init']);
  await here.rye(['init', '--force']);
  expect(readFileSync(path.join(here.project, '.gitignore'), 'utf8')).toBe(
    'dist/\n/.ai/state/\n.ai/knowledge/agent/threads/\n',
  );
});

test('an ancestor that is missing is an error of the directive that extends it, with its line', async () => {
  const here = await workspace();
  write(
    here.project,
    'directives/child.md',
    directive('child', { attributes: ' extends="cy/gone"' }),
  );
  await here.rye(['sign', 'directive', 'child']);
  const { code, stderr } = await here.rye(['run', 'child']);
  expect(code).toBe(6);
  expect(stderr).toMatch(/child\.md:\d+.*child extends cy\/gone: unknown directive cy\/gone/);
});

test('validate reports every file, also beside one that cannot be read and one that has no id', async () => {
  const here = await workspace();
  write(here.project, 'directives/a-bin.md', Buffer.from([0xff, 0xfe]));
  write(here.project, 'directives/b.md', 'garbage');
  write(here.project, 'directives/my notes.md', 'text');
  write(here.project, 'knowledge/é.md', 'text');
  const { code, stdout } = await here.rye(['validate']);
  expect(code).toBe(2);
  expect(stdout).toContain('a-bin is not UTF-8 text');
  expect(stdout).toMatch(/b\.md:.*directive_malformed/);
  expect(stdout).toMatch(/my notes\.md: warning: invalid_item_id/);
  expect(stdout).toMatch(/é\.md: warning: invalid_item_id/);
  const listed = await here.rye(['list', 'directive']);
  expect(listed.stderr).toContain('my notes.md');
  expect(listed.stderr).toContain('Rename the file.');
});

test('a tool file with the id of a part of rye is refused, marked in lists and a warning of the plan', async () => {
  const here = await workspace();
  const file = '.ai/tools/rye/bash.py';
  write(
    here.project,
    'tools/rye/bash.py',
    '__version__ = "1.0.0"\n__tool_description__ = "d"\n__category__ = "rye"\nprint("mine")\n',
  );
  const signed = await here.rye(['sign', 'tool', 'rye/bash']);
  expect(signed.code).toBe(2);
  expect(`${signed.stdout}${signed.stderr}`).toContain('tool_id_reserved');
  const validated = await here.rye(['validate']);
  expect(validated.stdout).toMatch(/bash\.py:1: tool_id_reserved/);
  const listed = (await here.json(['list', 'tool', '--space', 'project'])) as {
    items: { id: string; shadowed_by: string | null }[];
  };
  expect(listed.items).toMatchObject([{ id: 'rye/bash', shadowed_by: 'system' }]);
  write(
    here.project,
    'directives/shell.md',
    directive('shell', {
      metadata:
        '<permissions><execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">r</acknowledge><acknowledge risk="unrestricted">r</acknowledge></permissions>',
    }),
  );
  await here.rye(['sign', 'directive', 'shell']);
  const { plan } = (await here.json(['run', 'shell', '--dry-run', '--replay', 'none.jsonl'])) as {
    plan?: { warnings: string[] };
  };
  const warnings =
    plan?.warnings.join('\n') ?? (await here.rye(['run', 'shell', '--dry-run'])).stdout;
  expect(warnings).toContain(file);
});

test('a copy of a shipped item is announced as unsigned, with the command that signs it', async () => {
  const here = await workspace();
  const { code, stderr } = await here.rye([
    'fetch',
    'directive',
    'rye/core/base',
    '--copy-to',
    'project',
  ]);
  expect(code).toBe(0);
  expect(stderr).toContain('the copy is unsigned');
  expect(stderr).toContain('rye sign directive rye/core/base');
});

test('rye_execute of an unknown tool names the id that was asked for', async () => {
  const here = await workspace();
  write(
    here.project,
    'directives/work.md',
    directive('work', {
      metadata:
        '<permissions><execute><tool>rye/file-system/*</tool></execute><acknowledge risk="elevated">r</acknowledge></permissions>',
    }),
  );
  await here.rye(['sign', 'directive', 'work']);
  const server = await startWireServer([
    calls(
      toolUse('rye_execute', {
        item_type: 'tool',
        item_id: 'rye/file-system/raed',
        parameters: {},
      }),
    ),
    reply('Done.'),
  ]);
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const run = await here.rye(['run', 'work'], { env });
  expect(run.code, run.stderr).toBe(0);
  const sent = JSON.stringify(server.requests[1]?.body.messages);
  expect(sent).toContain('Unknown tool: rye/file-system/raed, which rye_execute was to run.');
  expect(sent).toContain('Did you mean rye/file-system/read');
});

test('a tool that prints more than the cap fails with a bounded message that keeps head and tail', async () => {
  const here = await workspace();
  write(
    here.project,
    'tools/big.sh',
    '# rye:tool\n# description: Prints a lot.\n# version: 1.0.0\n# category: ""\n# /rye:tool\necho FIRST\nhead -c 12000000 /dev/zero | tr "\\\\0" x\necho\nexit 3\n',
  );
  const signed = await here.rye(['sign', 'tool', 'big']);
  expect(signed.code, `${signed.stdout}${signed.stderr}`).toBe(0);
  const run = await here.rye(['execute', 'tool', 'big', '--json', '--acknowledge', 'elevated']);
  expect(run.code).not.toBe(0);
  expect(run.stdout.length + run.stderr.length).toBeLessThan(200_000);
  expect(run.stdout).toContain('FIRST');
  expect(run.stdout).toContain('bytes omitted');
});

test('configuration that no run could read is reported at once, blocks no look at the rest, and is not signed', async () => {
  const here = await workspace();
  write(here.project, 'config/agent/agent.yaml', 'foo: 1\nskills: { max_activ: 2 }\n');
  write(here.project, 'config/agent/resilience.yaml', 'limits: { truns: 3 }\n');
  write(here.project, 'config/agent/hooks.yaml', 'hooks:\n  - { id: a, event: tool_gat }\n');
  write(here.project, 'directives/broken.md', 'garbage');
  const { code, stdout } = await here.rye(['validate']);
  expect(code).toBe(2);
  expect(stdout).toMatch(/agent\.yaml:1: config_invalid: unknown setting foo/);
  expect(stdout).toMatch(/agent\.yaml:2: config_invalid: unknown setting skills\.max_activ/);
  expect(stdout).toContain('truns');
  expect(stdout).toContain('tool_gat');
  expect(stdout).toMatch(/broken\.md:.*directive_malformed/);
  for (const name of ['agent/agent', 'agent/resilience', 'agent/hooks']) {
    const signed = await here.rye(['sign', 'config', name]);
    expect([name, signed.code]).toEqual([name, 2]);
  }
  const shown = await here.rye(['config', 'show', '--all']);
  expect(shown.code, shown.stderr).toBe(0);
  expect(shown.stdout).toContain('coordination.steer.active_turn');
  expect((await here.rye(['list', 'directive'])).code).toBe(0);
  const doctor = await here.rye(['doctor']);
  // unsigned files have no effect, which doctor reports once, and what they pinned is missing
  expect(doctor.stderr.split('unknown setting foo')).toHaveLength(2);
  expect([doctor.code, doctor.stdout]).toEqual([1, expect.stringContaining('fail guards: ')]);
});
