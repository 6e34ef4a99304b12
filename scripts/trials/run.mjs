// Trials against the built program: real kills, real signals, full disks, flipped bits, forged lines, old copies.
// `npm run trials` runs all of them after a build and prints a table; it fails if one number
// that must be 0 is not. `npm run trials -- --only kill,flips --count 20 --seed 7` runs a part.
import process from 'node:process';
import { parseArgs } from 'node:util';
import { chance, closePlaces, failed, table } from './harness.mjs';
import { openModel } from './model.mjs';

const PARTS = [
  'kill',
  'approvals',
  'flips',
  'forged',
  'disk',
  'signals',
  'rollback',
  'concurrency',
  'fleet',
];

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    count: { type: 'string' },
    seed: { type: 'string', default: '1' },
    width: { type: 'string', default: '2' },
    part: { type: 'string' },
  },
});

const wanted = values.only?.split(',') ?? PARTS;
const unknown = wanted.filter((name) => !PARTS.includes(name));
if (unknown.length > 0) throw new Error(`no trial ${unknown.join(', ')}: ${PARTS.join(', ')}`);

const model = await openModel();
const rows = [];
try {
  for (const name of wanted) {
    const begun = performance.now();
    const part = await import(`./${name}.mjs`);
    const made = await part.run({
      model,
      random: chance(Number(values.seed)),
      width: Number(values.width),
      ...(values.count === undefined ? {} : { count: Number(values.count) }),
      ...(values.part === undefined ? {} : { part: values.part }),
    });
    rows.push(...made);
    process.stderr.write(`${name}: ${Math.round((performance.now() - begun) / 1000)} s\n`);
  }
} finally {
  await model.close();
  await closePlaces();
}

for (const problem of rows.flatMap(({ problems }) => problems))
  process.stderr.write(`${problem}\n`);
process.stdout.write(`${table(rows)}\n`);
if (rows.some(failed)) process.exitCode = 1;
