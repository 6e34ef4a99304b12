// Runs the mission table: each row of test/mission/rows is a feature of a seed system, with the test that shows it.
// Prints a table for each seed and, last, how many rows work. A row works if its test exists and passed in this run;
// a row that differs names its page, and its test shows what the page describes. Fails if a named test is missing or fails.
//   npm run mission                   all rows
//   npm run mission -- --seed loop    one seed: lifecycle, tree, rules, loop or steer
//   npm run mission -- --row 4/21     one row, by the number of its seed and its own
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SEEDS = ['lifecycle', 'tree', 'rules', 'loop', 'steer'];
/** The longest that the tests may take together. */
const MINUTES = 40;

const rowsOf = (seed, index) =>
  JSON.parse(readFileSync(path.join(ROOT, 'test/mission/rows', `${seed}.json`), 'utf8')).map(
    (row) => ({ ...row, seed, id: `${index + 1}/${row.row}` }),
  );

/** The file and the full name of a row's test, which vitest prints as `file > suite > test`. */
function testOf(row) {
  const end = row.test.indexOf(' > ');
  return { file: row.test.slice(0, end), name: row.test.slice(end + 3) };
}

const escaped = (text) => text.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`);

/** Runs these tests in one vitest. Resolves with the states of each, by `file > name`, and the output of those that failed. */
async function run(tests) {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-mission-'));
  const report = path.join(folder, 'report.json');
  const names = tests.map(({ name }) => escaped(name.replaceAll(' > ', ' ')));
  const args = [
    'node_modules/vitest/vitest.mjs',
    'run',
    '--reporter=json',
    `--outputFile=${report}`,
    `--testNamePattern=^\\s?(?:${[...new Set(names)].join('|')})$`,
    ...new Set(tests.map(({ file }) => file)),
  ];
  const stdio = ['ignore', 'ignore', 'inherit'];
  const child = spawn(process.execPath, args, { cwd: ROOT, stdio, timeout: MINUTES * 60_000 });
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => child.kill(signal));
  await new Promise((resolve, reject) => child.once('close', resolve).once('error', reject));
  try {
    return statesOf(JSON.parse(readFileSync(report, 'utf8')));
  } catch (error) {
    throw new Error(`vitest wrote no report within ${MINUTES} minutes`, { cause: error });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** A test that two projects run has two states; one that no name selects has none. */
function statesOf(report) {
  const states = new Map();
  for (const { name, assertionResults } of report.testResults)
    for (const { ancestorTitles, title, status, failureMessages } of assertionResults) {
      if (status === 'pending' || status === 'skipped') continue;
      const key = [path.relative(ROOT, name), ...ancestorTitles, title].join(' > ');
      const before = states.get(key) ?? [];
      states.set(key, [...before, { status, message: failureMessages.at(0) ?? '' }]);
    }
  return states;
}

/** Returns how a row ended: `works`, `differs`, `missing`, or `failed`, with a line for people. */
function outcomeOf(row, states) {
  if (row.missing !== undefined) return { kind: 'missing', line: row.missing };
  const differs = `${row.differs} (${row.page})`;
  if (row.test === undefined) return { kind: 'differs', line: differs };
  const runs = states.get(row.test) ?? [];
  if (runs.length === 0) return { kind: 'failed', line: `no such test: ${row.test}` };
  const failure = runs.find(({ status }) => status !== 'passed');
  if (failure !== undefined)
    return { kind: 'failed', line: `${row.test}\n      ${failure.message.split('\n').at(0)}` };
  return row.differs === undefined
    ? { kind: 'works', line: '' }
    : { kind: 'differs', line: differs };
}

function chosen({ seed, row }) {
  const rows = SEEDS.flatMap(rowsOf);
  const found = rows.filter(
    (one) => (seed === undefined || one.seed === seed) && (row === undefined || one.id === row),
  );
  if (found.length === 0) throw new Error(`no such row: ${[seed, row].filter(Boolean).join(' ')}`);
  return found;
}

const count = (rows, kind) => rows.filter(({ outcome }) => outcome.kind === kind).length;

const write = (line) => process.stdout.write(`${line}\n`);

function print(rows, isDetailed) {
  write('seed        rows  works  differs  missing  failed');
  for (const seed of new Set(rows.map((row) => row.seed))) {
    const own = rows.filter((row) => row.seed === seed);
    const kinds = ['works', 'differs', 'missing', 'failed'];
    const [works, differs, missing, failed] = kinds.map((kind) => String(count(own, kind)));
    write(
      `${seed.padEnd(10)}${String(own.length).padStart(6)}${works.padStart(7)}` +
        `${differs.padStart(9)}${missing.padStart(9)}${failed.padStart(8)}`,
    );
  }
  for (const { id, feature, shows, test, outcome } of rows)
    if (isDetailed || outcome.kind !== 'works') {
      write(`${id.padEnd(6)}${outcome.kind.padEnd(8)}${feature}`);
      if (outcome.line !== '') write(`      ${outcome.line}`);
      if (isDetailed && shows !== undefined) write(`      shows: ${shows}\n      ${test}`);
    }
  write(`${count(rows, 'works')} of ${rows.length} rows work`);
}

async function main() {
  const options = { seed: { type: 'string' }, row: { type: 'string' } };
  const { values } = parseArgs({ options });
  const rows = chosen(values);
  const tests = rows.filter(({ test }) => test !== undefined).map(testOf);
  const states = tests.length === 0 ? new Map() : await run(tests);
  const ended = rows.map((row) => ({ ...row, outcome: outcomeOf(row, states) }));
  print(ended, values.row !== undefined);
  return count(ended, 'failed') === 0 ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`mission: ${error.message}\n`);
  process.exitCode = 2;
}
