// Real signals in four phases of a run: each must end cleanly, with a final event, a final state and no process left.
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { leftRunning, openPlace, pool, processesNaming, row } from './harness.mjs';

const THREAD = 't';
const MARK = 'mark';

const bash = (command) => ({ tools: [{ name: 'rye_bash', input: { command } }] });
const never = new Promise(() => {});

/** The model's answers, and the sign that the phase has begun; `name` marks processes of this trial. */
const PHASES = {
  'an answer streams': {
    answer: () => ({ words: ['Half of an '], until: never }),
    begun: (_, output) => output.stdout.includes('"token_delta"'),
  },
  'the model is silent': {
    answer: () => ({ silent: true }),
    begun: (_, __, session) => session.requests.length > 0,
  },
  'a tool runs': {
    answer: (name) => bash(`: ${name}; echo on > ${MARK}; sleep 300`),
    begun: (place) => existsSync(path.join(place.project, MARK)),
  },
  'a tool that ignores signals runs': {
    answer: (name) =>
      bash(`: ${name}; trap '' TERM HUP INT; echo on > ${MARK}; while :; do sleep 0.05; done`),
    begun: (place) => existsSync(path.join(place.project, MARK)),
  },
};

const SIGNALS = {
  SIGINT: ['SIGINT'],
  SIGTERM: ['SIGTERM'],
  SIGHUP: ['SIGHUP'],
  'SIGINT twice': ['SIGINT', 'SIGINT'],
  'SIGINT, SIGTERM, SIGHUP': ['SIGINT', 'SIGTERM', 'SIGHUP'],
  '20 × SIGINT': Array.from({ length: 20 }, () => 'SIGINT'),
};

const STREAMED = ['run', 'work', '--thread-id', THREAD, '--output-format', 'stream-json'];

/** The last event of `--output-format stream-json`, if it is whole. */
function lastEvent(stdout) {
  try {
    return JSON.parse(stdout.trimEnd().split('\n').at(-1));
  } catch {
    return undefined;
  }
}

function checkOutput(result, { code, signal, stdout, stderr }, name) {
  if (code !== 130) result.fail('broken', `${name}: exit ${code ?? signal}: ${stderr}`);
  const last = lastEvent(stdout);
  if (last?.status === undefined && last?.payload?.status === undefined)
    result.fail('lost', `${name}: the last event is ${stdout.slice(-200)}`);
}

async function checkEnd(result, place, name) {
  if ((await leftRunning(place)) > 0) result.fail('running', name);
  const { document } = await place.json('threads', 'show', THREAD);
  if (document?.thread?.status !== 'cancelled')
    result.fail('broken', `${name}: status ${document?.thread?.status}`);
  const log = readFileSync(place.thread(THREAD, 'transcript.jsonl'), 'utf8');
  if (!log.includes('"thread_finished"')) result.fail('lost', `${name}: no end in the log`);
  const verified = await place.rye('verify', 'thread', THREAD);
  if (verified.code !== 0) result.fail('broken', `${name}: verify: ${verified.stdout}`);
  const left = processesNaming(place.root);
  if (left > 0) result.fail('running', `${name}: ${left} processes`);
}

async function interrupt(result, model, { phase, signals, name, random }) {
  let place;
  const { answer, begun } = PHASES[phase];
  const session = model.session(() => answer(place.root));
  place = await openPlace(session);
  try {
    const { child, output, done } = place.start(STREAMED);
    while (!begun(place, output, session) && child.exitCode === null) await delay(20);
    for (const signal of signals) {
      child.kill(signal);
      await delay(random() * 40);
    }
    checkOutput(result, await done, name);
    await checkEnd(result, place, name);
    result.n += 1;
  } finally {
    place.remove();
  }
}

export async function run({ model, random, count = 1, width }) {
  const result = row('signals in four phases of a run');
  const trials = Object.keys(PHASES).flatMap((phase) =>
    Object.entries(SIGNALS).flatMap(([name, signals]) =>
      Array.from({ length: count }, () => ({ phase, signals, name: `${name} while ${phase}` })),
    ),
  );
  await pool(trials.length, width, (index) =>
    interrupt(result, model, { ...trials[index], random }),
  );
  return [result];
}
