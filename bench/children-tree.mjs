// Many asynchronous children of one parent, as a process: `node children-tree.mjs NUMBER [tool|model]`: each calls one tool, or asks
// a model on loopback once. All must end, the waiter must wake at once, the ledger must be exact to the
// micro-dollar, and no process may be left. Target: a median of 50 ms from a child's end to its waiter.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import process from 'node:process';
import { openRye } from '../dist/index.js';
import {
  median,
  ms,
  openWorkspace,
  row,
  startServer,
  TURN_DIRECTIVE,
  verdict,
} from './harness.mjs';

const CHILDREN = Number(process.argv[2] ?? 200);
const KIND = process.argv[3] ?? 'tool';
const AT_ONCE = 5;
/** For 200 children. */
const TARGET_MS = 14_000;

function directive(name, limits, step) {
  return `\`\`\`xml
<directive name="${name}" version="1.0.0">
<metadata><model provider="literal" /><description>${name}</description><category></category><author>bench</author>
<limits ${limits}/>
<permissions><execute><tool>hold</tool><tool>rye/core/greet</tool></execute></permissions></metadata>
<process><step name="only"><execute item_type="tool" ${step}</execute></step></process>
</directive>
\`\`\`
`;
}

const HOLD = `import { existsSync } from 'node:fs';
export const __version__ = '1.0.0';
export const __tool_description__ = 'Wait for the end of the benchmark.';
export const __traits__ = { reads_only: true, idempotent: true, network: false, timeout_seconds: 1500, risk: 'safe' };
export const CONFIG_SCHEMA = { type: 'object', properties: {}, additionalProperties: false };
setInterval(() => existsSync('done') && (process.stdout.write('{}'), process.exit(0)), 50);
`;

/** Processes whose command line names the project. */
function processesOf(project) {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(project);
      } catch {
        return false;
      }
    });
}

async function prepare({ project, rye }) {
  for (const folder of ['directives', 'tools', 'config/agent'])
    await mkdir(path.join(project, '.ai', folder), { recursive: true });
  const put = (file, text) => writeFileSync(path.join(project, '.ai', file), text);
  put('tools/hold.mjs', HOLD);
  put(
    'directives/parent.md',
    directive('parent', `turns="3" spend="5" spawns="${CHILDREN}"`, 'item_id="hold">'),
  );
  const greet = 'item_id="rye/core/greet"><param name="who">all</param>';
  const child =
    KIND === 'model'
      ? TURN_DIRECTIVE.replace('name="turn"', 'name="child"').replace('spend="1"', 'spend="0.01"')
      : directive('child', 'turns="3" spend="0.01"', greet);
  put('directives/child.md', child);
  put(
    'config/agent/coordination.yaml',
    `concurrency: { max_children: ${AT_ONCE}, max_total: ${AT_ONCE * 2} }\n`,
  );
  for (const type of ['directive', 'tool']) rye('sign', type, '*');
  rye('sign', 'config', 'agent/coordination');
}

/** Describes defects of the ledger after the end: every reservation must be released, and tools spend nothing. */
function auditLedger(stats) {
  return stats
    .filter(({ open, spend }) => open > 0 || (KIND === 'tool' && spend !== 0))
    .map(({ key }) => key);
}

async function run() {
  const place = openWorkspace();
  const server = KIND === 'model' ? await startServer('wire.mjs') : undefined;
  if (server) {
    place.env.ANTHROPIC_API_KEY = 'bench';
    place.env.ANTHROPIC_BASE_URL = server.url;
  }
  const rye = openRye({
    projectPath: place.project,
    userSpacePath: place.env.HOME,
    env: place.env,
  });
  try {
    await prepare(place);
    const parent = await rye.children.launch({ directiveId: 'parent' });
    const started = performance.now();
    const launches = [];
    const ids = [];
    for (let n = 0; n < CHILDREN; n += 1) {
      const before = performance.now();
      const request = { directiveId: 'child', parentThreadId: parent.thread_id };
      ids.push((await rye.children.launch(request)).thread_id);
      launches.push(performance.now() - before);
    }
    const lags = [];
    const waitedSince = Date.now();
    const report = await rye.children.wait(ids, {
      onEnd: ({ completed_at }) => {
        // nothing waited for those that ended while others were still starting
        const ended = Date.parse(completed_at);
        if (ended >= waitedSince) lags.push(Date.now() - ended);
      },
    });
    const total = performance.now() - started;
    writeFileSync(path.join(place.project, 'done'), '');
    const end = await rye.children.wait([parent.thread_id]);
    const completed = report.threads.filter(({ status }) => status === 'completed').length;
    const { default: Database } = await import('better-sqlite3');
    const ledger = new Database(path.join(place.project, '.ai/state/threads/budget_ledger.db'), {
      readonly: true,
    });
    const rows = new Database(path.join(place.project, '.ai/state/threads/registry.db'), {
      readonly: true,
    });
    const processes = rows.prepare('SELECT count(DISTINCT pid) AS n FROM threads').get().n;
    rows.close();
    const held = ledger
      .prepare(
        "SELECT count(*) AS rows, sum(actual) AS actual, sum(status = 'active') AS active FROM budget_ledger",
      )
      .get();
    ledger.close();
    for (let tries = 0; processesOf(place.project).length > 0 && tries < 200; tries += 1)
      await new Promise((resolve) => setTimeout(resolve, 50));
    row(
      `${CHILDREN} children with one ${KIND === 'model' ? 'turn' : 'tool'}, ${AT_ONCE} at once`,
      `${completed} completed`,
      end.success ? 'parent ok' : 'parent failed',
    );
    row('  to register, reserve and hand over one', ms(median(launches)));
    row('  all ended after', ms(total), ms(total / CHILDREN), verdict(total, TARGET_MS, ms));
    row('  from an end to its waiter, median', ms(median(lags)), ms(Math.max(...lags)));
    row(
      '  ledger: rows, spent, still held',
      String(held.rows),
      String(held.actual),
      String(held.active),
    );
    row('  processes that ran them and their parent', String(processes));
    row('  processes left', String(processesOf(place.project).length));
    const wrong = auditLedger(await rye.children.stats('directive'));
    if (wrong.length > 0 || held.active !== 0 || completed !== CHILDREN) {
      throw new Error(`not everything ended in order: ${wrong.join(', ')}`);
    }
  } finally {
    rye.close();
    server?.close();
    place.close();
  }
}

await run();
