// Full-text search over 10,000 thread exports, whole process, against `node -e 0`. Target: 100 ms.
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { interleave, measureProcess, ms, openWorkspace, processRow, RYE, row } from './harness.mjs';

const EXPORTS = 10_000;
const ROUNDS = 7;
/** 100 ms where `node -e 0` takes 24.4 ms. */
const TARGET = 4.1;
const WORDS = ['ledger', 'thread', 'anchor', 'quartz', 'meadow', 'harbor', 'violet', 'copper'];

export async function run() {
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
    const floors = samples['node -e 0'];
    row('search over 10,000 exports', 'wall', 'over node, wall', 'over node, CPU', 'target, CPU');
    row('  first search, builds the index', ms(build.wall));
    for (const [name, taken] of Object.entries(samples)) {
      processRow(name, {
        samples: taken,
        floors,
        target: name === 'node -e 0' ? undefined : TARGET,
      });
    }
  } finally {
    close();
  }
}
