import { afterEach, beforeEach, expect, it } from 'vitest';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { openFakeTerminal } from '../helpers/fake-terminal.ts';
import {
  calls,
  reply,
  text,
  toolUse,
  type WireBody,
  type WireTurn,
} from '../helpers/wire-server.ts';

let lab: Lab;
let bodies: WireBody[] = [];
let turns: WireTurn[] = [];

beforeEach(async () => {
  bodies = [];
  turns = [];
  lab = await openLab();
  await lab.model(({ body }) => {
    bodies.push(body);
    return turns.shift() ?? reply('and slept.');
  });
  lab.signed(
    'directives/tell.md',
    directive('tell', {
      limits: 'turns="9" spend="1"',
      permissions: '<execute><tool>rye/file-system/ls</tool></execute>',
      body: 'Tell a story.',
    }),
  );
});
afterEach(async () => await lab.remove());

const times = (screen: string, words: string): number => screen.split(words).length - 1;
const never = new Promise(() => {});

async function interruptedRun(half: WireTurn, seen: string): Promise<string> {
  turns = [
    calls(text('I look at the folder.'), toolUse('rye_file_system_ls', { path: '.' })),
    half,
  ];
  const terminal = openFakeTerminal(['run', 'tell'], { cwd: lab.project, env: lab.env });
  const asked = bodies.length + 2;
  await expect.poll(() => bodies.length, { timeout: 60_000, interval: 5 }).toBe(asked);
  await terminal.shows(seen);
  terminal.interrupt();
  expect(await terminal.ended).toBe(130);
  return terminal.screen();
}

it('prints the text of no turn again after an interruption, and continues the answer that it cut', async () => {
  const screen = await interruptedRun(
    { steps: [text('The fox ran '), { kind: 'wait', until: never }] },
    'The fox ran',
  );
  expect(times(screen, 'I look at the folder.')).toBe(1);
  expect(times(screen, 'The fox ran')).toBe(1);
  const again = openFakeTerminal(['run', '--continue', 'tell'], { cwd: lab.project, env: lab.env });
  expect(await again.ended, again.stderr()).toBe(0);
  expect(times(again.screen(), 'and slept.')).toBe(1);
  expect(again.screen()).not.toContain('The fox ran');
  expect(JSON.stringify(bodies.at(-1)?.messages.slice(-2))).toMatch(
    /The fox ran [^]*exactly where/,
  );
  const [thread] = await lab.rye().threads.list();
  expect(thread?.result).toBe('The fox ran and slept.');
});

it('prints the text of no turn again if the interrupted answer has only a call, or nothing', async () => {
  const call = { kind: 'tool', name: 'rye_file_system_ls', chunks: ['{"pa'] } as const;
  for (const steps of [
    [{ kind: 'wait', until: never } as const],
    [call, { kind: 'wait', until: never } as const],
  ]) {
    const screen = await interruptedRun({ steps }, 'I look at the folder.');
    expect(times(screen, 'I look at the folder.')).toBe(1);
  }
});
