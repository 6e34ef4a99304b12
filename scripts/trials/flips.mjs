// One flipped bit in each file of a finished thread: `rye verify thread` must find it wherever it is. One flipped bit in
// a database: no command may crash or print a stack trace.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { hasStackTrace, must, openPlace, pool, row } from './harness.mjs';
import { blocksOf, stepper } from './model.mjs';

const THREAD = 't';
const steps = stepper(3, (step) => `echo step-${step} >> effects.log`);

/** A model that asks for a long result, which goes to an artifact, and then does three steps. */
export function withArtifact(body) {
  const isFirst = blocksOf(body, 'tool_use').length === 0;
  return isFirst ? { tools: [{ name: 'trial_flood', input: {} }] } : steps(body);
}

async function finished(model) {
  const place = await openPlace(model.session(withArtifact));
  await must(place.rye('run', 'work', '--thread-id', THREAD));
  await must(place.rye('verify', 'thread', THREAD));
  return place;
}

/** The file with one bit changed, for as long as `work` takes. */
async function flipped(file, bit, work) {
  const good = readFileSync(file);
  const bad = Buffer.from(good);
  const at = Math.floor(bit / 8);
  bad[at] ^= 1 << (bit % 8);
  writeFileSync(file, bad);
  try {
    await work(`bit ${bit % 8} of byte ${at} of ${path.basename(file)}`);
  } finally {
    writeFileSync(file, good);
  }
}

function randomBit(file, random) {
  return Math.floor(random() * readFileSync(file).length * 8);
}

function artifactOf(place) {
  const [name] = readdirSync(place.thread(THREAD, 'artifacts'));
  return place.thread(THREAD, 'artifacts', name);
}

function exportOf(place) {
  return place.ai('knowledge/agent/threads/work', `${THREAD}.md`);
}

const PARTS = [
  {
    name: 'transcript.jsonl',
    share: 1,
    fileOf: (place) => place.thread(THREAD, 'transcript.jsonl'),
  },
  { name: 'thread.json', share: 0.27, fileOf: (place) => place.thread(THREAD, 'thread.json') },
  { name: 'plan.json', share: 0.27, fileOf: (place) => place.thread(THREAD, 'plan.json') },
  {
    name: 'capabilities.md',
    share: 0.14,
    fileOf: (place) => place.thread(THREAD, 'capabilities.md'),
  },
  { name: 'the knowledge export', share: 0.27, fileOf: exportOf },
  { name: 'an artifact', share: 0.14, fileOf: artifactOf },
];

const DATABASES = ['threads/registry.db', 'threads/budget_ledger.db', 'index.db'];

async function flipPart(result, { place, fileOf, random }) {
  const file = fileOf(place);
  await flipped(file, randomBit(file, random), async (where) => {
    const told = await place.rye('verify', 'thread', THREAD);
    result.n += 1;
    if (hasStackTrace(told)) result.fail('broken', `${where}: ${told.stderr}`);
    if (told.code === 0) result.fail('missed', where);
  });
}

function forgetJournals(file) {
  for (const suffix of ['-wal', '-shm']) rmSync(`${file}${suffix}`, { force: true });
}

async function flipDatabase(result, { place, file, random }) {
  forgetJournals(file);
  await flipped(file, randomBit(file, random), async (where) => {
    for (const args of [
      ['threads', 'list'],
      ['search', 'knowledge', 'step'],
      ['verify', 'thread', THREAD],
    ]) {
      const told = await place.rye(...args);
      if (hasStackTrace(told)) result.fail('broken', `${where}: ${args.join(' ')}: ${told.stderr}`);
    }
    const told = await place.rye('doctor');
    if (hasStackTrace(told)) result.fail('broken', `${where}: doctor: ${told.stderr}`);
    if (/^(?:fail|warn)\s+(?:registry of threads|budget ledger|search index)/im.test(told.stdout))
      result.note('noticed by doctor');
    result.n += 1;
  });
  forgetJournals(file);
}

export async function run({ model, random, count = 300, width }) {
  const places = await Promise.all(Array.from({ length: width }, () => finished(model)));
  // each worker has a separate thread, because a flip lasts as long as its check
  const each = (total, work) => {
    const free = [...places];
    return pool(total, width, async () => {
      const place = free.pop();
      await work(place);
      free.push(place);
    });
  };
  const rows = [];
  try {
    for (const { name, share, fileOf } of PARTS) {
      const result = row(`one flipped bit: ${name}`);
      await each(Math.ceil(count * share), (place) => flipPart(result, { place, fileOf, random }));
      rows.push(result);
    }
    for (const place of places) await must(place.rye('search', 'knowledge', 'step'));
    for (const name of DATABASES) {
      const result = row(`one flipped bit: ${path.basename(name)}, no crash`);
      await each(Math.ceil(count * 0.1), (place) =>
        flipDatabase(result, { place, file: place.ai('state', name), random }),
      );
      rows.push(result);
    }
  } finally {
    for (const place of places) place.remove();
  }
  return rows;
}
