// Measures the memory of one whole process that streams an answer of many pieces through the loop, the log and the shipped
// stream rules. Fails if the largest answer takes over 100 MB more than the smallest.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as delay } from 'node:timers/promises';
import { openWorkspace, RYE, row, startServer } from './harness.mjs';

const COUNTS = (process.env.RYE_BENCH_DELTAS ?? '100000,1000000').split(',').map(Number);
const LIMIT_MB = 100;
const SAMPLE_MS = 20;
const MAX_OUTPUT_CHARS = 4000;

const TALK = `# Talk

\`\`\`xml
<directive name="talk" version="1.0.0"><metadata><description>Talk.</description><category></category><author>bench</author><limits turns="1" tokens="100000000" spend="100" /></metadata></directive>
\`\`\`

Talk.
`;

/** A model that may answer as long as this: rye stops an answer that exceeds its model's limit. */
const PROVIDER = `kind: anthropic
base_url: http://127.0.0.1:1
base_url_env: BENCH_URL
api_key_env: BENCH_KEY
tiers: { general: endless }
fallback: []
prices_as_of: "2026-11-22"
models:
  endless:
    context_window: 100000000
    max_output_tokens: 50000000
    pricing: { input: 0, output: 0 }
    thinking: none
    capabilities: [tools]
`;

/** Returns the peak resident memory of a running process in MB; 0 if it has exited. */
function peakOf(pid) {
  try {
    const [, kilobytes = '0'] =
      /^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    return Number(kilobytes) / 1024;
  } catch {
    return 0;
  }
}

async function talk(workspace, url) {
  const began = performance.now();
  const child = spawn(process.execPath, [RYE, '--json', 'run', 'talk', '--provider', 'bench'], {
    cwd: workspace.project,
    env: { ...workspace.env, BENCH_KEY: 'none', BENCH_URL: url },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  // the last events on standard output name the cause of a failure
  let output = '';
  const keepEnd = (text) => {
    output = (output + text).slice(-MAX_OUTPUT_CHARS);
  };
  child.stdout.setEncoding('utf8').on('data', keepEnd);
  child.stderr.setEncoding('utf8').on('data', keepEnd);
  let peak = 0;
  while (child.exitCode === null && child.signalCode === null) {
    peak = Math.max(peak, peakOf(child.pid));
    await delay(SAMPLE_MS);
  }
  if (child.exitCode !== 0)
    throw new Error(`rye run talk exited with ${child.exitCode}: ${output}`);
  return { peak, took: performance.now() - began };
}

export async function run() {
  const workspace = openWorkspace();
  const server = await startServer('delta-server.mjs');
  try {
    const file = path.join(workspace.project, '.ai/directives/talk.md');
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, TALK);
    workspace.rye('sign', 'directive', 'talk');
    const provider = path.join(workspace.project, '.ai/config/agent/providers/bench.yaml');
    mkdirSync(path.dirname(provider), { recursive: true });
    writeFileSync(provider, PROVIDER);
    workspace.rye('sign', 'config', 'agent/providers/bench');
    row('an answer in pieces, whole process', 'peak memory', 'a piece');
    const peaks = [];
    for (const count of COUNTS) {
      const { peak, took } = await talk(workspace, `${server.url}/${count}`);
      peaks.push(peak);
      row(`  ${count} pieces`, `${peak.toFixed(0)} MB`, `${((took * 1000) / count).toFixed(1)} µs`);
    }
    const grown = Math.max(...peaks) - peaks[0];
    if (grown > LIMIT_MB) throw new Error(`memory grows with the answer: ${grown.toFixed(0)} MB`);
  } finally {
    server.close();
    workspace.close();
  }
}
