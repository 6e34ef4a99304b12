import { cpSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import type { ThreadRecord, ThreadRun } from '../../src/kernel/core/thread.ts';
import { runsOf } from '../../src/kernel/log/runs.ts';
import { isKnown } from '../../src/kernel/log/tree.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { ThreadDocument } from '../../src/kernel/threads/thread-document.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, type WireServer } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { marksIn, marksModel } from './marks.ts';
import { copyOf, expectLegal, openWorld, startCli, type World } from './world.ts';

/** `all` tries what is on the disk after every durable step of the second run, and kills the process after some. */
const EXTENT = process.env['RYE_FAULTS'];
const MESSAGE = 'AGAIN: leave more marks.';
const RESUME = [
  'threads',
  'resume',
  't',
  '--message',
  MESSAGE,
  '--limit',
  'turns=20',
  '--raise-limits',
  '--json',
];

/** Ends of the first run. */
const ENDS = ['completed', 'error', 'cancelled', 'suspended'] as const;
type End = (typeof ENDS)[number];

/** The end and the steps that are tried without `all`: the process is killed after the first, the others are copies of the disk. */
const TRIED_END = 'completed';
const TRIED = [
  'commit registry.db resume',
  'commit budget_ledger.db reopen',
  'append run_started',
  'append tool_settled',
];
/** With `all` the process is killed after one of so many steps. */
const KILLED = 10;

/** A thread with one run, and what the second one does. */
interface Stage {
  /** The world before the second run. */
  readonly world: World;
  readonly before: Facts;
  readonly marks: ReadonlyMap<string, number>;
  /** The durable steps of the second run; `copies/N` is the disk after the one of line N. */
  readonly trace: readonly string[];
  readonly copies: string;
}

/** The state of the thread. */
interface Facts {
  readonly record: ThreadRecord;
  readonly document: ThreadDocument;
  readonly log: Buffer;
}

const NOTE = `hooks:
  - id: note
    event: after_step
    action: { primary: execute, item_type: tool, item_id: rye/bash, params: { command: echo hooked >> hooks.log } }
`;
const PAUSE = `  - id: pause
    event: after_step
    condition: { path: cost.turns, op: eq, value: 2 }
    action: { control: suspend, reason: a person must look }
`;

let server: WireServer;
let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;
let onAsked = (): void => undefined;
const stages = new Map<End, Stage>();

beforeAll(async () => {
  await cliPackage();
  server = await startWireServer((request) => {
    onAsked();
    return marksModel(request);
  });
  prepared = await temporaryWorkspace({ fixture: 'faults' });
  await prepared.rye(['sign', 'config', 'agent/coordination']);
});

afterAll(async () => {
  for (const { world } of stages.values()) remove(world);
  prepared.remove();
  await server.close();
});

const rootOf = ({ project }: World): string => path.dirname(project);

function remove(world: World): void {
  removeFolder(rootOf(world));
}

function folderOf({ project }: World): string {
  return path.join(project, '.ai', 'state', 'threads', 't');
}

/** Runs the first run to its end. */
async function firstRun(world: World, end: End): Promise<void> {
  const file = path.join(world.home, '.ai/config/agent/hooks.yaml');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, end === 'suspended' ? NOTE + PAUSE : NOTE);
  const rye = openWorld(world);
  const canceller = new AbortController();
  let asked = 0;
  onAsked = () => {
    asked += 1;
    if (end === 'cancelled' && asked === 3) canceller.abort('enough');
  };
  try {
    await rye.items.sign('config', 'agent/hooks');
    const result = await rye.threads.execute({
      directiveId: 'work',
      threadId: 't',
      signal: canceller.signal,
      ...(end === 'error' ? { limits: { turns: 2 } } : {}),
    });
    expect(result.status).toBe(end);
  } finally {
    onAsked = () => undefined;
    rye.close();
  }
}

async function factsOf(world: World): Promise<Facts> {
  const store = openStore({ projectPath: world.project, clock: systemClock, ids: systemIds });
  try {
    const record = await store.registry.get('t');
    if (!record) throw new Error('the registry lost the thread');
    const document = JSON.parse(readFileSync(path.join(folderOf(world), 'thread.json'), 'utf8'));
    return { record, document, log: readFileSync(path.join(folderOf(world), 'transcript.jsonl')) };
  } finally {
    store.close();
  }
}

/** Runs the second run once, whole, and keeps a copy of the disk after each durable step. */
async function stageOf(end: End): Promise<Stage> {
  const made = stages.get(end);
  if (made) return made;
  const world = copyOf(prepared, server.url);
  await firstRun(world, end);
  const before = await factsOf(world);
  const marks = marksIn(world.project);
  const root = rootOf(world);
  const copies = path.join(root, 'copies');
  for (const name of ['copies', 'first']) mkdirSync(path.join(root, name));
  for (const name of ['project', 'home'])
    cpSync(path.join(root, name), path.join(root, 'first', name), { recursive: true });
  const trace = path.join(root, 'trace');
  const extra = {
    RYE_TEST_TRACE: trace,
    RYE_TEST_COPIES: JSON.stringify({
      from: world.project,
      to: copies,
      ...(EXTENT === 'all' ? {} : { names: TRIED }),
    }),
  };
  const { done } = await startCli(world, RESUME, { preload: true, extra });
  const { code, stdout, stderr } = await done;
  expect([code, JSON.parse(stdout), stderr]).toMatchObject([0, { status: 'completed' }, '']);
  const steps = readFileSync(trace, 'utf8').trimEnd().split('\n');
  const stage = { world, before, marks, trace: steps, copies };
  stages.set(end, stage);
  return stage;
}

/** Puts what was on the disk after a step in the place of the world. */
function setDisk({ world, copies }: Stage, step: number): void {
  removeFolder(world.project);
  renameSync(path.join(copies, String(step)), world.project);
  resetHome(world);
}

/** Runs the second run again and kills its process after a step. */
async function killAfter({ world }: Stage, step: string, nth: number): Promise<void> {
  removeFolder(world.project);
  cpSync(path.join(rootOf(world), 'first', 'project'), world.project, { recursive: true });
  resetHome(world);
  const extra = { RYE_TEST_KILL: JSON.stringify({ role: 'parent', step, nth }) };
  await (await startCli(world, RESUME, { preload: true, extra })).done;
}

function resetHome(world: World): void {
  removeFolder(world.home);
  cpSync(path.join(rootOf(world), 'first', 'home'), world.home, { recursive: true });
}

/** Without what each process that takes a thread over changes. */
function lasting({ record, document }: Facts) {
  const {
    epoch: _e,
    pid: _p,
    process_start: _s,
    heartbeat_at: _h,
    updated_at: _r,
    ...row
  } = record;
  const { updated_at: _d, transcript: _t, ...rest } = document;
  const { _signature: _g, ...content } = rest as typeof rest & { _signature: string };
  return { row, content };
}

/** Returns a run without its times: the record has the times of its writing, the log the times of the events. */
function untimed({ started_at: _s, finished_at: _f, ...run }: ThreadRun) {
  return run;
}

/** Checks that the first run is as it was, and that log, record and row agree about the others. */
async function expectRuns(world: World, { before }: Stage): Promise<void> {
  const store = openStore({ projectPath: world.project, clock: systemClock, ids: systemIds });
  try {
    const now = await factsOf(world);
    expect(now.log.subarray(0, before.log.length).equals(before.log)).toBe(true);
    const { header, events } = await store.logs.read('t');
    const runs = runsOf(header, events);
    expect(await store.registry.runOf('t')).toBe(runs.length);
    if (runs.length === 1) return expect(lasting(now)).toEqual(lasting(before));
    expect(now.document.runs?.map(untimed)).toEqual(runs.map(untimed));
    const { status, result, error, cost, completed_at } = before.record;
    expect(runs[0]).toMatchObject({ status, cost });
    const end = await store.registry.endOf('t', 1);
    expect(end).toMatchObject({ status, result, error, cost, completed_at });
    const ids = (type: string): readonly string[] =>
      events.flatMap(({ event_type, payload }) =>
        event_type === type ? [(payload as { call_id: string }).call_id] : [],
      );
    for (const type of ['tool_call_start', 'tool_settled'])
      expect(ids(type)).toEqual([...new Set(ids(type))]);
    const ended = events.filter((event) => isKnown(event, 'thread_finished'));
    expect(ended).toHaveLength(runs.length);
  } finally {
    store.close();
  }
}

/** Files that only a process at work has. */
function leftovers({ project }: World): readonly string[] {
  return readdirSync(path.join(project, '.ai'), { recursive: true, encoding: 'utf8' }).filter(
    (name) => /handover|\.tmp$|^\.rye-/.test(path.basename(name)),
  );
}

/** Recovers, checks every file and row, resumes, checks again, and checks what the tools did in all. */
async function expectRecovery(world: World, stage: Stage, end: End): Promise<void> {
  const rye = openWorld(world);
  try {
    const done = marksIn(world.project);
    expect((await rye.recovery.recover()).failures).toEqual([]);
    await expectLegal(world, rye);
    expect(leftovers(world)).toEqual([]);
    await expectRuns(world, stage);
    const { thread } = await rye.threads.show('t');
    expect([end, 'error', 'completed']).toContain(thread.status);
    const isAsked = readFileSync(path.join(folderOf(world), 'transcript.jsonl'), 'utf8').includes(
      MESSAGE,
    );
    const isDone = isAsked && thread.status === 'completed';
    const request = { threadId: 't', limits: { turns: 20 }, raiseLimits: true };
    if (!isDone) {
      const message = isAsked ? {} : { message: MESSAGE };
      expect(await rye.recovery.resume({ ...request, ...message })).toMatchObject({
        success: true,
      });
      await expectLegal(world, rye);
      expect(leftovers(world)).toEqual([]);
      await expectRuns(world, stage);
    }
    const marks = marksIn(world.project);
    for (const [mark, count] of done) expect(marks.get(mark)).toBeGreaterThanOrEqual(count);
    for (const [mark, count] of marks)
      expect([mark, count]).toEqual([
        mark,
        expect.toSatisfy((n) => n <= (mark === 'mark-h' ? 2 : 1)),
      ]);
  } finally {
    rye.close();
  }
}

interface Point {
  readonly step: string;
  /** The number of the step in the trace. */
  readonly line: number;
  /** The number of the step among the steps of its name. */
  readonly nth: number;
  readonly isKilled: boolean;
}

function pointsOf({ trace }: Stage): readonly Point[] {
  const points = trace.map((step, index) => {
    const nth = trace.slice(0, index + 1).filter((one) => one === step).length;
    return { step, line: index + 1, nth };
  });
  if (EXTENT === 'all')
    return points.map((point) => ({ ...point, isKilled: point.line % KILLED === 0 }));
  return TRIED.flatMap((name, index) => {
    const point = points.find(({ step }) => step.startsWith(name));
    return point ? [{ ...point, isKilled: index === 0 }] : [];
  });
}

describe.each(EXTENT === 'all' ? ENDS : ([TRIED_END] as const))(
  'the second run of a thread that was %s',
  (end) => {
    it(
      'can be recovered and resumed after the process died after a durable step',
      async () => {
        const stage = await stageOf(end);
        const points = pointsOf(stage);
        expect(points.length).toBeGreaterThanOrEqual(TRIED.length);
        const failures: string[] = [];
        for (const { step, line, nth, isKilled } of points) {
          if (isKilled) await killAfter(stage, step, nth);
          else setDisk(stage, line);
          try {
            await expectRecovery(stage.world, stage, end);
          } catch (error) {
            failures.push(`after ${step} #${nth}: ${inspect(error, { depth: 6 })}`);
          }
        }
        expect(failures.join('\n')).toBe('');
      },
      EXTENT === 'all' ? 3_600_000 : 300_000,
    );
  },
);
