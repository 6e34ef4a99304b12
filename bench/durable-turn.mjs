// What a durable tool turn costs over a bare HTTP and SSE client, and where its milliseconds go: the provider's SDK, the
// log, its signature and fdatasync, the registry and the ledger, and the rest (loop, hooks, rules and the tool itself).
// One call in 50 pieces a turn, warm. Targets: 2.5 ms more than the bare client, 1.5 ms of them for what is durable.
import crypto from 'node:crypto';
import fs, { mkdirSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import process from 'node:process';
import Anthropic from '@anthropic-ai/sdk';
import Database from 'better-sqlite3';
import { openRye } from '../dist/index.js';
import {
  cpuSince,
  median,
  mib,
  ms,
  openWorkspace,
  peakMemory,
  RYE,
  record,
  row,
  startServer,
  times,
  verdict,
} from './harness.mjs';

const TURNS = 120;
const WARM_UP = 40;
const ROUNDS = 9;
const TARGET_MS = 2.5;
const STEP_TARGET_MS = 1.5;
const MEMORY_TARGET_MIB = 120;
/** Over the SDK's own loop. */
const SDK_TARGET = 2;

const DIRECTIVE = [
  '```xml',
  '<directive name="turns" version="1.0.0">',
  '<metadata><description>Many turns.</description><category></category><author>bench</author>',
  `<limits turns="${TURNS}" spend="100" tokens="100000000"/>`,
  '<permissions><execute><tool>rye/file-system/ls</tool></execute></permissions></metadata>',
  '</directive>',
  '```',
  '',
  'List the folder.',
  '',
].join('\n');

function grow(messages, turn, input) {
  const id = `t${turn}`;
  messages.push(
    { role: 'assistant', content: [{ type: 'tool_use', id, name: 'rye_file_system_ls', input }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content: 'data/' }] },
  );
}

/** Milliseconds, on the clock and of processors, of each turn of a client that does nothing but ask: the messages grow as rye's do. */
async function plainTurns(ask) {
  const messages = [{ role: 'user', content: DIRECTIVE }];
  const turns = [];
  for (let turn = 0; turn < TURNS; turn += 1) {
    const started = performance.now();
    const cpu = process.cpuUsage();
    const json = await ask({ model: 'bench', max_tokens: 1000, stream: true, messages });
    grow(messages, turn, JSON.parse(json));
    turns.push({ total: performance.now() - started, cpu: cpuSince(cpu) });
  }
  return turns;
}

/** fetch and a line splitter. */
function bareClient(url) {
  return async (request) => {
    const response = await fetch(`${url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': 'bench' },
      body: JSON.stringify(request),
    });
    let json = '';
    let rest = '';
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith('data:')) continue;
        json += JSON.parse(line.slice(5)).delta?.partial_json ?? '';
      }
    }
    return json;
  };
}

function sdkClient(url) {
  const client = new Anthropic({ baseURL: url, apiKey: 'bench', maxRetries: 0, logLevel: 'off' });
  return async (request) => {
    let json = '';
    const answer = client.messages.stream(request);
    answer.on('inputJson', (piece) => {
      json += piece;
    });
    await answer.done();
    return json;
  };
}

/** Adds up what is spent in functions of Node and of the database while a turn runs. */
class Phases {
  #spent = {};

  constructor() {
    fs.fdatasyncSync = this.#timed('fdatasync', fs.fdatasyncSync);
    fs.writeSync = this.#timed('write', fs.writeSync);
    crypto.sign = this.#timed('sign', crypto.sign);
    syncBuiltinESMExports();
    const transaction = Reflect.get(Database.prototype, 'transaction');
    const phases = this;
    Database.prototype.transaction = function timed(work) {
      const made = transaction.call(this, work);
      const phase = path.basename(this.name, '.db');
      return { immediate: phases.#timed(phase, (inner) => made.immediate(inner)) };
    };
  }

  /** Returns the time spent since the last call, by phase. */
  take() {
    const spent = this.#spent;
    this.#spent = {};
    return spent;
  }

  #timed(phase, work) {
    const phases = this;
    return function timed(...args) {
      const started = performance.now();
      try {
        return work.apply(this, args);
      } finally {
        const took = performance.now() - started;
        phases.#spent[phase] = (phases.#spent[phase] ?? 0) + took;
      }
    };
  }
}

async function ryeTurns(url, workspace, { durability, phases }) {
  const rye = openRye({
    projectPath: workspace.project,
    userSpacePath: workspace.env.HOME,
    env: { PATH: process.env.PATH, ANTHROPIC_API_KEY: 'bench', ANTHROPIC_BASE_URL: url },
    configOverrides: [`resilience.transcript.durability=${durability}`],
  });
  const turns = [];
  let last;
  let cpu = process.cpuUsage();
  const result = await rye.threads.execute({
    directiveId: 'turns',
    // every turn makes the same call
    behavior: { loop_repeats: 0 },
    onEvent: ({ event_type: type, payload }) => {
      if (type === 'tool_settled' && payload.outcome !== 'ok') throw new Error(payload.outcome);
      if (type !== 'cost') return;
      const now = performance.now();
      turns.push({ total: now - last, cpu: cpuSince(cpu), ...phases.take() });
      last = now;
      cpu = process.cpuUsage();
    },
  });
  rye.close();
  if (result.error?.code !== 'limit_turns') throw new Error(JSON.stringify(result.error));
  return turns;
}

/** Median over the warm turns of all rounds. */
function typical(rounds, read) {
  return median(rounds.flatMap((turns) => turns.slice(WARM_UP).map(read)));
}

export async function run() {
  const workspace = openWorkspace();
  const server = await startServer('./wire.mjs');
  const phases = new Phases();
  try {
    const folder = path.join(workspace.project, '.ai', 'directives');
    mkdirSync(folder, { recursive: true });
    mkdirSync(path.join(workspace.project, 'data'));
    writeFileSync(path.join(folder, 'turns.md'), DIRECTIVE);
    workspace.rye('sign', 'directive', 'turns');
    const rounds = { bare: [], sdk: [], durable: [], off: [] };
    for (let round = 0; round < ROUNDS; round += 1) {
      rounds.bare.push(await plainTurns(bareClient(server.url)));
      rounds.sdk.push(await plainTurns(sdkClient(server.url)));
      for (const durability of ['turn', 'off']) {
        const turns = await ryeTurns(server.url, workspace, { durability, phases });
        rounds[durability === 'off' ? 'off' : 'durable'].push(turns);
      }
    }
    const env = { ...workspace.env, ANTHROPIC_API_KEY: 'bench', ANTHROPIC_BASE_URL: server.url };
    const peak = peakMemory([RYE, 'run', 'turns', '-q'], { cwd: workspace.project, env });
    report(rounds, peak);
  } finally {
    server.close();
    workspace.close();
  }
}

const total = ({ total: spent }) => spent;
const cpu = ({ cpu: spent }) => spent;

function report({ bare, sdk, durable, off }, peak) {
  row(
    'tool turn, 1 call, 50 deltas, warm',
    'wall',
    'wall over bare',
    'CPU',
    'CPU over bare',
    'target',
  );
  const line = (label, turns, target) => {
    const overs = [total, cpu].map((read) => typical(turns, read) - typical(bare, read));
    const met = target === undefined ? '' : verdict(overs[1], target, ms);
    row(label, ms(typical(turns, total)), ms(overs[0]), ms(typical(turns, cpu)), ms(overs[1]), met);
  };
  line('  bare HTTP and SSE client', bare);
  line("  the provider's SDK alone", sdk);
  line('  rye, durable and signed', durable, TARGET_MS);
  line('  rye, durability off', off);
  const overSdk = typical(durable, cpu) / typical(sdk, cpu);
  record("CPU over the provider's SDK", overSdk);
  row(
    "  rye over the provider's SDK",
    '',
    '',
    times(overSdk),
    '',
    verdict(overSdk, SDK_TARGET, times),
  );
  const phase = (name) => typical(durable, (turn) => turn[name] ?? 0);
  for (const [label, name] of [
    ['log, written', 'write'],
    ['log, fdatasync', 'fdatasync'],
    ['checkpoint, signature', 'sign'],
    ['registry', 'registry'],
    ['ledger', 'budget_ledger'],
  ]) {
    row(`    in it: ${label}`, ms(phase(name)));
  }
  const names = ['write', 'fdatasync', 'sign', 'registry', 'budget_ledger'];
  const step = typical(durable, (turn) => names.reduce((sum, name) => sum + (turn[name] ?? 0), 0));
  row('  durable step: all of these', ms(step), '', '', verdict(step, STEP_TARGET_MS, ms));
  row(
    '  memory of a process that runs them',
    mib(peak),
    '',
    '',
    verdict(peak, MEMORY_TARGET_MIB, mib),
  );
}
