import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openTerminal, type Terminal } from '../helpers/terminal.ts';
import {
  calls,
  reply,
  startWireServer,
  text,
  thinking,
  toolUse,
  type WireScript,
} from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const LIMIT = 300_000;

function directive(name: string, turns: number): string {
  return `# ${name}

\`\`\`xml
<directive name="${name}" version="1.0.0">
  <metadata>
    <description>Does the work of a test.</description>
    <category></category>
    <author>test</author>
    <model tier="general" provider="anthropic" />
    <limits turns="${turns}" spend="0.50" spawns="5" depth="3" />
    <permissions>
      <execute><tool>rye/file-system/*</tool><tool>rye/bash</tool><directive>kid</directive></execute>
      <acknowledge risk="elevated">test</acknowledge>
    </permissions>
  </metadata>
  <inputs><input name="file" type="string" default="">A file.</input></inputs>
</directive>
\`\`\`

Do ${name} {input:file?}.
`;
}

const HOOKS = `hooks:
  - id: protect_env
    event: tool_gate
    condition: { path: input.path, op: eq, value: .env }
    action: { control: fail, error: .env files are private }
`;

const FINDINGS = `# Findings

The project has **one** source file, see [the docs](https://example.com/docs).

| File | Issue |
| --- | --- |
| \`src/a.js\` | \`any\` |

- a point that is long enough to wrap at the edge of a narrow terminal
- 日本語

\`\`\`js
const x = "hi";
\`\`\`
`;

interface Place {
  readonly here: Workspace;
  readonly open: (columns: number, rows?: number) => Promise<Terminal>;
  readonly env: Readonly<Record<string, string>>;
}

async function place(script: WireScript): Promise<Place> {
  const here = await workspace();
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  mkdirSync(path.join(here.project, 'src'));
  writeFileSync(path.join(here.project, 'src/a.js'), 'a\nb\nc\n');
  writeFileSync(path.join(here.project, '.env'), 'A=1\n');
  for (const [name, turns] of [['work', 9] as const, ['kid', 4] as const]) {
    writeFileSync(path.join(here.project, `.ai/directives/${name}.md`), directive(name, turns));
    await here.rye(['sign', 'directive', name]);
  }
  const config = path.join(here.project, '.ai/config/agent');
  mkdirSync(config, { recursive: true });
  writeFileSync(path.join(config, 'hooks.yaml'), HOOKS);
  await here.rye(['sign', 'config', 'agent/hooks']);
  const env = { ANTHROPIC_API_KEY: 'x', ANTHROPIC_BASE_URL: server.url };
  return {
    here,
    env,
    open: async (columns, rows) => {
      const { project: cwd, home } = here;
      const terminal = await openTerminal({ cwd, home, columns, env, ...(rows ? { rows } : {}) });
      onTestFinished(terminal.close);
      return terminal;
    },
  };
}

/** Replaces durations, which differ from run to run, and drops the padding that depends on them and the prompt. */
function steady(screen: string): string {
  const whole = screen.slice(0, screen.indexOf('exit=0'));
  return whole.replaceAll(/\b\d+(?:\.\d+)?m?s\b */g, 'TIME ').replaceAll(/ +$/gm, '');
}

const EDIT = { path: 'src/a.js', old_string: 'b\n', new_string: 'B\nC\n' };
const child = (file: string) => ({
  item_type: 'directive',
  item_id: 'kid',
  parameters: { file },
  limit_overrides: { spend: 0.05 },
});

test.each([60, 100, 200])(
  'a run at %i columns shows calls, a refusal, a diff, children and Markdown as the golden screen has them',
  async (columns) => {
    const { open } = await place(({ body }) => {
      const said = JSON.stringify(body.messages);
      if (said.includes('Do kid')) return reply('Summary.');
      const answers = body.messages.filter(({ role }) => role === 'assistant').length;
      if (answers > 1) return reply(FINDINGS);
      if (answers === 1) {
        return calls(
          text('Now the **edit**.'),
          toolUse('rye_file_system_edit', EDIT),
          toolUse('rye_bash', { command: 'echo one; echo two; exit 3' }),
          toolUse('rye_execute', child('docs/f01.txt')),
          toolUse('rye_execute', child('docs/f02.txt')),
        );
      }
      return calls(
        thinking('Why not look first?'),
        text('I will look at the *folder* first.'),
        toolUse('rye_file_system_ls', { path: 'src' }),
        toolUse('rye_file_system_read', { path: 'nope.txt' }),
        toolUse('rye_file_system_read', { path: '.env' }),
      );
    });
    const terminal = await open(columns, 50);
    terminal.run('run work --thread-id work-demo -c resilience.tools.sandbox=off');
    await terminal.shows('exit=0');
    await expect(steady(terminal.screen())).toMatchFileSnapshot(
      `../golden/screens/run-${columns}.txt`,
    );
  },
  LIMIT,
);

test(
  'meters stay below the streaming text, and Ctrl-C ends with the resume command',
  async () => {
    const { open } = await place(() => ({
      steps: [text('First block.\n\nSecond **blo'), { kind: 'wait', until: new Promise(() => {}) }],
    }));
    const terminal = await open(100);
    terminal.run('run work --thread-id work-demo');
    await terminal.shows(
      / {2}First block\.\n\n {2}Second \*\*blo\n\n. turn 1 of 9 · \$0\.00 of \$0\.50 · \d+s · context \d+% · 0 tokens/,
    );
    terminal.press('C-c');
    await terminal.shows('exit=130');
    expect(terminal.screen()).toMatch(
      /✗ cancelled · 1 turn · .* {8}resume: rye threads resume work-demo\nexit=130/,
    );
    expect(terminal.screen()).not.toContain('turn 1 of 9');
  },
  LIMIT,
);

test(
  'a run that reaches its limit names the limit once and last a command that goes on',
  async () => {
    const { open } = await place(() => calls(toolUse('rye_file_system_ls', { path: '.' })));
    const terminal = await open(100);
    terminal.run('run kid --thread-id kid-demo --limit turns=2');
    await terminal.shows('exit=5');
    expect(terminal.screen().match(/limit reached/gi)).toHaveLength(1);
    expect(terminal.screen()).toMatch(
      /■ stopped at the turn limit · 2 turns · .*\nresume: rye threads resume kid-demo --limit turns=2 {4}open: rye threads open kid-demo\nexit=5/,
    );
    terminal.run('threads resume kid-demo --limit turns=2');
    await terminal.shows(/■ stopped at the turn limit · 4 turns · /);
  },
  LIMIT,
);

test(
  'attach shows a background run from its start, Ctrl-C detaches, and the thread runs to its end',
  async () => {
    let release = (): void => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const { here, open, env } = await place(() => ({
      steps: [text('The first **words**.\n\n'), { kind: 'wait', until: gate }, text('The end.')],
    }));
    const terminal = await open(100);
    terminal.run('run work --thread-id work-demo --async');
    await terminal.shows('work-demo is running in the background');
    await terminal.shows('watch: rye attach work-demo    cancel: rye threads cancel work-demo');
    terminal.run('attach work-demo');
    await terminal.shows(
      /^work · sonnet-5\.5 · limit 9 turns, \$0\.50 · work-demo\n\n {2}The first words\./,
    );
    await terminal.shows('turn 1 of 9');
    terminal.press('C-c');
    await terminal.shows('exit=130');
    expect(terminal.screen()).toContain('rye: detached from work-demo');
    expect(terminal.screen()).toMatch(/rye threads cancel\s+work-demo/);
    release();
    const { threads } = await here.json(['threads', 'wait', 'work-demo'], { env });
    expect(threads).toMatchObject([{ status: 'completed' }]);
    terminal.run('attach work-demo');
    await terminal.shows('exit=0');
    expect(terminal.screen()).toContain('  The end.');
    expect(terminal.screen()).toContain('✓ 1 turn');
  },
  LIMIT,
);

test(
  'attach has a field: a message that is typed there waits below the output, reaches the model, and is shown once',
  async () => {
    let release = (): void => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const seen: string[] = [];
    const { here, open, env } = await place(({ body }) => {
      seen.push(JSON.stringify(body.messages));
      if (seen.length > 1) return reply('In metric units.');
      return {
        steps: [
          { kind: 'wait', until: gate },
          ...calls(toolUse('rye_file_system_ls', { path: 'src' })).steps,
        ],
      };
    });
    const terminal = await open(80, 24);
    terminal.run('run work --thread-id work-demo --async');
    await terminal.shows('watch: rye attach work-demo');
    terminal.run('attach work-demo');
    await terminal.shows('› a message to the model; Enter sends, Ctrl-C detaches');
    terminal.type('Use metric units');
    terminal.press('Enter');
    await terminal.shows(/queued: Use metric units \(.*\n› a message to the model/);
    terminal.type('half a thou');
    await terminal.shows('half a thou');
    release();
    await terminal.shows('exit=0');
    expect(seen.at(-1)).toContain('Use metric units');
    const screen = terminal.screen();
    expect(screen).toMatch(/› Use metric units {2}\(delivered\)/);
    expect(screen).not.toContain('queued: ');
    expect(screen.split('Use metric units')).toHaveLength(2);
    expect(screen).toMatch(/\n\n› half a thou {2}\(not sent\)\n\n✓ 2 turns · /);
    const { deliveries } = await here.json(['threads', 'deliveries', 'work-demo'], { env });
    expect(deliveries).toMatchObject([{ close_reason: 'delivered', text: 'Use metric units' }]);
  },
  LIMIT,
);

test(
  'attach shows only the last run of a running thread, and only the last turn of one that has ended',
  async () => {
    let release = (): void => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const { here, open, env } = await place(({ body }) => {
      const answers = body.messages.filter(({ role }) => role === 'assistant').length;
      if (answers === 0) return reply('The first answer.');
      if (answers === 1) return calls(toolUse('rye_file_system_ls', { path: 'src' }));
      return { steps: [text('The second.\n\n'), { kind: 'wait', until: gate }, text('The end.')] };
    });
    await here.rye(['run', 'work', '--thread-id', 'work-demo'], { env });
    const other = await open(100);
    other.run('threads resume work-demo -m Again');
    await other.shows('The second.');
    const terminal = await open(200);
    terminal.run('attach work-demo');
    await terminal.shows(/^[^\n]* · work-demo\n\n {2}● ls src .*\n\n {2}The second\.\n/);
    release();
    await terminal.shows(/✓ 3 turns · .* {8}open: rye threads open work-demo\nexit=0/);
    expect(terminal.screen()).not.toContain('The first answer.');
    terminal.run('attach work-demo');
    await terminal.shows(/The second\.[^]*exit=0/);
    expect(terminal.screen()).toContain('The end.');
    expect(terminal.screen()).not.toMatch(/ls src|The first answer/);
  },
  LIMIT,
);

test(
  'attach exits with the code of the thread and prints its result to a pipe',
  async () => {
    const { here, env } = await place(() => calls(toolUse('rye_file_system_ls', { path: '.' })));
    const { thread_id: id } = await here.json(['run', 'kid', '--limit', 'turns=2', '--async'], {
      env,
    });
    const { code, stderr, stdout } = await here.rye(['attach', String(id)], { env });
    expect({ code, stdout }).toMatchObject({ code: 5 });
    expect(stderr).toContain('[limit_turns]');
  },
  LIMIT,
);

test(
  'logs --follow works from the moment that --async returns, ten times in a row',
  async () => {
    const { here, env } = await place(() => reply('Done.'));
    for (let round = 0; round < 10; round += 1) {
      const { thread_id: id } = await here.json(['run', 'work', '--async'], { env });
      const { code, stdout, stderr } = await here.rye(['threads', 'logs', String(id), '-f'], {
        env,
      });
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      expect(stdout).toContain('thread_finished completed');
    }
  },
  LIMIT,
);

test(
  'a suspended run names the hook, its reason and the command that continues',
  async () => {
    const { here, env } = await place(() => calls(toolUse('rye_bash', { command: 'ls' })));
    const hooks = HOOKS.replace(
      'path: input.path, op: eq, value: .env',
      'path: tool, op: eq, value: rye/bash',
    ).replace(
      'control: fail, error: .env files are private',
      'control: suspend, reason: a person must look',
    );
    writeFileSync(path.join(here.project, '.ai/config/agent/hooks.yaml'), hooks);
    await here.rye(['sign', 'config', 'agent/hooks']);
    const { code, stderr } = await here.rye(['run', 'work', '--thread-id', 'work-demo'], { env });
    expect(stderr).toContain('rye: suspended by hook protect_env: a person must look');
    expect(stderr).toContain('resume: rye threads resume work-demo');
    expect(code).toBe(8);
    const { stdout } = await here.rye(['threads', 'show', 'work-demo'], { env });
    expect(stdout).toContain('suspended by hook protect_env: a person must look');
  },
  LIMIT,
);

test(
  'a short word gets a suggestion only if it is a typo',
  async () => {
    const here = await workspace({ init: false });
    const wrong = await Promise.all(['edti', 'foo'].map((word) => here.rye([word])));
    for (const { stderr } of wrong) expect(stderr).not.toMatch(/Did you mean.*(?:init|tool)/);
    expect((await here.rye(['lits'])).stderr).toContain('Did you mean `rye list`?');
  },
  LIMIT,
);

test(
  'run accepts the path of a directive',
  async () => {
    const here = await workspace();
    const { code, stdout } = await here.rye(['run', '.ai/directives/example.md', '--dry-run']);
    expect({ code, stdout }).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('directive   example'),
    });
  },
  LIMIT,
);
