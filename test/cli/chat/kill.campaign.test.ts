import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setImmediate as tick } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Lab, openLab } from '../../attacks/lab.ts';
import { cliPackage } from '../../helpers/run-cli.ts';
import { type Tmux, TmuxServer } from '../../helpers/tmux.ts';
import { reply, text, type WireTurn } from '../../helpers/wire-server.ts';

/** Number of times that each message is sent and its chat killed. */
const ROUNDS = Number(process.env['RYE_SEEDS'] ?? 2);

let lab: Lab;
let server: TmuxServer;
let program = '';
let isHeld = false;

const HELD: WireTurn = {
  steps: [text('Working on it.'), { kind: 'wait', until: new Promise(() => {}) }],
};

beforeAll(async () => {
  lab = await openLab();
  await lab.model(() => (isHeld ? HELD : reply('Answered.')));
  program = `${process.execPath} ${path.join(await cliPackage(), 'bin', 'rye.js')}`;
  server = new TmuxServer('rye-chat-kill', { ...lab.env, NO_COLOR: '1' });
});
afterAll(async () => {
  server.close();
  await lab.remove();
});

/** Waits for bytes that the terminal gets, without a pause in which the program could do more. */
async function seen(file: string, wanted: string): Promise<void> {
  const end = performance.now() + 60_000;
  while (!readFileSync(file, 'utf8').includes(wanted)) {
    if (performance.now() > end) throw new Error(`not seen: ${wanted}`);
    await tick();
  }
}

async function open(id: string): Promise<{ readonly terminal: Tmux; readonly file: string }> {
  const terminal = server.open(id, lab.project);
  const file = path.join(lab.home, `${id}.bytes`);
  terminal.record(file);
  terminal.run(`${program} chat --thread-id ${id}`);
  await terminal.shows('› Ask anything');
  return { terminal, file };
}

/** Everything that the thread keeps after the crash: its log, its inputs and its inbox. */
async function kept(threadId: string): Promise<string> {
  const rye = lab.rye();
  await rye.recovery.recover({ threadId });
  const entries = await rye.trees.path(threadId);
  return JSON.stringify([entries, await rye.deliveries.list(threadId)]);
}

it('a message that is shown as sent survives a kill in the same moment', async ({ task }) => {
  for (let number = 0; number < ROUNDS; number += 1) {
    const round = `${task.result?.retryCount ?? 0}-${number}`;
    isHeld = true;
    const first = await open(`first-${round}`);
    first.terminal.enter('zebra-first');
    // the echo has an empty line after it, the field the line of the facts
    await seen(first.file, '› zebra-first\r\n\r\n');
    process.kill(first.terminal.pid(), 'SIGKILL');
    await first.terminal.shows('exit=137');
    expect(await kept(`first-${round}`), 'the first message').toContain('zebra-first');

    isHeld = false;
    const later = await open(`later-${round}`);
    later.terminal.enter('zebra-before');
    await later.terminal.shows(/Answered\.[^]*› Ask anything/);
    isHeld = true;
    later.terminal.enter('zebra-later');
    await seen(later.file, '› zebra-later\r\n\r\n');
    process.kill(later.terminal.pid(), 'SIGKILL');
    await later.terminal.shows('exit=137');
    expect(await kept(`later-${round}`), 'a later message').toContain('zebra-later');

    const steered = await open(`steered-${round}`);
    steered.terminal.enter('zebra-go');
    await steered.terminal.shows('Working on it.');
    steered.terminal.enter('zebra-steer');
    await seen(steered.file, 'queued: zebra-steer');
    process.kill(steered.terminal.pid(), 'SIGKILL');
    await steered.terminal.shows('exit=137');
    expect(await kept(`steered-${round}`), 'a steering message').toContain('zebra-steer');
  }
}, 600_000);
