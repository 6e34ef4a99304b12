import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished } from 'vitest';
import type { ThreadTreeNode } from '../../src/kernel/app/api/threads.ts';
import { openTerminal, type Terminal } from '../helpers/terminal.ts';
import { calls, reply, startWireServer, text, toolUse } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const CHILDREN = 20;
const FAILING = new Set(['07', '19']);
const SLOW = '12';

/** A running thread `fan-demo` with 20 children: two have failed, and one still runs. */
export interface Fan {
  readonly here: Workspace;
  readonly env: Readonly<Record<string, string>>;
  /** Opens a terminal in the project. */
  readonly open: (columns: number, rows?: number) => Promise<Terminal>;
  /** Lets the last child end, and then its parent. */
  readonly release: () => void;
}

/** Starts a fan in the background and waits until only one child is left. */
export async function runningFan(): Promise<Fan> {
  let release = (): void => {};
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const server = await startWireServer(({ body }) => {
    const said = JSON.stringify(body.messages);
    const file = /Do summarize docs20\/f(\d\d)/.exec(said)?.[1];
    if (file === SLOW) return { steps: [{ kind: 'wait', until: gate }, text('Summary.')] };
    if (file !== undefined && FAILING.has(file)) {
      return {
        status: 400,
        error: { type: 'invalid_request_error', message: `f${file} is too large` },
      };
    }
    if (file !== undefined) return reply(`# Summary\n\nThe file f${file} is about **quolls**.`);
    if (body.messages.some(({ role }) => role === 'assistant')) {
      return reply('# Report\n\nThere are **two** failures.');
    }
    return calls(
      text('I will *fan* out.'),
      ...Array.from({ length: CHILDREN }, (_, at) => child(at + 1)),
    );
  });
  const here = await workspace();
  onTestFinished(async () => {
    release();
    // its process writes to the folder that is removed then
    await here.rye(['threads', 'wait', 'fan-demo']);
    await server.close();
  });
  for (const name of ['fan', 'summarize']) {
    writeFileSync(path.join(here.project, `.ai/directives/${name}.md`), directive(name));
    await here.rye(['sign', 'directive', name]);
  }
  const env = { ANTHROPIC_API_KEY: 'x', ANTHROPIC_BASE_URL: server.url };
  await here.json(['run', 'fan', '--async', '--thread-id', 'fan-demo'], { env });
  const left = async (): Promise<number> => {
    const { threads } = await here.json(['threads', 'tree', 'fan-demo']);
    const [root] = threads as readonly ThreadTreeNode[];
    const ended = root?.children.filter(({ thread }) => thread.completed_at !== null);
    return CHILDREN - (ended?.length ?? 0);
  };
  await expect.poll(left, { timeout: 120_000, interval: 200 }).toBe(1);
  return {
    here,
    env,
    release,
    open: async (columns, rows = 40) => {
      const { project: cwd, home } = here;
      const terminal = await openTerminal({ cwd, home, columns, rows, env });
      onTestFinished(terminal.close);
      return terminal;
    },
  };
}

function child(number: number): ReturnType<typeof toolUse> {
  const file = `docs20/f${String(number).padStart(2, '0')}.txt`;
  return toolUse('rye_execute', {
    item_type: 'directive',
    item_id: 'summarize',
    parameters: { file },
    limit_overrides: { spend: 0.05 },
  });
}

function directive(name: string): string {
  return `# ${name}

\`\`\`xml
<directive name="${name}" version="1.0.0">
  <metadata>
    <description>Does the work of a test.</description>
    <category></category>
    <author>test</author>
    <model tier="general" provider="anthropic" />
    <limits turns="9" spend="2.00" spawns="30" depth="3" />
    <permissions><execute><tool>rye/file-system/*</tool><directive>summarize</directive></execute></permissions>
  </metadata>
  <inputs><input name="file" type="string" default="">A file.</input></inputs>
</directive>
\`\`\`

Do ${name} {input:file?}.
`;
}

/** Sorts the lines of children by their files: children that start at once are in no order. */
function inOrder(screen: string): string {
  const lines = screen.split('\n');
  const isChild = (line: string): boolean => line.includes('docs20/f');
  const children = lines
    .filter(isChild)
    .map((line) => line.replace('└─', '├─'))
    .toSorted((left, right) => (fileOf(left) < fileOf(right) ? -1 : 1));
  return lines.map((line) => (isChild(line) ? (children.shift() ?? '') : line)).join('\n');
}

function fileOf(line: string): string {
  return line.slice(line.indexOf('docs20/f'));
}

/** Replaces what differs from run to run: the order of children, durations, the ends of IDs and what is cut because of them. */
export function steady(screen: string): string {
  const whole = inOrder(screen.slice(0, screen.indexOf('exit=')));
  return (
    whole
      .replaceAll(/\b(?:\d+m \d\ds|\d+(?:\.\d+)?m?s)\b */g, 'TIME ')
      .replaceAll(/summarize-\w{4}/g, 'summarize-XXXX')
      // where it is cut depends on the durations
      .replaceAll(/f\d\d is t.*$/gm, 'REASON')
      .replaceAll(/ +$/gm, '')
  );
}
