import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, type WireServer } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { marksIn, marksModel } from './marks.ts';
import {
  copyOf,
  expectLegal,
  hasLog,
  openWorld,
  type RunningCli,
  startNode,
  type World,
} from './world.ts';

/** `all` kills at the first and the last of every named step; a number sets how many random instants are tried. */
const EXTENT = process.env['RYE_FAULTS'];
const INSTANTS = EXTENT === 'all' ? 300 : Number(EXTENT ?? 1);
const SOAK_MS = 3_600_000;
const WAIT = { timeout: 60_000, interval: 20 } as const;
const FAMILY_MARKS = ['mark-a', 'mark-h', 'mark-b'] as const;

type Role = 'parent' | 'child';
/** The killed process, or all of them at once. */
type Victims = Role | 'both';
const VICTIMS: readonly Victims[] = ['parent', 'child', 'both'];

/** A named step of one process, for the `nth` time. */
interface Point {
  readonly role: Role;
  readonly step: string;
  readonly nth: number;
}

let server: WireServer;
let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;
let points: readonly Point[] = [];
let wholeMs = 0;

beforeAll(async () => {
  await cliPackage();
  server = await startWireServer(marksModel);
  prepared = await temporaryWorkspace({ fixture: 'faults' });
  await prepared.rye(['sign', 'config', 'agent/coordination']);
  const world = copyOf(prepared, server.url);
  const trace = path.join(world.project, 'trace');
  const start = performance.now();
  const { done } = await startFamily(world, { RYE_TEST_TRACE: trace });
  expect(await done).toEqual({ code: 0, stdout: '', stderr: '' });
  wholeMs = performance.now() - start;
  points = (['parent', 'child'] as const).flatMap((role) => pointsOf(role, `${trace}.${role}`));
  remove(world);
});

afterAll(async () => {
  prepared.remove();
  await server.close();
});

const pidsFile = ({ project }: World): string => path.join(project, 'pids');

async function startFamily(
  world: World,
  extra: Readonly<Record<string, string>>,
): Promise<RunningCli> {
  const script = path.resolve(import.meta.dirname, 'parent.mjs');
  const crash = path.resolve(import.meta.dirname, 'crash-points.mjs');
  const args = ['--import', crash, script, await cliPackage(), 'spread', 't'];
  return startNode(world, args, { RYE_TEST_PIDS: pidsFile(world), ...extra });
}

/** The first and the last time that a process passes each of its named steps. */
function pointsOf(role: Role, traceFile: string): readonly Point[] {
  const counts = new Map<string, number>();
  for (const step of readFileSync(traceFile, 'utf8').trimEnd().split('\n'))
    counts.set(step, (counts.get(step) ?? 0) + 1);
  return [...counts].flatMap(([step, count]) =>
    [...new Set([1, count])].map((nth) => ({ role, step, nth })),
  );
}

function remove({ project }: World): void {
  removeFolder(path.dirname(project));
}

function pidsOf(world: World, role?: Role | 'dead'): readonly number[] {
  const file = pidsFile(world);
  const lines = existsSync(file) ? readFileSync(file, 'utf8').trimEnd().split('\n') : [];
  return lines
    .map((line) => line.split(' '))
    .filter(([found]) => role === undefined || found === role)
    .map(([, pid]) => Number(pid));
}

function livesIn({ project }: World, pid: number): boolean {
  try {
    const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
    return pid !== process.pid && line.includes(project);
  } catch {
    return false;
  }
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // it has ended
  }
}

/**
 * Waits for the surviving processes, recovers, checks every state, resumes the parent, and checks what
 * the tools did in all.
 */
async function expectRecovery(world: World): Promise<void> {
  const rye = openWorld(world, [path.join(await cliPackage(), 'bin', 'rye.js')]);
  try {
    const before = marksIn(world.project);
    const { failures } = await rye.recovery.recover();
    expect(failures).toEqual([]);
    const open = await rye.threads.list({ active: true });
    // a surviving child is asked to stop if its parent died
    await rye.children.wait(open.map(({ thread_id }) => thread_id));
    await expectLegal(world, rye);
    const thread = (await rye.threads.list()).find(({ thread_id }) => thread_id === 't');
    if (thread && hasLog(world, 't') && thread.status !== 'completed')
      expect(await rye.recovery.resume({ threadId: 't' })).toMatchObject({ success: true });
    await rye.children.wait(
      (await rye.threads.list({ active: true })).map(({ thread_id }) => thread_id),
    );
    await expectLegal(world, rye);
    // a thread that has ended is still exported for a moment
    const pids = (await rye.threads.list()).flatMap(({ pid }) => pid ?? []);
    await expect.poll(() => pids.filter((pid) => livesIn(world, pid)), WAIT).toEqual([]);
    const after = marksIn(world.project);
    for (const mark of FAMILY_MARKS) {
      expect([mark, after.get(mark) ?? 0]).toEqual([mark, expect.toSatisfy((count) => count <= 1)]);
      if (before.has(mark)) expect(after.get(mark)).toBe(1);
    }
  } finally {
    rye.close();
  }
}

async function expectRecoveryAfter(what: string, world: World): Promise<void> {
  try {
    await expectRecovery(world);
  } catch (error) {
    throw new Error(`killed ${what}, in ${world.project}`, { cause: error });
  } finally {
    pidsOf(world).forEach(killQuietly);
  }
  remove(world);
}

/** Without the whole count the points that differ most from a single process's points. */
const TRIED: Readonly<Record<Victims, readonly [Role, string]>> = {
  parent: ['parent', 'rename handover.json'],
  child: ['child', 'append tool_settled'],
  both: ['child', 'append tool_call_start'],
};

function chosen(victims: Victims): readonly Point[] {
  if (EXTENT === 'all') return points.filter(({ role }) => victims === 'both' || role === victims);
  const [wanted, name] = TRIED[victims];
  const first = points.find(({ role, step }) => role === wanted && step.startsWith(name));
  return first ? [first] : [];
}

describe('a parent and its child in another process', () => {
  it('pass at least 25 differently named durable steps', () => {
    const names = points.map(({ role, step }) => `${role} ${step}`);
    expect(new Set(names).size).toBeGreaterThanOrEqual(25);
    expect(names).toEqual(
      expect.arrayContaining([
        'parent commit registry.db register',
        'parent commit budget_ledger.db reserve',
        'parent rename handover.json',
        'parent commit registry.db takeLaunch',
        'child commit registry.db claim',
        'child commit budget_ledger.db release',
        'child commit registry.db finish',
      ]),
    );
  });

  it.each(VICTIMS)(
    'can be recovered and resumed when a step kills %s',
    async (victims) => {
      const tried = chosen(victims);
      expect(tried.length).toBeGreaterThanOrEqual(1);
      let killed = 0;
      for (const point of tried) {
        const world = copyOf(prepared, server.url);
        const all = victims === 'both';
        const kill = JSON.stringify({ ...point, all });
        const { done } = await startFamily(world, { RYE_TEST_KILL: kill });
        await done;
        killed += pidsOf(world, 'dead').length;
        await expectRecoveryAfter(`${victims} after ${kill}`, world);
      }
      // a step that comes at times, such as a sign of life, may come less often than in the trace
      expect(killed).toBeGreaterThanOrEqual(Math.ceil(tried.length * 0.8));
    },
    EXTENT === 'all' ? SOAK_MS : 300_000,
  );

  it(
    'can be recovered and resumed when any of them, or all, are killed at any instant',
    async () => {
      for (let round = 0; round < INSTANTS; round += 1) {
        const world = copyOf(prepared, server.url);
        const victims = VICTIMS[round % VICTIMS.length] ?? 'both';
        const { child, done } = await startFamily(world, {});
        const ms = Math.round((wholeMs * (round + Math.random())) / INSTANTS);
        const timer = setTimeout(() => {
          if (victims !== 'child') child.kill('SIGKILL');
          if (victims !== 'parent') pidsOf(world, 'child').forEach(killQuietly);
        }, ms);
        await done;
        clearTimeout(timer);
        await expectRecoveryAfter(`${victims} after ${ms} ms`, world);
      }
    },
    EXTENT === undefined ? 300_000 : SOAK_MS,
  );
});
