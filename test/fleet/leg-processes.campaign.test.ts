import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import type { Workspace } from '../helpers/workspace.ts';
import { fleetLab, type RunningWorker, writeTool } from './lab.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

const PATIENT = { timeout: 20_000, interval: 20 };

/** Fields of the process, from proc(5): its state and its parent. */
function parentOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return state === 'Z' ? undefined : Number(parent);
  } catch {
    return undefined;
  }
}

/** The living processes that a worker has started. */
function processesOf({ process: { pid } }: RunningWorker): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((one) => parentOf(one) === pid);
}

/** Writes a directive that runs a tool, which writes the process of its leg. Returns the path of the file with these. */
async function telling(here: Workspace, id: string, input = ''): Promise<string> {
  const told = path.join(here.home, 'told');
  await writeTool(here, 'tell', `echo $PPID >> ${told}`);
  mkdirSync(path.join(here.project, '.ai', 'directives'), { recursive: true });
  writeFileSync(
    path.join(here.project, '.ai', 'directives', `${id}.md`),
    `# ${id}

\`\`\`xml
<directive name="${id}" version="1.0.0">
<metadata><description>Test.</description><category></category><author>me</author><model provider="literal"/>
<limits turns="5" spend="0.10"/><permissions><execute><tool>tell</tool></execute></permissions></metadata>
<inputs>${input}</inputs>
<process><step name="tell"><execute item_type="tool" item_id="tell"/></step></process>
</directive>
\`\`\`
`,
  );
  expect(await here.rye(['sign', 'directive', id])).toMatchObject({ code: 0 });
  return told;
}

const linesOf = (file: string): readonly number[] =>
  existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').map(Number) : [];

it('a process whose leg has ended runs the next one, as the worker trusts keys then', async () => {
  const lab = await fleetLab(server);
  const { here } = lab;
  const told = await telling(here, 'job');
  const worker = await lab.worker({ args: ['--slots', '1'] });
  const job = ['run', 'job', '--fleet', '--wait', '--json'];
  for (let count = 0; count < 3; count += 1) expect((await here.rye(job)).code).toBe(0);
  const [first = 0] = linesOf(told);
  expect(linesOf(told)).toEqual([first, first, first]);
  expect(processesOf(worker)).toEqual([first]);
  const { keys } = await here.json(['keys', 'list']);
  const [own] = keys as readonly { readonly key_id: string }[];
  const environment = { env: { HOME: worker.home } };
  expect(await here.rye(['keys', 'init'], environment)).toMatchObject({ code: 0 });
  const revoked = await here.rye(['keys', 'revoke', own?.key_id ?? '', '-y'], environment);
  expect(revoked.code, revoked.stderr).toBe(0);
  const refused = JSON.parse((await here.rye(job)).stdout);
  expect(refused).toMatchObject({ success: false, error: { code: 'key_revoked' } });
  expect(linesOf(told)).toHaveLength(3);
});

it('a process that is killed without a leg is replaced, and none survives its worker', async () => {
  const lab = await fleetLab(server);
  const { here } = lab;
  const worker = await lab.worker();
  // one is ahead of its leg
  await vi.waitUntil(() => processesOf(worker).length === 1, PATIENT);
  const [ahead = 0] = processesOf(worker);
  process.kill(ahead, 'SIGKILL');
  const job = ['run', 'hello', '--fleet', '--wait', '--json'];
  const run = await here.rye(job);
  expect(run.code, run.stdout + run.stderr).toBe(0);
  expect(worker.output()).not.toContain('ended with');
  await vi.waitUntil(() => processesOf(worker).length > 0, PATIENT);
  const left = processesOf(worker);
  await worker.kill();
  await vi.waitUntil(() => left.every((pid) => parentOf(pid) === undefined), PATIENT);
});

it('a process that has read secret inputs takes no other leg', async () => {
  const lab = await fleetLab(server);
  const { here } = lab;
  const secret = '<input name="token" type="string" secret="true" required="true">T</input>';
  const told = await telling(here, 'job', secret);
  const worker = await lab.worker({ args: ['--slots', '1'] });
  const job = ['run', 'job', '--fleet', '--wait', '--json', '--input', 'token=-'];
  for (let count = 0; count < 2; count += 1) {
    const run = await here.rye(job, { stdin: 'correct-horse-battery' });
    expect(run.code, run.stdout + run.stderr).toBe(0);
  }
  const pids = linesOf(told);
  expect(new Set(pids).size).toBe(2);
  await vi.waitUntil(() => pids.every((pid) => !processesOf(worker).includes(pid)), PATIENT);
});

it('SIGTERM ends the processes without a leg with their worker', async () => {
  const lab = await fleetLab(server);
  const worker = await lab.worker();
  await vi.waitUntil(() => processesOf(worker).length === 1, PATIENT);
  const left = processesOf(worker);
  expect(await worker.leave()).toBe(0);
  await vi.waitUntil(() => left.every((pid) => parentOf(pid) === undefined), PATIENT);
});

it('SIGTERM lets a worker leave the fleet at any moment of its start', async () => {
  const lab = await fleetLab(server);
  const { sql } = lab;
  const joined = async (): Promise<number> =>
    (await sql.query('SELECT FROM workers')).rowCount ?? 0;
  const moments: readonly ((worker: RunningWorker) => Promise<unknown>)[] = [
    async (worker) => await worker.id(),
    async () => await vi.waitUntil(async () => (await joined()) === 1, PATIENT),
    async (worker) => await vi.waitUntil(() => processesOf(worker).length === 1, PATIENT),
  ];
  for (const moment of moments) {
    const worker = await lab.worker();
    await moment(worker);
    expect(await worker.leave(), worker.output()).toBe(0);
    expect(worker.output()).toContain('has left the fleet');
    expect(await joined()).toBe(0);
  }
});
