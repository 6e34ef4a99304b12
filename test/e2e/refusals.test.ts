import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { calls, reply, startWireServer, toolUse } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const HOOKS = `hooks:
  - id: private_files
    event: tool_gate
    condition: { path: tool, op: eq, value: rye/core/greet }
    action: { control: fail, error: "greetings are off" }
`;

async function withHook(): Promise<Workspace> {
  const here = await workspace();
  const folder = path.join(here.project, '.ai/config/agent');
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'hooks.yaml'), HOOKS);
  expect((await here.rye(['sign', 'config', 'agent/hooks'])).code).toBe(0);
  return here;
}

it('the error of a step that a hook refused names the hook and how to find it', async () => {
  const here = await withHook();
  const { code, stderr } = await here.rye(['run', 'hello']);
  expect(code).toBe(1);
  expect(stderr).toMatch(/✗ rye\/core\/greet who=.* blocked /);
  expect(stderr).toMatch(/^rye: step .*greetings are off \(hook private_files\) \[tool_failed\]$/m);
  expect(stderr).toContain('hint: See where the hook is: rye hooks list');
  const listed = await here.rye(['hooks', 'list']);
  expect(listed.stdout).toMatch(/private_files +.*hooks\.yaml:\d/);
});

it('a model reads the refusal of a hook without the name of the hook', async () => {
  const here = await withHook();
  const server = await startWireServer([
    calls(toolUse('rye_core_greet', { who: 'Ada' }, 'toolu_a')),
    reply('No greeting.'),
  ]);
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  await here.rye(['run', 'hello', '--provider', 'anthropic'], { env });
  const asked = JSON.stringify(server.requests[1]?.body.messages.at(-1));
  expect(asked).toContain('Blocked: greetings are off"');
});

it('in a pipe, the end of each call names its input', async () => {
  const here = await workspace();
  writeFileSync(path.join(here.project, 'notes.txt'), 'Notes.\n');
  const server = await startWireServer([
    calls(
      toolUse('rye_file_system_read', { path: 'notes.txt' }, 'toolu_a'),
      toolUse('rye_file_system_read', { path: 'nope.txt' }, 'toolu_b'),
      toolUse('rye_file_system_read', { path: '/etc/passwd' }, 'toolu_c'),
    ),
    reply('Read.'),
  ]);
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const { code, stdout, stderr } = await here.rye(
    ['run', 'rye/core/ask', '--input', 'question=What is in them?'],
    { env },
  );
  expect([code, stdout]).toEqual([0, 'Read.\n']);
  expect(stderr).toMatch(/^✓ rye\/file-system\/read path=notes\.txt \S+$/m);
  expect(stderr).toMatch(/^✗ rye\/file-system\/read path=nope\.txt error \S+/m);
  expect(stderr).toMatch(/^✗ rye\/file-system\/read path=\/etc\/passwd error \S+/m);
});

it('a run that reached a limit ends with a command that resumes it', async () => {
  const here = await workspace();
  const server = await startWireServer([
    calls(toolUse('rye_core_greet', { who: 'Ada' }, 'toolu_a')),
    reply('Greeted.'),
  ]);
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const run = ['run', 'hello', '--provider', 'anthropic', '--limit', 'turns=1', '--thread-id', 't'];
  const { code, stderr } = await here.rye(run, { env });
  expect(code).toBe(5);
  const next = /^resume: rye (.+)$/m.exec(stderr)?.[1] ?? '';
  expect(next).toBe('threads resume t --limit turns=1');
  await here.rye(next.split(' '), { env });
  expect(server.requests).toHaveLength(2);
});

it('--output has the JSON document that --json prints', async () => {
  const here = await workspace();
  const { stdout } = await here.rye([
    '-c',
    'resilience.tools.sandbox=off',
    'run',
    'hello',
    '--json',
    '-o',
    'result.json',
  ]);
  const saved = readFileSync(path.join(here.project, 'result.json'), 'utf8');
  expect(JSON.parse(saved)).toEqual(JSON.parse(stdout));
  expect(JSON.parse(saved)).toMatchObject({ is_error: false, num_turns: 2, warnings: [] });
});

it('a notice that is no security warning is in warnings too', async () => {
  const here = await workspace();
  const folder = path.join(here.project, '.ai/directives');
  writeFileSync(path.join(folder, 'not an id.md'), '# Misnamed\n');
  const { stdout, stderr } = await here.rye(['list', 'directive', '--json']);
  const { warnings } = JSON.parse(stdout) as { readonly warnings: readonly string[] };
  const [warning = 'none'] = warnings;
  expect(stderr).toContain(`rye: ${warning.replace(`${here.project}/`, '')}`);
});
