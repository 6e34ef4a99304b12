// Prints how long rye takes beside what it can't be faster than, both measured in this run. `npm run bench` runs
// everything after a build; `npm run bench search` one of them.
import process from 'node:process';

const BENCHMARKS = [
  'children',
  'cold-start',
  'deltas',
  'durable-turn',
  'log-scale',
  'prepare',
  'search',
  'stream-rules',
];

const wanted = process.argv.slice(2);
for (const name of wanted.length === 0 ? BENCHMARKS : wanted) {
  const benchmark = await import(`./${name}.mjs`);
  await benchmark.run();
  process.stdout.write('\n');
}
