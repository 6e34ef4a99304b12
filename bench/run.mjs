// Prints how long rye takes, beside a lower bound that is measured in the same run. `npm run bench` runs every benchmark after a
// build, `npm run bench search` one of them; what they run is the packed package. A benchmark that fails does not stop the others; the
// exit status is then 1. `--check` fails for a ratio that is more than a tenth above the one in ratios.json, `--save` writes them.
import { readFileSync, writeFileSync } from 'node:fs';
import process from 'node:process';
import { parseArgs } from 'node:util';
import { best, compared } from './compare.mjs';
import { beginBenchmark, recorded } from './harness.mjs';
import { install } from './install.mjs';

const BENCHMARKS = [
  'chat',
  'children',
  'cli-turns',
  'cold-start',
  'deltas',
  'durable-turn',
  'first-hour',
  'headless',
  'log-scale',
  'past-threads',
  'prepare',
  'sandbox',
  'search',
  'stream-rules',
  'threads',
  'verify',
];
const RATIOS = new URL('ratios.json', import.meta.url);
/** A neighbor of the machine can slow one run, not three. */
const ATTEMPTS = 3;

const { values: options, positionals: names } = parseArgs({
  options: { check: { type: 'boolean' }, save: { type: 'boolean' } },
  allowPositionals: true,
});
const misspelled = names.filter((name) => !BENCHMARKS.includes(name));
if (misspelled.length > 0) {
  process.stderr.write(
    `unknown benchmark ${misspelled.join(', ')}; known: ${BENCHMARKS.join(', ')}\n`,
  );
  process.exit(1);
}
const kept = JSON.parse(readFileSync(RATIOS, 'utf8'));

async function measure(name) {
  beginBenchmark(name);
  const benchmark = await import(`./${name}.mjs`);
  await benchmark.run();
  process.stdout.write('\n');
}

/** Measures again what got worse, and takes the best of each row. */
async function check(name) {
  for (let attempt = 1; attempt < ATTEMPTS; attempt += 1) {
    const { worse } = compared(recorded, kept, name);
    if (worse.length === 0) break;
    const before = new Map(recorded);
    process.stdout.write(`again: ${worse.length} of its rows are worse\n`);
    await measure(name);
    for (const [key, ratio] of best(before, recorded)) recorded.set(key, ratio);
  }
  const { worse, unknown } = compared(recorded, kept, name);
  for (const key of unknown) process.stdout.write(`not kept yet: ${key}; keep it with --save\n`);
  for (const [key, ratio] of worse) {
    process.exitCode = 1;
    process.stderr.write(`worse: ${key} is ${ratio}, kept is ${kept[key]}\n`);
  }
}

const { program, remove } = install();
// the benchmarks read it when they are loaded
process.env.RYE_BENCH_PROGRAM = program;
try {
  for (const name of names.length === 0 ? BENCHMARKS : names) {
    try {
      await measure(name);
      if (options.check) await check(name);
    } catch (error) {
      process.exitCode = 1;
      process.stderr.write(
        `${name} failed: ${error instanceof Error ? error.stack : String(error)}\n`,
      );
    }
  }
} finally {
  remove();
}
if (options.save) {
  const all = Object.entries({ ...kept, ...Object.fromEntries(recorded) });
  const sorted = all.toSorted(([one], [other]) => (one < other ? -1 : 1));
  writeFileSync(RATIOS, `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`);
}
