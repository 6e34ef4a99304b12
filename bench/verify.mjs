// The memory of `rye verify thread` on a log of about 500 MB, beside that on a short one, and its time over sha256sum. The log is an
// imported session, whose export is long and whose checkpoints are few.
import { spawnSync } from 'node:child_process';
import { closeSync, openSync, statSync, writeSync } from 'node:fs';
import path from 'node:path';
import {
  interleave,
  measureProcess,
  median,
  mib,
  openWorkspace,
  peakMemory,
  RYE,
  record,
  row,
  times,
  verdict,
} from './harness.mjs';

const ENTRIES = { short: 300, long: 400_000 };
const ROUNDS = 3;
const TARGET_MIB = 100;
const TIME = '2026-02-17T10:00:56.000Z';
const USAGE = {
  input: 100,
  output: 10,
  cacheRead: 0,
  cacheWrite: 0,
  totalTokens: 110,
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
};

export async function run() {
  const { env, project, rye, close } = openWorkspace();
  const options = { cwd: project, env };
  try {
    for (const [name, entries] of Object.entries(ENTRIES)) {
      const file = path.join(env.HOME, `${name}.jsonl`);
      writeSession(file, entries);
      rye('threads', 'import', file, '--thread-id', name);
    }
    const log = path.join(project, '.ai', 'state', 'threads', 'long', 'transcript.jsonl');
    const verify = [RYE, 'verify', 'thread', 'long'];
    const samples = await interleave(
      {
        'rye verify': () => measureProcess(verify, options).wall,
        sha256sum: () => timed(() => spawnSync('sha256sum', [log])),
        memory: () => peakMemory(verify, options),
        'short log': () => peakMemory([RYE, 'verify', 'thread', 'short'], options),
      },
      ROUNDS,
    );
    const of = (name) => median(samples[name]);
    const size = `${(statSync(log).size / 1e6).toFixed(0)} MB`;
    row(`verify a log of ${size}`, 'memory', 'of a short log', 'target', 'over sha256sum');
    record('time over sha256sum', of('rye verify') / of('sha256sum'));
    record('memory over a short log', of('memory') / of('short log'));
    row(
      '  rye verify thread',
      mib(of('memory')),
      mib(of('short log')),
      verdict(of('memory'), TARGET_MIB, mib),
      times(of('rye verify') / of('sha256sum')),
    );
  } finally {
    close();
  }
}

function timed(action) {
  const started = performance.now();
  action();
  return performance.now() - started;
}

/** A session of pi: questions and answers in one line of messages. */
function writeSession(file, entries) {
  const output = openSync(file, 'w');
  const put = (value) => writeSync(output, `${JSON.stringify(value)}\n`);
  put({ type: 'session', version: 3, id: `bench-${entries}`, timestamp: TIME, cwd: '/' });
  for (let at = 1; at <= entries; at += 1) {
    const parentId = at === 1 ? null : idOf(at - 1);
    put({ type: 'message', id: idOf(at), parentId, timestamp: TIME, message: messageOf(at) });
  }
  closeSync(output);
}

function idOf(at) {
  return at.toString(16).padStart(8, '0');
}

function messageOf(at) {
  const timestamp = Date.parse(TIME);
  const text = `Entry ${at}. ${'What is wrong here, and what is not? '.repeat(7)}`;
  const content = [{ type: 'text', text }];
  if (at % 2 === 1) return { role: 'user', content, timestamp };
  const origin = { api: 'anthropic-messages', provider: 'anthropic', model: 'demo' };
  return { role: 'assistant', content, ...origin, usage: USAGE, stopReason: 'stop', timestamp };
}
