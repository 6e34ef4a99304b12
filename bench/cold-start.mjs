// Whole processes against `node -e 0`, and one headless turn on a model on loopback. Ratios of processor time are what the
// targets are held against: the clock of a shared machine measures its neighbors.
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { openRye } from '../dist/index.js';
import {
  interleave,
  measureProcess,
  mib,
  openWorkspace,
  peakMemory,
  processRow,
  RYE,
  row,
  startServer,
  TURN_DIRECTIVE,
  verdict,
} from './harness.mjs';

const ROUNDS = 11;
const THREADS = 100;
/** 150 ms where `node -e 0` takes 24.4 ms. */
const TURN_TARGET = 6.1;
const TURN_TARGET_MIB = 100;
const TARGETS = { '--version': 1.3, '--help': 1.6, 'threads list': 2.5 };

export async function run() {
  const { env: own, project, rye, close } = openWorkspace();
  const server = await startServer('./wire.mjs');
  try {
    mkdirSync(path.join(project, '.ai', 'directives'), { recursive: true });
    writeFileSync(path.join(project, '.ai', 'directives', 'turn.md'), TURN_DIRECTIVE);
    rye('sign', 'directive', 'turn');
    const library = openRye({ projectPath: project, userSpacePath: own.HOME, env: own });
    for (let at = 0; at < THREADS; at += 1) {
      await library.threads.execute({ directiveId: 'hello', threadId: `hello-${at}` });
    }
    library.close();
    const env = { ...own, ANTHROPIC_API_KEY: 'bench', ANTHROPIC_BASE_URL: server.url };
    const measure = (...args) => measureProcess(args, { cwd: project, env });
    const samples = await interleave(
      {
        'node -e 0': () => measure('-e', '0'),
        '--version': () => measure(RYE, '--version'),
        '--help': () => measure(RYE, '--help'),
        'threads list': () => measure(RYE, 'threads', 'list'),
        'run hello (no model, a tool in Node)': () =>
          measureProcess([RYE, 'run', 'hello', '-q'], { cwd: project, env: own }),
        'one turn on loopback': () => measure(RYE, 'run', 'turn', '-q'),
      },
      ROUNDS,
    );
    const floors = samples['node -e 0'];
    row('cold start, whole processes', 'wall', 'over node, wall', 'over node, CPU', 'target, CPU');
    for (const [name, taken] of Object.entries(samples)) {
      const target = name.startsWith('one turn') ? TURN_TARGET : TARGETS[name];
      processRow(name, { samples: taken, floors, target });
    }
    const size = peakMemory([RYE, 'run', 'turn', '-q'], { cwd: project, env });
    row('  one turn, memory', mib(size), '', '', verdict(size, TURN_TARGET_MIB, mib));
  } finally {
    server.close();
    close();
  }
}
