import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { formatTable, wrapped } from '../../src/faces/cli/output.ts';
import { displayWidth } from '../../src/faces/ui/terminal-text.ts';
import { oneLine, shown } from '../../src/faces/ui/visible.ts';
import { sandboxWorks } from '../helpers/sandbox.ts';
import { openTerminal, type Terminal } from '../helpers/terminal.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const LIMIT = 300_000;
const COLUMNS = 60;

let commands = 0;

async function narrow(
  rows = 150,
): Promise<{ readonly here: Workspace; readonly terminal: Terminal }> {
  const here = await workspace();
  const { project: cwd, home } = here;
  const env = { ANTHROPIC_API_KEY: 'sk-ant-1' };
  const terminal = await openTerminal({ cwd, home, columns: COLUMNS, rows, env });
  onTestFinished(() => terminal.close());
  return { here, terminal };
}

/** Runs a command and returns the lines of its screen. A line of full width was most likely broken by the terminal. */
async function linesOf(terminal: Terminal, args: string): Promise<readonly string[]> {
  // the shell computes the number, so neither the typed line nor the end of an earlier command matches
  commands += 1;
  terminal.run(`${args}; echo "end=$((${commands}))"`);
  const end = new RegExp(`^end=${commands}$`, 'm');
  await terminal.shows(end);
  const screen = terminal.screen();
  return screen.slice(0, screen.search(end)).split('\n');
}

it(
  'list, hooks list, search and doctor fit into 60 columns of a terminal',
  async () => {
    const { here, terminal } = await narrow();
    mkdirSync(path.join(here.project, '.ai/config/agent'), { recursive: true });
    const hooks = 'hooks:\n  - id: mine\n    event: limit\n    action: { control: fail }\n';
    writeFileSync(path.join(here.project, '.ai/config/agent/hooks.yaml'), hooks);
    await here.rye(['sign', 'config', 'agent/hooks']);

    const list = await linesOf(terminal, 'list tool');
    expect(list).toContainEqual(expect.stringMatching(/^ID +SIGNATURE +DESCRIPTION$/));
    expect(list).toContainEqual(expect.stringMatching(/^rye\/bash +builtin +Runs a shell com…$/));

    const listed = await linesOf(terminal, 'hooks list');
    expect(listed).toContainEqual(
      expect.stringMatching(/^layer 2: .*\/\.ai\/config\/agent\/hook_conditions\.yaml$/),
    );
    expect(listed).toContainEqual(
      expect.stringMatching(/^ {2}\d+ +error +default_retry_transient$/),
    );
    expect(listed).toContainEqual('layer 3: .ai/config/agent/hooks.yaml');
    expect(listed).toContainEqual(expect.stringMatching(/^ {2}3 +limit +mine$/));

    const found = await linesOf(terminal, 'search budget');
    expect(found[0]).toMatch(/^knowledge rye\/agent\/protocol\/execute \(system\)/);
    expect(found).toContainEqual(expect.stringMatching(/^ {2}.*\/protocol\/execute\.md$/));
    for (const line of found.slice(1, 5)) expect(line).toMatch(/^ {2}\S/);

    const doctor = await linesOf(terminal, 'doctor -c resilience.tools.sandbox=off');
    // without a sandbox to turn on there is no hint
    if (await sandboxWorks()) expect(doctor).toContainEqual(expect.stringMatching(/^ {5}hint: \S/));
    expect(doctor.join(' ')).toMatch(/private data, untrusted +input and network access/);
    for (const line of doctor) expect(line).toMatch(/^(?:ok|warn|fail) |^ {5}\S|^$/);
  },
  LIMIT,
);

it(
  'models list and models prices fit into 60 columns of a terminal',
  async () => {
    const { here, terminal } = await narrow();
    await here.rye(['models', 'use', 'anthropic/claude-sonnet-5-5', '--space', 'project']);
    const models = await linesOf(terminal, 'models list');
    const at = models.findIndex((line) => line.startsWith('Default: '));
    expect(at).toBeGreaterThan(0);
    expect(models.slice(at, at + 4).join(' ')).toContain('Change it with: rye models use MODEL');
    const prices = await linesOf(terminal, 'models prices');
    expect(prices).toContainEqual(
      expect.stringMatching(/^ {2}from .*\/\.ai\/config\/agent\/providers\/gemini\.yaml$/),
    );
    for (const lines of [models, prices]) {
      // a word that the terminal itself broke would begin in the first column
      for (const line of lines) expect(line.trimEnd().length).toBeLessThanOrEqual(COLUMNS);
    }
  },
  LIMIT,
);

it(
  'config show and rules list fit into 60 columns of a terminal',
  async () => {
    const { here, terminal } = await narrow(1500);
    const folder = path.join(here.project, '.ai/config/agent');
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'resilience.yaml'), 'limits: { turns: 7 }\n');
    await here.rye(['sign', 'config', 'agent/resilience']);
    const values = await linesOf(terminal, 'config show');
    const at = values.indexOf('resilience.limits.turns');
    expect(values.slice(at, at + 3)).toEqual([
      'resilience.limits.turns',
      '  7',
      expect.stringMatching(/^ {2}\.ai\/config\/agent\/resilience\.yaml:\d+$/),
    ]);
    for (const line of values)
      expect(line).toMatch(/^(?:[a-z]\S*|\d+ defaults not shown: .*| {2}\S.*|exit=0|)$/);
    const rules = await linesOf(terminal, 'rules list');
    expect(rules).toContainEqual(expect.stringMatching(/^USE +RULE +REPEATS +ABOUT$/));
    expect(rules).toContainEqual(
      expect.stringMatching(/^stream +go-no-ignored-error +once +Errors thrown \S*…$/),
    );
  },
  LIMIT,
);

const terminalOf = (columns: number) => ({
  isTty: true,
  columns,
  rows: 24,
  write: () => undefined,
  writeRaw: () => undefined,
});

it('formatTable drops optional columns one by one, and none in a pipe', () => {
  const headings = ['ID', 'SPACE', 'VERSION', 'DESCRIPTION'];
  const rows = [['rye/core/hello', 'system', '1.0.0', 'Greet someone and return the greeting']];
  const widths = [100, 60, 45, 36, 30].map((columns) => {
    const lines = formatTable(headings, rows, terminalOf(columns), [
      'VERSION',
      'SPACE',
      'DESCRIPTION',
    ]);
    for (const line of lines) expect(displayWidth(line)).toBeLessThanOrEqual(columns);
    return lines[0]?.split(/ +/).length;
  });
  expect(widths).toEqual([4, 4, 3, 2, 1]);
  const piped = { ...terminalOf(30), isTty: false };
  expect(formatTable(headings, rows, piped, ['VERSION'])[1]).toContain('1.0.0');
});

it('wrapped indents what follows, fits wide characters, and leaves a piped line whole', () => {
  const line = oneLine(`ok   models: ${'漢字 '.repeat(30).trim()}`);
  const lines = wrapped(line, terminalOf(40), shown`     `);
  expect(lines.length).toBeGreaterThan(3);
  for (const [index, one] of lines.entries()) {
    expect(displayWidth(one)).toBeLessThanOrEqual(40);
    if (index > 0) expect(one).toMatch(/^ {5}漢/);
  }
  expect(wrapped(line, { ...terminalOf(40), isTty: false })).toEqual([line]);
});
