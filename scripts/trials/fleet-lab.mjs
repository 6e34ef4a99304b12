// The fleet of the trials: a PostgreSQL server, one person who submits threads, workers that are processes of the built
// program, and what the store knows afterwards.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'pg';
import { tsImport } from 'tsx/esm/api';
import { openRye } from '../../dist/index.js';
import { must, openPlace } from './harness.mjs';

const { startPostgres } = await tsImport('../../test/helpers/postgres.ts', import.meta.url);
const { checkFleet } = await tsImport('../../test/fleet/checker.ts', import.meta.url);

const PATIENCE_MS = 180_000;

function item(name, permissions, body, limits) {
  return `\`\`\`xml
<directive name="${name}" version="1.0.0">
<metadata><description>${name}</description><category></category><author>trials</author>
<model tier="general" provider="anthropic" />
<limits ${limits} />
<permissions>${permissions}</permissions></metadata>
<inputs><input name="who" type="string" default="parent">The name of the thread.</input></inputs>
</directive>
\`\`\`

${body}
`;
}

/** A tool that appends the text of its call to a file: each line is an effect that may happen once. */
function marking(file) {
  return `# rye:tool
# version: 1.0.0
# description: Writes a line.
# parameters: [{name: text, type: string, required: true}]
# traits: {reads_only: false, network: false, timeout_seconds: 60, risk: safe}
# /rye:tool
text="$(cat)"; sleep 0.2; echo "$text" >> ${file}; sleep 0.2
`;
}

const FAMILY = `<execute><directive>*</directive></execute><execute><tool>rye/agent/*</tool><tool>mark</tool></execute>
<acknowledge risk="elevated">The trials start children.</acknowledge>`;

/** A fleet with an empty database. Its directives are \`work\` (calls the tool \`mark\`) and \`parent\` (starts children). */
export async function openFleet(session) {
  const place = await openPlace(session);
  const marks = path.join(place.home, 'marks');
  place.write('.ai/tools/mark.sh', marking(marks));
  const mark = '<execute><tool>mark</tool></execute>';
  const limits = 'turns="100" spend="60"';
  place.write('.ai/directives/work.md', item('work', mark, 'I am {input:who}.', limits));
  const family = 'turns="100" spend="4000" spawns="60"';
  place.write('.ai/directives/parent.md', item('parent', FAMILY, 'I am {input:who}.', family));
  await must(place.rye('sign', 'tool', 'mark'));
  await must(place.rye('sign', 'directive', '*'));
  const server = await startPostgres(['-c', 'max_connections=400']);
  const url = await server.url('fleet');
  await must(place.rye('fleet', 'init', '--database', url));
  const { stdout: pem } = await must(place.rye('keys', 'export'));
  const rye = openRye({
    projectPath: place.project,
    userSpacePath: place.home,
    env: place.env,
    onNotice: () => undefined,
  });
  const fleet = new Fleet({ place, server, url, pem, rye, marks, session });
  fleet.connect();
  return fleet;
}

class Fleet {
  /** Those that have joined. */
  workers = new Set();
  #starting = new Set();
  #machines = 0;

  constructor(parts) {
    Object.assign(this, parts);
  }

  connect() {
    this.sql = new Pool({ connectionString: this.url, options: '-c search_path=rye', max: 4 });
    this.sql.on('error', () => undefined);
  }

  async rows(text, values = []) {
    return (await this.sql.query(text, values)).rows;
  }

  /** A machine on which workers run, one after another. */
  async machine() {
    this.#machines += 1;
    const label = `m${this.#machines}`;
    const root = path.join(this.place.root, label);
    const home = path.join(root, 'home');
    const folder = path.join(root, 'folder');
    for (const one of [home, folder]) mkdirSync(one, { recursive: true });
    const { token } = await this.rye.fleet.enroll({ label, days: 1 });
    writeFileSync(path.join(root, 'token'), token, { mode: 0o600 });
    writeFileSync(path.join(root, 'person.pem'), this.pem);
    const env = { ...this.place.env, HOME: home };
    const words = ['keys', 'trust', path.join(root, 'person.pem'), '--for', 'sign,approve', '-y'];
    const [program, ...args] = this.place.command(words);
    const trusting = spawn(program, args, { cwd: folder, env, stdio: 'ignore' });
    await once(trusting, 'close');
    return { label, root, folder, env };
  }

  /** Starts a worker, and resolves once it has joined the fleet. */
  async worker(machine, slots) {
    const off = ['-c', 'resilience.tools.sandbox=off'];
    const words = ['worker', '--token', path.join(machine.root, 'token'), ...off];
    const [program, ...args] = this.place.command([...words, '--slots', String(slots)]);
    const child = spawn(program, args, {
      cwd: machine.folder,
      env: machine.env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const worker = { machine, slots, child, output: '', id: undefined };
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => {
        worker.output += text;
      });
    this.#starting.add(child);
    const end = performance.now() + PATIENCE_MS;
    const isIn = async () =>
      (await this.rows('SELECT 1 FROM workers WHERE worker_id = $1', [worker.id])).length > 0;
    while (worker.id === undefined || !(await isIn())) {
      worker.id ??= /^worker (\S+)/m.exec(worker.output)?.[1];
      if (child.exitCode !== null || performance.now() > end)
        throw new Error(`a worker did not start: ${worker.output}`);
      await delay(50);
    }
    this.#starting.delete(child);
    this.workers.add(worker);
    return worker;
  }

  async machines(count, slots) {
    const made = await Promise.all(Array.from({ length: count }, async () => await this.machine()));
    const started = [];
    for (const machine of made) started.push(await this.worker(machine, slots));
    return started;
  }

  /** The processes of a worker's legs. */
  async legs(worker) {
    const rows = await this.rows(
      "SELECT pid FROM threads WHERE worker = $1 AND status = 'running'",
      [worker.id],
    );
    return rows.map(({ pid }) => pid).filter((pid) => pid !== null);
  }

  async kill(worker, how = 'SIGKILL') {
    this.workers.delete(worker);
    const closed = once(worker.child, 'exit');
    if (worker.child.exitCode !== null || worker.child.signalCode !== null) return;
    worker.child.kill('SIGCONT');
    worker.child.kill(how);
    await closed;
  }

  async submit(who, { directive = 'work', ...place } = {}) {
    const request = { directiveId: directive, inputs: { who }, threadId: who };
    return await this.rye.fleet.submit(request, place);
  }

  /** Resolves once a query gives true. */
  async until(text, values = [], patienceMs = PATIENCE_MS) {
    const end = performance.now() + patienceMs;
    for (;;) {
      const [row] = await this.rows(text, values);
      if (Object.values(row ?? {})[0] === true) return true;
      if (performance.now() > end) return false;
      await delay(100);
    }
  }

  /** Counts how often each effect happened. */
  effects() {
    const counts = new Map();
    if (!existsSync(this.marks)) return counts;
    for (const line of readFileSync(this.marks, 'utf8').split('\n').filter(Boolean))
      counts.set(line, (counts.get(line) ?? 0) + 1);
    return counts;
  }

  /** Checks the store; no worker runs meanwhile. Failures go into the row of the table. */
  async check(result, { calls } = {}) {
    const found = await checkFleet({
      sql: this.sql,
      verify: async (id) => (await this.rye.threads.verify(id)).ok === true,
    });
    for (const problem of found.problems) result.fail('broken', problem);
    const effects = this.effects();
    for (const [line, times] of effects)
      if (times > 1) result.fail('repeated', `${line} happened ${times} times`);
    for (const id of this.session.orphans) result.fail('broken', `${id} without call or result`);
    if (calls !== undefined && found.calls !== calls)
      result.fail('lost', `${found.calls} calls, not ${calls}`);
    if (calls !== undefined && effects.size + found.interrupted < calls)
      result.fail(
        'lost',
        `${effects.size} effects and ${found.interrupted} interrupted of ${calls}`,
      );
    result.note('calls', found.calls);
    result.note('in flight at a kill, recorded as interrupted', found.interrupted);
    return found;
  }

  async close() {
    for (const child of this.#starting) child.kill('SIGKILL');
    for (const worker of this.workers) {
      const legs = await this.legs(worker).catch(() => []);
      await this.kill(worker);
      for (const pid of legs) endGroup(pid);
    }
    this.rye.close();
    await this.sql.end().catch(() => undefined);
    await this.server.stop();
    this.place.remove();
  }
}

export function endGroup(pid) {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // it has ended
  }
}

export function signal(pid, name) {
  try {
    process.kill(pid, name);
  } catch {
    // it has ended
  }
}

/** True while a process runs or is stopped; one whose parent has not looked yet has ended. */
export function isAlive(pid) {
  try {
    return !/^\d+ \(.*\) [ZX] /s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

export function median(values) {
  const sorted = values.toSorted((one, two) => one - two);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

export const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
