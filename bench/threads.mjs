// Threads in one process: the cost of a warm thread of one turn, and 64 threads of 10 tool turns at once on a model that
// answers after 200 ms, over a bare client that does the same. Targets: 220 turns a second of 320, p99 of the event loop's
// delay ≤ 40 ms.
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import process from 'node:process';
import { openRye } from '../dist/index.js';
import {
  cpuSince,
  median,
  ms,
  openWorkspace,
  row,
  startServer,
  TURN_DIRECTIVE,
  verdict,
} from './harness.mjs';

const WARM_UP = 15;
const THREADS = 40;
/** Threads after which V8 has compiled most functions of a thread. */
const LONG_WARM_UP = 200;
const AT_ONCE = 64;
const TURNS = 10;
const DELAY_MS = 200;
const ROUNDS = 9;
const TARGETS = { thread: 12, rate: 220, p99: 40 };

const TOOLS_DIRECTIVE = [
  '```xml',
  '<directive name="turns" version="1.0.0">',
  '<metadata><description>Tool turns.</description><category></category><author>bench</author>',
  `<limits turns="${TURNS}" spend="10" tokens="100000000"/>`,
  '<permissions><execute><tool>rye/file-system/ls</tool></execute></permissions></metadata>',
  '</directive>',
  '```',
  '',
  'List the folder.',
  '',
].join('\n');

function open(workspace, url) {
  return openRye({
    projectPath: workspace.project,
    userSpacePath: workspace.env.HOME,
    env: { PATH: process.env.PATH, ANTHROPIC_API_KEY: 'bench', ANTHROPIC_BASE_URL: url },
  });
}

async function oneTurn(rye) {
  const begun = process.cpuUsage();
  const { status } = await rye.threads.execute({ directiveId: 'turn' });
  if (status !== 'completed') throw new Error(status);
  return cpuSince(begun);
}

/** Turns a second, the p99 of the event loop's delay and processor milliseconds a turn of `work`, once per thread. */
async function atOnce(work) {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  const cpu = process.cpuUsage();
  const begun = performance.now();
  delay.enable();
  await Promise.all(Array.from({ length: AT_ONCE }, () => work()));
  delay.disable();
  const turns = AT_ONCE * TURNS;
  return {
    rate: (turns / (performance.now() - begun)) * 1000,
    p99: delay.percentile(99) / 1e6,
    cpu: cpuSince(cpu) / turns,
  };
}

async function bareTurns(url) {
  for (let turn = 0; turn < TURNS; turn += 1) {
    const response = await fetch(`${url}/v1/messages`, {
      method: 'POST',
      body: JSON.stringify({ messages: [{ role: 'user', content: 'List the folder.' }] }),
    });
    await response.text();
  }
}

export async function run() {
  const workspace = openWorkspace();
  const quick = await startServer('./wire.mjs');
  const slow = await startServer('./wire.mjs', [String(DELAY_MS)]);
  try {
    const folder = path.join(workspace.project, '.ai', 'directives');
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'turn.md'), TURN_DIRECTIVE);
    writeFileSync(path.join(folder, 'turns.md'), TOOLS_DIRECTIVE);
    workspace.rye('sign', 'directive', 'turn');
    workspace.rye('sign', 'directive', 'turns');
    const rye = open(workspace, quick.url);
    const costs = [];
    for (let at = 0; at < LONG_WARM_UP + THREADS; at += 1) costs.push(await oneTurn(rye));
    rye.close();
    row('threads in one process', 'CPU', 'target');
    for (const [name, after] of [
      ['  a warm thread of one turn', WARM_UP],
      [`  the same, after ${LONG_WARM_UP} threads`, LONG_WARM_UP],
    ]) {
      const thread = median(costs.slice(after, after + THREADS));
      row(name, ms(thread), verdict(thread, TARGETS.thread, ms));
    }
    const busy = open(workspace, slow.url);
    const threads = async () => {
      const { error } = await busy.threads.execute({
        directiveId: 'turns',
        behavior: { loop_repeats: 0 },
      });
      if (error?.code !== 'limit_turns') throw new Error(JSON.stringify(error));
    };
    const rounds = { bare: [], rye: [] };
    for (let round = 0; round < ROUNDS; round += 1) {
      rounds.bare.push(await atOnce(async () => await bareTurns(slow.url)));
      rounds.rye.push(await atOnce(threads));
    }
    busy.close();
    row(
      '64 threads at once, 200 ms a model call',
      'turns/s of 320',
      'loop delay p99',
      'CPU a turn',
      'target',
    );
    for (const [name, taken] of Object.entries(rounds)) {
      const typical = (read) => median(taken.map(read));
      row(
        `  ${name}`,
        typical(({ rate }) => rate).toFixed(0),
        ms(typical(({ p99 }) => p99)),
        ms(typical(({ cpu }) => cpu)),
        name === 'bare' ? '' : `≥ ${TARGETS.rate}/s, ≤ ${TARGETS.p99} ms`,
      );
    }
  } finally {
    quick.close();
    slow.close();
    workspace.close();
  }
}
