// Memory of one whole process that streams an answer of many pieces through the loop, the log and the shipped stream rules.
// Ten times the pieces may take no more than the text itself needs beyond it: it fails at 100 MB more.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as delay } from 'node:timers/promises';
import { openWorkspace, RYE, row, startServer } from './harness.mjs';

const COUNTS = (process.env.RYE_BENCH_DELTAS ?? '100000,1000000').split(',').map(Number);
const LIMIT_MB = 100;
const SAMPLE_MS = 20;

const TALK = `# Talk

\`\`\`xml
<directive name="talk" version="1.0.0"><metadata><description>Talk.</description><category></category><author>bench</author><limits turns="1" tokens="100000000" spend="100" /></metadata></directive>
\`\`\`

Talk.
`;

/** Peak resident memory in MB of a process that lives; 0 where it is gone. */
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
  const child = spawn(process.execPath, [RYE, '--json', 'run', 'talk', '--allow-unpriced'], {
    cwd: workspace.project,
    env: { ...workspace.env, ANTHROPIC_API_KEY: 'sk-ant-bench', ANTHROPIC_BASE_URL: url },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let complaint = '';
  child.stderr.setEncoding('utf8').on('data', (text) => {
    complaint += text;
  });
  let peak = 0;
  while (child.exitCode === null && child.signalCode === null) {
    peak = Math.max(peak, peakOf(child.pid));
    await delay(SAMPLE_MS);
  }
  if (child.exitCode !== 0) throw new Error(`rye run talk: ${complaint}`);
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
