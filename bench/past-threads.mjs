// One headless turn in a project with 10,000 past threads of the same directive, against the same turn in an empty project.
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
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
} from './harness.mjs';

const PAST = 10_000;
const ROUNDS = 9;
const TARGET = 1.05;

export async function run() {
  const server = await startServer('./wire.mjs');
  const empty = openProject(0);
  const full = openProject(PAST);
  const options = ({ env, project }) => ({
    cwd: project,
    env: { ...env, ANTHROPIC_API_KEY: 'bench', ANTHROPIC_BASE_URL: server.url },
  });
  const turn = (workspace) => measureProcess([RYE, 'run', 'turn', '-q'], options(workspace));
  try {
    turn(empty);
    turn(full);
    const samples = await interleave(
      { 'no past threads': () => turn(empty), '10,000 past threads': () => turn(full) },
      ROUNDS,
    );
    const floors = samples['no past threads'];
    row('one turn after past threads', 'wall', 'over none, wall', 'over none, CPU', 'target, CPU');
    for (const [name, taken] of Object.entries(samples)) {
      const target = taken === floors ? undefined : TARGET;
      processRow(name, { samples: taken, floors, target });
    }
    const size = (workspace) => mib(peakMemory([RYE, 'run', 'turn', '-q'], options(workspace)));
    row('  memory: none, 10,000', size(empty), size(full));
  } finally {
    server.close();
    empty.close();
    full.close();
  }
}

/** A project with the directive, and exports of its past threads that are in the index. */
function openProject(threads) {
  const workspace = openWorkspace();
  const { project, rye } = workspace;
  mkdirSync(path.join(project, '.ai', 'directives'), { recursive: true });
  writeFileSync(path.join(project, '.ai', 'directives', 'turn.md'), TURN_DIRECTIVE);
  rye('sign', 'directive', 'turn');
  const exports = path.join(project, '.ai', 'knowledge', 'agent', 'threads', 'turn');
  mkdirSync(exports, { recursive: true });
  for (let at = 0; at < threads; at += 1) {
    const body = `Answer ${at}. `.repeat(150);
    writeFileSync(
      path.join(exports, `turn-${at}.md`),
      `---\ntitle: Thread ${at}\nthread_id: turn-${at}\ndirective: turn\nstatus: completed\n---\n\n${body}\n`,
    );
  }
  if (threads > 0) rye('search', 'knowledge', 'answer');
  return workspace;
}
