// Prints how long rye takes, beside a lower bound that is measured in the same run. `npm run bench` runs every benchmark after a
// build, `npm run bench search` one of them. A benchmark that fails does not stop the others; the exit status is then 1.
import process from 'node:process';

const BENCHMARKS = [
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

const names = process.argv.slice(2);
const unknown = names.filter((name) => !BENCHMARKS.includes(name));
if (unknown.length > 0) {
  process.stderr.write(
    `unknown benchmark ${unknown.join(', ')}; known: ${BENCHMARKS.join(', ')}\n`,
  );
  process.exit(1);
}
for (const name of names.length === 0 ? BENCHMARKS : names) {
  try {
    const benchmark = await import(`./${name}.mjs`);
    await benchmark.run();
  } catch (error) {
    process.exitCode = 1;
    process.stderr.write(
      `${name} failed: ${error instanceof Error ? error.stack : String(error)}\n`,
    );
  }
  process.stdout.write('\n');
}
