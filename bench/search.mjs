// Full-text search over 10,000 thread exports, and over documents of 10 MB: whole process, against `node -e 0`.
// Targets: 100 ms and 200 ms.
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { interleave, measureProcess, ms, openWorkspace, processRow, RYE, row } from './harness.mjs';

const EXPORTS = 10_000;
const ROUNDS = 7;
/** 100 ms where `node -e 0` takes 24.4 ms. */
const TARGET = 4.1;
/** 200 ms where `node -e 0` takes 24.4 ms. */
const LARGE_TARGET = 8.2;
const WORDS = ['ledger', 'thread', 'anchor', 'quartz', 'meadow', 'harbor', 'violet', 'copper'];

export async function run() {
  await manyExports();
  await largeDocuments();
}

/** Three documents of 10 MB: every other word is the same, every word is, and no word is twice. */
async function largeDocuments() {
  const { env, project, close } = openWorkspace();
  const bodies = {
    every_other: 'x é '.repeat(2_000_000),
    every: 'z '.repeat(5_000_000),
    none: Array.from({ length: 1_000_000 }, (_, at) => `abcd${at.toString(36)}`).join(' '),
  };
  try {
    const folder = path.join(project, '.ai', 'knowledge');
    mkdirSync(folder, { recursive: true });
    for (const [name, body] of Object.entries(bodies)) {
      writeFileSync(path.join(folder, `${name}.md`), `---\ntitle: ${name}\n---\n\n${body}\n`);
    }
    const search = (query) =>
      measureProcess([RYE, 'search', 'knowledge', query], { cwd: project, env });
    const build = search('x');
    const samples = await interleave(
      {
        'node -e 0': () => measureProcess(['-e', '0'], { cwd: project, env }),
        'every other word': () => search('x'),
        'every word': () => search('z'),
        'phrase of it': () => search('"z z z z z z z z"'),
        'prefix of a million words': () => search('a*'),
      },
      ROUNDS,
    );
    row('search over 10 MB documents', 'wall', 'over node, wall', 'over node, CPU', 'target, CPU');
    row('  first search, builds the index', ms(build.wall));
    rows(samples, LARGE_TARGET);
  } finally {
    close();
  }
}

function rows(samples, target) {
  const floors = samples['node -e 0'];
  for (const [name, taken] of Object.entries(samples)) {
    processRow(name, {
      samples: taken,
      floors,
      target: name === 'node -e 0' ? undefined : target,
    });
  }
}

async function manyExports() {
  const { env, project, close } = openWorkspace();
  try {
    for (let at = 0; at < EXPORTS; at += 1) {
      const folder = path.join(project, '.ai', 'knowledge', 'agent', 'threads', `d${at % 50}`);
      if (at < 50) mkdirSync(folder, { recursive: true });
      const body = Array.from(
        { length: 60 },
        (_, word) => WORDS[(at * 7 + word * 3) % WORDS.length],
      );
      writeFileSync(
        path.join(folder, `d${at % 50}-${at}.md`),
        `---\ntitle: Thread ${at}\nthread_id: d-${at}\nstatus: completed\n---\n\n${body.join(' ')} needle${at}\n`,
      );
    }
    const search = (query) =>
      measureProcess([RYE, 'search', 'knowledge', query], { cwd: project, env });
    const build = search('needle1');
    const samples = await interleave(
      {
        'node -e 0': () => measureProcess(['-e', '0'], { cwd: project, env }),
        'one hit': () => search('needle4711'),
        'thousands of hits': () => search('quartz AND meadow'),
      },
      ROUNDS,
    );
    row('search over 10,000 exports', 'wall', 'over node, wall', 'over node, CPU', 'target, CPU');
    row('  first search, builds the index', ms(build.wall));
    rows(samples, TARGET);
  } finally {
    close();
  }
}
