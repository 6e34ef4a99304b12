// The cost of the sandbox: `true` through rye's own runner of commands in a warm process, and a whole `rye run` with one call of
// `rye/bash`, each with the sandbox and without it, beside a bare `true`.
import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { openRye } from '../dist/index.js';
import {
  interleave,
  measureProcess,
  median,
  ms,
  openWorkspace,
  processRow,
  RYE,
  range,
  row,
  times,
  verdict,
} from './harness.mjs';

const CALLS = 60;
const ROUNDS = 15;
const TARGET = 3;
const OFF = 'resilience.tools.sandbox=off';
const ON = 'resilience.tools.sandbox=auto';
const CALL = {
  toolId: 'rye/bash',
  params: { command: 'exec true' },
  acknowledge: ['elevated'],
};
const DIRECTIVE = `\`\`\`xml
<directive name="call" version="1.0.0">
<metadata><description>One call.</description><category></category><author>bench</author><model provider="literal" />
<permissions><execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">It is true.</acknowledge></permissions></metadata>
<process><step name="call"><execute item_type="tool" item_id="rye/bash"><param name="command">true</param></execute></step></process>
</directive>
\`\`\`
`;

export async function run() {
  const { env, project, rye: cli, close } = openWorkspace();
  const shared = { projectPath: project, userSpacePath: env.HOME, env };
  const confined = openRye(shared);
  const free = openRye({ ...shared, configOverrides: [OFF] });
  try {
    const samples = await interleave(
      {
        'bare true': () => timed(bareTrue),
        'without the sandbox': () => timed(() => call(free)),
        'with it': () => timed(() => call(confined)),
      },
      CALLS,
    );
    row('true through rye/bash, warm process', 'wall', 'over without', '');
    const floor = median(samples['without the sandbox']);
    for (const [name, taken] of Object.entries(samples)) {
      const typical = median(taken);
      const target = name === 'with it' ? verdict(typical / floor, TARGET, times) : '';
      row(`  ${name}`, ms(typical), times(typical / floor), range(taken, ms), target);
    }
    mkdirSync(path.join(project, '.ai', 'directives'), { recursive: true });
    writeFileSync(path.join(project, '.ai', 'directives', 'call.md'), DIRECTIVE);
    cli('sign', 'directive', 'call');
    const options = { cwd: project, env };
    const measure = (args) => () => measureProcess([RYE, ...args, 'run', 'call', '-q'], options);
    const runs = await interleave(
      { 'without the sandbox': measure(['-c', OFF]), 'with it': measure(['-c', ON]) },
      ROUNDS,
    );
    row('rye run with one call of rye/bash', 'wall', 'over without, wall', 'over without, CPU');
    for (const [name, taken] of Object.entries(runs)) {
      processRow(name, { samples: taken, floors: runs['without the sandbox'] });
    }
  } finally {
    confined.close();
    free.close();
    close();
  }
}

async function timed(work) {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}

async function call(rye) {
  const { success, result } = await rye.threads.executeTool(CALL);
  if (!success) throw new Error(result);
}

function bareTrue() {
  return new Promise((resolve, reject) => {
    spawn('true', { stdio: 'ignore' }).once('error', reject).once('close', resolve);
  });
}
