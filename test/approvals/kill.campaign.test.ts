import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { copyOf, openWorld, startCli, type World } from '../faults/world.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { calls, house, marks, payloads, pusher, readLog, reply } from './house.ts';

/** `all` kills after every durable step of each command, not only after those that concern approvals. */
const EXTENT = process.env['RYE_FAULTS'];
const THREAD = 't';
const RUN = ['run', 'pusher', '--thread-id', THREAD, '--json'] as const;

/** The request, its row, the decision, its use with the intent of the call, the effect and the result. */
const BOUNDARY =
  /approval|tool_call_start|tool_settled|registry\.db (?:add|decide|finish)|run_started/;

/** A command that is killed, and what has happened before it. */
interface Stage {
  readonly name: string;
  readonly before: (rye: Rye) => Promise<void>;
  readonly args: (id: string) => readonly string[];
  /** The step from which on a kill concerns approvals. */
  readonly from: string;
}

const STAGES: readonly Stage[] = [
  { name: 'rye run', before: async () => {}, args: () => RUN, from: 'append approval_requested' },
  {
    name: 'rye approve',
    before: ran,
    args: (id) => ['approve', id, '--no-resume'],
    from: 'commit registry.db decide',
  },
  {
    name: 'rye threads resume',
    before: async (rye) => {
      await ran(rye);
      await approve(rye);
    },
    args: () => ['threads', 'resume', THREAD, '--json'],
    from: 'append run_started',
  },
];

async function ran(rye: Rye): Promise<void> {
  const result = await rye.threads.execute({ directiveId: 'pusher', threadId: THREAD });
  expect(result).toMatchObject({ status: 'suspended', waiting_for: 'approval' });
}

async function approve(rye: Rye): Promise<void> {
  for (const { id } of await rye.approvals.list()) {
    await rye.approvals.decide({ id, decision: 'approve', resume: false });
  }
}

/** Makes the call unless a result tells that it was started. */
async function prepared() {
  const here = await house();
  // each kill in a request books what it had reserved
  here.signed('directives/pusher.md', pusher('pusher', '5'));
  const { url } = await here.model(({ body }) => {
    const text = JSON.stringify(body.messages);
    const isOpen = !text.includes('tool_result') || text.includes('was not started');
    return isOpen ? calls(marks('mark')) : reply('done');
  });
  return { here, url };
}

interface Kill {
  readonly step: string;
  readonly nth: number;
}

/** Runs a stage in a fresh world, to its end or up to the kill; returns the steps that it passed. */
async function runStage(world: World, stage: Stage, kill?: Kill): Promise<readonly string[]> {
  const rye = openWorld(world);
  let id = '';
  try {
    await stage.before(rye);
    id = (await rye.approvals.list({ state: 'all' })).at(0)?.id ?? '';
  } finally {
    rye.close();
  }
  const trace = path.join(path.dirname(world.project), 'trace');
  const extra = {
    RYE_TEST_TRACE: trace,
    ...(kill ? { RYE_TEST_KILL: JSON.stringify({ role: 'parent', ...kill }) } : {}),
  };
  const { child, done } = await startCli(world, stage.args(id), { preload: true, extra });
  const { stdout, stderr } = await done;
  if (!kill) expect(child.exitCode, stdout + stderr).toBe(stage.name === 'rye run' ? 8 : 0);
  return readFileSync(trace, 'utf8').trimEnd().split('\n');
}

/** Recovers, decides what waits, and resumes to the end: as often as it takes, and as a person would. */
async function finish(world: World): Promise<{ readonly asked: number; readonly ran: number }> {
  const rye = openWorld(world);
  try {
    const { failures } = await rye.recovery.recover();
    expect(failures).toEqual([]);
    for (let round = 0; ; round += 1) {
      const thread = (await rye.threads.list()).find(({ thread_id: id }) => id === THREAD);
      if (thread?.status === 'completed') break;
      expect(round, JSON.stringify(thread)).toBeLessThan(5);
      await approve(rye);
      await rye.recovery.resume({ threadId: THREAD });
    }
    const { checks } = await rye.threads.verify(THREAD);
    expect(checks.filter(({ ok }) => !ok)).toEqual([]);
    const log = readLog(world.project, THREAD);
    return {
      asked: payloads(log, 'approval_requested').length,
      ran: payloads(log, 'tool_call_start').filter(({ approval }) => approval).length,
    };
  } finally {
    rye.close();
  }
}

function marksIn({ project }: World): number {
  try {
    return readFileSync(path.join(project, 'mark'), 'utf8').trimEnd().split('\n').length;
  } catch {
    return 0; // the call never ran
  }
}

// Requirement: approvals-used-once
it.each(STAGES)(
  '$name, killed after each durable step: the call runs once or its end is unknown, and no decision is lost',
  async (stage) => {
    const { here, url } = await prepared();
    const whole = copyOf(here, url);
    const steps = await runStage(whole, stage);
    const counts = new Map<string, number>();
    const points = steps.map((step): Kill => {
      counts.set(step, (counts.get(step) ?? 0) + 1);
      return { step, nth: counts.get(step) ?? 1 };
    });
    const first = steps.findIndex((step) => step.startsWith(stage.from));
    expect(first, steps.join('\n')).toBeGreaterThanOrEqual(0);
    const after = points.slice(first);
    const boundaries = after.filter(({ step, nth }) => nth === 1 && BOUNDARY.test(step));
    expect(boundaries.length).toBeGreaterThan(0);
    for (const point of EXTENT === 'all' ? after : boundaries) {
      const world = copyOf(here, url);
      await runStage(world, stage, point);
      const before = marksIn(world);
      try {
        const { asked, ran: started } = await finish(world);
        const settled = payloads(readLog(world.project, THREAD), 'tool_settled');
        const isUnknown = settled.some(({ outcome }) => outcome === 'aborted');
        expect(started).toBe(1);
        expect(marksIn(world)).toBeLessThanOrEqual(1);
        if (!isUnknown || before === 1) expect(marksIn(world)).toBe(1);
        // a decision that was recorded before the kill is used, and not asked for again
        expect(asked).toBe(1);
      } catch (error) {
        const where = `killed after ${point.step} #${point.nth}, in ${world.project}`;
        throw new Error(where, { cause: error });
      }
      removeFolder(path.dirname(world.project));
    }
    removeFolder(path.dirname(whole.project));
  },
  EXTENT === 'all' ? 3_600_000 : 300_000,
);
