import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { ESCAPE, withoutStyles } from '../../src/faces/ui/terminal-text.ts';
import { openTerminal, type Terminal } from '../helpers/terminal.ts';
import { calls, reply, startWireServer, text, thinking, toolUse } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const LIMIT = 300_000;

const WORK = `# work

\`\`\`xml
<directive name="work" version="1.0.0">
  <metadata>
    <description>Does the work of a test.</description>
    <category></category>
    <author>test</author>
    <model tier="general" provider="anthropic" />
    <limits turns="9" spend="0.50" />
    <permissions><execute><tool>rye/file-system/*</tool></execute></permissions>
  </metadata>
</directive>
\`\`\`

Do the work.
`;

const HOOKS = `hooks:
  - id: protect_env
    event: tool_gate
    condition: { path: input.path, op: eq, value: .env }
    action: { control: fail, error: .env files are private }
`;

interface Place {
  readonly here: Workspace;
  readonly env: Readonly<Record<string, string>>;
  readonly open: (env?: Readonly<Record<string, string>>) => Promise<Terminal>;
}

/** A project whose model thinks, is refused a file, reads the folder, then answers in two paragraphs. */
async function place(until?: Promise<void>): Promise<Place> {
  const here = await workspace();
  const server = await startWireServer(({ body }) => {
    if (body.messages.some(({ role }) => role === 'assistant')) {
      const end = text('Second **paragraph**.');
      if (!until) return reply('First paragraph.\n\nSecond **paragraph**.');
      return { steps: [text('First paragraph.\n\n'), { kind: 'wait', until }, end] };
    }
    return calls(
      thinking('Is there a secret file?'),
      toolUse('rye_file_system_read', { path: '.env' }),
      toolUse('rye_file_system_ls', { path: 'a-folder-with-a-long-name/and-another-one-below-it' }),
    );
  });
  onTestFinished(() => server.close());
  mkdirSync(path.join(here.project, 'a-folder-with-a-long-name/and-another-one-below-it'), {
    recursive: true,
  });
  writeFileSync(path.join(here.project, '.env'), 'A=1\n');
  writeFileSync(path.join(here.project, '.ai/directives/work.md'), WORK);
  await here.rye(['sign', 'directive', 'work']);
  const config = path.join(here.project, '.ai/config/agent');
  mkdirSync(config, { recursive: true });
  writeFileSync(path.join(config, 'hooks.yaml'), HOOKS);
  await here.rye(['sign', 'config', 'agent/hooks']);
  const env = { ANTHROPIC_API_KEY: 'x', ANTHROPIC_BASE_URL: server.url };
  return {
    here,
    env,
    open: async (more = {}) => {
      const size = { columns: 100, rows: 30 };
      const { project: cwd, home } = here;
      const terminal = await openTerminal({ cwd, home, ...size, env: { ...env, ...more } });
      onTestFinished(terminal.close);
      return terminal;
    },
  };
}

const FRAME =
  /^work · sonnet-5\.5 .*\n[^]*✗ read \.env +refused [^]*hook protect_env: \.env files are private\n[^]*\n {2}First paragraph\.\n\n {2}Second paragraph\.\n\n✓ 2 turns /;

test(
  'the live view has colors unless NO_COLOR or --no-color forbids them, also against FORCE_COLOR',
  async () => {
    const { open } = await place();
    const cases: readonly (readonly [Readonly<Record<string, string>>, string, boolean])[] = [
      [{}, '', true],
      [{ NO_COLOR: '1' }, '', false],
      [{}, '--no-color', false],
      [{ FORCE_COLOR: '0' }, '', false],
      [{ NO_COLOR: '1', FORCE_COLOR: '1' }, '', false],
    ];
    for (const [env, option, hasColors] of cases) {
      const terminal = await open(env);
      terminal.run(`run work ${option}`);
      await terminal.shows('exit=0');
      expect(terminal.screen()).toMatch(FRAME);
      const seen = { env, option, hasColors: terminal.colors().includes(`${ESCAPE}[`) };
      expect(seen).toEqual({ env, option, hasColors });
    }
  },
  LIMIT,
);

test(
  'progress to a pipe has no colors unless FORCE_COLOR asks for them, and never moves the cursor',
  async () => {
    const { here, env } = await place();
    const plain = await here.rye(['run', 'work'], { env });
    expect(plain.stderr).toContain('protect_env');
    expect(plain.stderr + plain.stdout).not.toContain(ESCAPE);
    const forced = await here.rye(['run', 'work'], { env: { ...env, FORCE_COLOR: '1' } });
    expect(forced.stderr).toContain(`${ESCAPE}[3`);
    expect(withoutStyles(forced.stderr)).not.toContain(ESCAPE);
    expect(forced.stdout).not.toContain(ESCAPE);
    const both = { env: { ...env, FORCE_COLOR: '1', NO_COLOR: '1' } };
    expect((await here.rye(['run', 'work'], both)).stderr).not.toContain(ESCAPE);
  },
  LIMIT,
);

test(
  '-v adds thinking, hooks, requests and the cost of each turn to the live view',
  async () => {
    const { open } = await place();
    const terminal = await open();
    const details = [
      /Is there a secret file\?/,
      /· hook protect_env on tool_gate: fail, \d+ms/,
      /· turn 1: request to anthropic\/\S+, up to [\d.k]+ tokens in, \d+ out/,
      /· turn 2 done: .*so far/,
    ];
    terminal.run('run work');
    await terminal.shows('exit=0');
    for (const detail of details) expect(terminal.screen()).not.toMatch(detail);
    terminal.run('run work -v');
    await terminal.shows('exit=0');
    for (const detail of details) expect(terminal.screen()).toMatch(detail);
  },
  LIMIT,
);

test(
  'a terminal that is resized while a run speaks shows each line once and in the width of now',
  async () => {
    let release = (): void => {};
    const until = new Promise<void>((resolve) => {
      release = resolve;
    });
    const { open } = await place(until);
    const terminal = await open();
    terminal.run('run work');
    await terminal.shows(/First paragraph\.\n[^]*turn 2 of 9 · .* tokens/);
    for (const [columns, rows] of [
      [50, 30],
      [140, 20],
      [80, 30],
    ] as const) {
      terminal.resize(columns, rows);
      await terminal.shows(/First paragraph\.\n\n[^\n]* turn 2 of 9 · [^\n]*$/);
    }
    release();
    await terminal.shows('exit=0');
    for (const once of [/✗ read \.env/g, /First paragraph/g, /Second paragraph/g, /✓ 2 turns/g]) {
      expect(terminal.screen().match(once)).toHaveLength(1);
    }
    expect(terminal.screen()).not.toContain('turn 2 of 9');
  },
  LIMIT,
);
