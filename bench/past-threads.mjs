// One headless turn in a project with 10,000 past threads of the same directive, against the same turn in an empty project. The
// past threads have their exports, their rows in the databases and their heads in the user space.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
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
    copyThreads(full, PAST);
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

/** Copies what the databases and the user space keep of the one thread that ran, under other IDs. */
function copyThreads({ project, env }, count) {
  const state = path.join(project, '.ai', 'state', 'threads');
  copyRows(path.join(state, 'registry.db'), ['threads', 'runs', 'ends', 'heads'], count);
  copyRows(path.join(state, 'budget_ledger.db'), ['budget_ledger'], count);
  const heads = path.join(env.HOME, '.ai', 'state', 'heads');
  for (const name of readdirSync(heads)) {
    const file = path.join(heads, name);
    const line = JSON.parse(readFileSync(file, 'utf8').split('\n')[0]);
    const lines = Array.from({ length: count }, (_, at) => ({ ...line, thread_id: `past-${at}` }));
    writeFileSync(file, `${lines.map((one) => JSON.stringify(one)).join('\n')}\n`);
  }
}

function copyRows(file, tables, count) {
  const database = new Database(file);
  for (const table of tables) {
    const columns = database.pragma(`table_info(${table})`).map(({ name }) => name);
    const values = columns.map((name) =>
      name === 'thread_id' || name === 'run_id' ? `'past-' || n` : name,
    );
    database
      .prepare(
        `WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
         INSERT INTO ${table} (${columns}) SELECT ${values} FROM numbers, (SELECT * FROM ${table} LIMIT 1)`,
      )
      .run(count);
  }
  database.close();
}
