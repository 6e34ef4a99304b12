// What a tool turn costs in a whole process: runs of 40 and of 10 turns, divided by the 30 turns between them, against a
// client that only asks. Then the bytes that a turn adds to the log, against its messages as plain JSON lines.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import {
  interleave,
  measureProcess,
  median,
  ms,
  openWorkspace,
  RYE,
  range,
  record,
  row,
  startServer,
  times,
  verdict,
} from './harness.mjs';

const ROUNDS = 9;
const FEW = 10;
const MANY = 40;
const TARGET_MS = 6;
const BYTES_TARGET = 4;
const BARE = new URL('./bare-client.mjs', import.meta.url).pathname;

function directive(turns) {
  return [
    '```xml',
    `<directive name="turns${turns}" version="1.0.0">`,
    '<metadata><description>Tool turns.</description><category></category><author>bench</author>',
    '<limits turns="100" spend="10" tokens="100000000"/>',
    '<permissions><execute><tool>rye/file-system/ls</tool></execute></permissions></metadata>',
    '</directive>',
    '```',
    '',
    `List the folder. Call ${turns} times.`,
    '',
  ].join('\n');
}

/** The events of a thread's log, each with the bytes of its line. */
function eventsOf(project, threadId) {
  const file = path.join(project, '.ai/state/threads', threadId, 'transcript.jsonl');
  return readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => ({ ...JSON.parse(line), bytes: Buffer.byteLength(line) + 1 }));
}

function sum(counted) {
  return counted.reduce((total, { bytes }) => total + bytes, 0);
}

function bytesOf(project, threadId) {
  const events = eventsOf(project, threadId);
  const messages = events.filter(({ event_type: type }) => type === 'message');
  const plain = messages.map(({ payload }) => ({
    bytes: Buffer.byteLength(JSON.stringify(payload.message)) + 1,
  }));
  return { log: sum(events), plain: sum(plain) };
}

export async function run() {
  const workspace = openWorkspace();
  const { project, rye } = workspace;
  const server = await startServer('./wire.mjs');
  try {
    mkdirSync(path.join(project, '.ai', 'directives'), { recursive: true });
    mkdirSync(path.join(project, 'data'));
    for (const turns of [FEW, MANY]) {
      writeFileSync(path.join(project, '.ai', 'directives', `turns${turns}.md`), directive(turns));
      rye('sign', 'directive', `turns${turns}`);
    }
    const env = { ...workspace.env, ANTHROPIC_API_KEY: 'bench', ANTHROPIC_BASE_URL: server.url };
    let count = 0;
    const runOf = (turns) => () => {
      count += 1;
      const id = `t${turns}-${count}`;
      return measureProcess([RYE, 'run', `turns${turns}`, '-q', '--thread-id', id], {
        cwd: project,
        env,
      });
    };
    const bareOf = (turns) => () =>
      measureProcess([BARE, server.url, String(turns)], { cwd: project, env });
    const samples = await interleave(
      { bareFew: bareOf(FEW), bareMany: bareOf(MANY), few: runOf(FEW), many: runOf(MANY) },
      ROUNDS,
    );
    const perTurn = (fewer, more, clock) =>
      samples[more].map((sample, at) => (sample[clock] - samples[fewer][at][clock]) / (MANY - FEW));
    row('a tool turn of a whole process', 'wall', 'CPU', 'CPU, range', 'target, wall');
    const line = (name, fewer, more, target) => {
      const wall = median(perTurn(fewer, more, 'wall'));
      const cpu = perTurn(fewer, more, 'cpu');
      row(
        `  ${name}`,
        ms(wall),
        ms(median(cpu)),
        range(cpu, ms),
        target === undefined ? '' : verdict(wall, target, ms),
      );
    };
    line('bare client', 'bareFew', 'bareMany');
    line('rye run', 'few', 'many', TARGET_MS);
    const [small, large] = [bytesOf(project, `t${FEW}-1`), bytesOf(project, `t${MANY}-2`)];
    const turn = (kind) => (large[kind] - small[kind]) / (MANY - FEW);
    const ratio = turn('log') / turn('plain');
    record('log bytes over messages', ratio);
    row('bytes a turn', 'log', 'messages alone', 'ratio', 'target');
    row(
      '  a call of ls',
      turn('log').toFixed(0),
      turn('plain').toFixed(0),
      times(ratio),
      verdict(ratio, BYTES_TARGET, times),
    );
  } finally {
    server.close();
    workspace.close();
  }
}
