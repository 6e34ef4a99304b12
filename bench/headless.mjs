// One headless turn as a process, in processor time and memory, beside `node -e 0` and a bare client that asks twice.
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import {
  interleave,
  measureProcess,
  median,
  mib,
  ms,
  openWorkspace,
  peakMemory,
  processRow,
  RYE,
  range,
  row,
  startServer,
  TURN_DIRECTIVE,
  verdict,
} from './harness.mjs';

const ROUNDS = 15;
const TARGET_MS = 200;
const TARGET_MIB = 75;
const BARE = new URL('./bare-client.mjs', import.meta.url).pathname;

export async function run() {
  const { env: own, project, rye, close } = openWorkspace();
  const server = await startServer('./wire.mjs');
  try {
    mkdirSync(path.join(project, '.ai', 'directives'), { recursive: true });
    writeFileSync(path.join(project, '.ai', 'directives', 'turn.md'), TURN_DIRECTIVE);
    rye('sign', 'directive', 'turn');
    const env = { ...own, ANTHROPIC_API_KEY: 'bench', ANTHROPIC_BASE_URL: server.url };
    const options = { cwd: project, env };
    const commands = {
      'node -e 0': ['-e', '0'],
      'bare client with fetch': [BARE, server.url, '1'],
      'rye run': [RYE, 'run', 'turn', '-q'],
    };
    measureProcess(commands['rye run'], options);
    const actions = (measure) =>
      Object.fromEntries(
        Object.entries(commands).map(([name, args]) => [name, () => measure(args, options)]),
      );
    const samples = await interleave(actions(measureProcess), ROUNDS);
    row('one headless turn', 'wall', 'over node, wall', 'over node, CPU', '');
    for (const [name, taken] of Object.entries(samples)) {
      processRow(name, { samples: taken, floors: samples['node -e 0'] });
    }
    const cpu = samples['rye run'].map((sample) => sample.cpu);
    const typical = median(cpu);
    row('  rye run, CPU', ms(typical), range(cpu, ms), '', verdict(typical, TARGET_MS, ms));
    const sizes = await interleave(actions(peakMemory), ROUNDS);
    for (const [name, taken] of Object.entries(sizes)) {
      const size = median(taken);
      const target = name === 'rye run' ? verdict(size, TARGET_MIB, mib) : '';
      row(`  ${name}, memory`, mib(size), range(taken, mib), '', target);
    }
  } finally {
    server.close();
    close();
  }
}
