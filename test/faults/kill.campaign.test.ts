import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, type WireServer } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { MARKS, marksIn, marksModel } from './marks.ts';
import { copyOf, expectLegal, hasLog, openWorld, startCli, type World } from './world.ts';

/**
 * `all` kills at every durable step and at 300 random instants; a number sets how many instants are tried, and kills at the
 * first step of each name.
 */
const EXTENT = process.env['RYE_FAULTS'];
const POINTS = 30;
const INSTANTS = EXTENT === 'all' ? 300 : Number(EXTENT ?? 1);
const RUN = ['run', 'work', '--thread-id', 't', '--json'] as const;

let server: WireServer;
let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;
let trace: readonly string[] = [];
let wholeMs = 0;

beforeAll(async () => {
  await cliPackage();
  server = await startWireServer(marksModel);
  prepared = await temporaryWorkspace({ fixture: 'faults' });
  await prepared.rye(['sign', 'config', 'agent/coordination']);
  const world = copyOf(prepared, server.url);
  const file = path.join(world.project, 'trace');
  const start = performance.now();
  const { done } = await startCli(world, RUN, { preload: true, extra: { RYE_TEST_TRACE: file } });
  const { code, stdout, stderr } = await done;
  wholeMs = performance.now() - start;
  expect([code, stdout, stderr]).toEqual([0, expect.any(String), '']);
  trace = readFileSync(file, 'utf8').trimEnd().split('\n');
  remove(world);
});

afterAll(async () => {
  prepared.remove();
  await server.close();
});

function remove({ project }: World): void {
  removeFolder(path.dirname(project));
}

/** Recovers, checks that everything is legal, resumes, and checks what the tools did in all. */
async function expectRecovery(world: World): Promise<void> {
  const rye = openWorld(world);
  try {
    const before = marksIn(world.project);
    const { failures } = await rye.recovery.recover();
    expect(failures).toEqual([]);
    await expectLegal(world, rye);
    const thread = (await rye.threads.list()).find(({ thread_id }) => thread_id === 't');
    if (!thread || !hasLog(world, 't')) return;
    const result =
      thread.status === 'completed'
        ? { success: true }
        : await rye.recovery.resume({ threadId: 't' });
    expect(result).toMatchObject({ success: true });
    await expectLegal(world, rye);
    const after = marksIn(world.project);
    for (const mark of MARKS) {
      // what was done before the kill is not done again; what was interrupted is not claimed, nor repeated
      expect([mark, after.get(mark) ?? 0]).toEqual([mark, expect.toSatisfy((count) => count <= 1)]);
      if (before.has(mark)) expect(after.get(mark)).toBe(1);
    }
  } finally {
    rye.close();
  }
}

/** A named step, for the `nth` time: how often a step comes may depend on the time, its name does not. */
interface Point {
  readonly step: string;
  readonly nth: number;
}

/** The first step of each name, then others evenly spread, at least {@link POINTS} of them. */
function chosenPoints(): readonly Point[] {
  const counts = new Map<string, number>();
  const points = trace.map((step): Point => {
    const nth = (counts.get(step) ?? 0) + 1;
    counts.set(step, nth);
    return { step, nth };
  });
  if (EXTENT === 'all') return points;
  const chosen = new Set(points.filter(({ nth }) => nth === 1));
  const spread = Math.max(1, Math.floor(points.length / POINTS));
  for (let at = 0; chosen.size < POINTS && at < points.length; at += spread) {
    const point = points[at];
    if (point) chosen.add(point);
  }
  return [...chosen];
}

describe('a process that is killed', () => {
  it('passes at least 25 differently named durable steps', () => {
    expect(new Set(trace).size).toBeGreaterThanOrEqual(25);
  });

  // Requirement: nothing-synced
  it('has its log on the disk before a tool runs and at the end of each turn', () => {
    const after = (wanted: string): readonly string[] =>
      trace.flatMap((step, at) => {
        if (!step.includes(wanted)) return [];
        const rest = trace.slice(at + 1).filter((one) => /^(?:append|fdatasync|rename)/.test(one));
        return [rest.slice(0, rest.indexOf('fdatasync')).join(', ')];
      });
    const intents = after('tool_call_start');
    const turns = after('cost');
    expect(intents.length).toBeGreaterThan(1);
    expect(turns.length).toBeGreaterThan(1);
    expect(new Set(intents)).toEqual(new Set(['']));
    // nothing but the next beginning, or the end of the thread, is written before the sync
    for (const between of turns) {
      expect(between).toMatch(
        /^append (?:turn_started\+checkpoint$|thread_finished(?:$|, append))/,
      );
    }
  });

  it('writes the end into thread.json before the registry', () => {
    const end = trace.slice(trace.lastIndexOf('commit registry.db endRun'));
    const finished = end.indexOf('commit registry.db finish');
    expect(finished, end.join('\n')).toBeGreaterThan(0);
    expect(end.slice(0, finished)).toContain('rename thread.json');
  });

  it(
    // Requirement: answer-and-results-pair, turn-durability, two-writes-diverge
    'is recoverable and resumable after a kill at each durable step',
    async () => {
      // some steps depend on the time, such as a sign of life, or two results that are written at once
      const killedBehind = new Set<string>();
      for (const point of chosenPoints()) {
        const world = copyOf(prepared, server.url);
        const name = `${point.step} #${point.nth}`;
        const extra = { RYE_TEST_KILL: JSON.stringify({ role: 'parent', ...point }) };
        const { child, done } = await startCli(world, RUN, { preload: true, extra });
        await done;
        if (child.signalCode === 'SIGKILL') killedBehind.add(point.step);
        try {
          await expectRecovery(world);
        } catch (error) {
          throw new Error(`killed after ${name}, in ${world.project}`, { cause: error });
        }
        remove(world);
      }
      expect(killedBehind.size).toBeGreaterThanOrEqual(25);
    },
    EXTENT === 'all' ? 3_600_000 : 300_000,
  );

  it(
    'leaves at any instant what can be recovered and resumed',
    async () => {
      for (let round = 0; round < INSTANTS; round += 1) {
        const world = copyOf(prepared, server.url);
        const { child, done } = await startCli(world, RUN);
        const ms = Math.round((wholeMs * (round + Math.random())) / INSTANTS);
        const timer = setTimeout(() => child.kill('SIGKILL'), ms);
        await done;
        clearTimeout(timer);
        try {
          await expectRecovery(world);
        } catch (error) {
          throw new Error(`killed after ${ms} ms, in ${world.project}`, { cause: error });
        }
        remove(world);
      }
    },
    EXTENT === undefined ? 300_000 : 3_600_000,
  );
});
