import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { ErrorInfo } from '../../src/kernel/core/errors.ts';
import type { ThreadStatus } from '../../src/kernel/core/thread.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { leaveHandover } from '../../src/kernel/threads/family/process-fs.ts';
import { startQueued } from '../../src/kernel/threads/family/spawn.ts';
import { type WaitRequest, waitThreads } from '../../src/kernel/threads/family/wait.ts';
import type { ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { approvalPending, parked } from '../../src/kernel/threads/run/waiting.ts';
import { portsDesk } from './ports-desk.ts';

const now = new Date().toISOString();
const ROW = { directive: 'd', parentId: null, model: 'm', now } as const;

it.each([
  ['has none', 'none', 'no program here'],
  ['are in the memory of a living process', 'alive', undefined],
  ['were in the memory of a dead process', 'dead', 'are lost'],
  ['cannot be told: its file is damaged', 'damaged', 'no program here'],
] as const)('a queued thread starts where its secret inputs are: it %s', async (_, holder, why) => {
  const { env, lab } = await portsDesk();
  const { registry, owners } = env.store;
  await registry.register({ ...ROW, threadId: 'job', owner: null });
  await registry.register({ ...ROW, threadId: 'next', owner: null });
  const folder = path.join(lab.project, '.ai/state/threads/job');
  mkdirSync(folder, { recursive: true });
  const {
    pid,
    process_start: start,
    host,
  } = owners.columns(owners.ofProcess(process.ppid) ?? env.owner);
  const held = { pid, processStart: holder === 'dead' ? 'before' : start, host };
  const isHeld = holder === 'alive' || holder === 'dead';
  const handover = {
    format: 1,
    options: { allow_unsigned: false },
    ...(isHeld ? { holder: held } : {}),
  };
  if (holder === 'damaged') writeFileSync(path.join(folder, 'handover.json'), '{');
  else leaveHandover(folder, JSON.stringify(handover));
  const runner = () => Promise.reject(new Error('no program here'));
  const failures = await startQueued({ ...env, runner });
  expect(failures.get('job')?.message).toEqual(
    why === undefined ? undefined : expect.stringContaining(why),
  );
  expect((await registry.get('job'))?.status).toBe(why === undefined ? 'created' : 'error');
  // the next one does not wait for it
  expect((await registry.get('next'))?.status).toBe('error');
  expect([...failures.keys()].at(-1)).toBe('next');
});

/** Registers a thread in a state. */
async function thread(
  { store: { registry }, owner }: ThreadEnv,
  threadId: string,
  status: ThreadStatus,
  error?: ErrorInfo,
): Promise<void> {
  const { epoch } = await registry.register({ ...ROW, threadId, owner, isClaimed: true });
  if (status === 'running') return;
  const end = { status, now, cost: NO_COST, result: '', epoch, ...(error ? { error } : {}) };
  await registry.finish(threadId, end);
}

type Wait = Partial<Pick<WaitRequest, 'mode' | 'parks' | 'parksAfterMs' | 'takesUp'>>;
const ASKED = { threads: ['asks'], approvals: ['apr-1'] };

it.each<[string, readonly string[], Wait, object]>([
  ['one that waits for people has ended for a plain wait', ['asks'], {}, { timed_out: false }],
  [
    'a wait that parks ends with what is asked',
    ['asks', 'done'],
    { parks: true },
    { timed_out: true, waiting: ASKED },
  ],
  [
    'a wait that parks continues while another runs',
    ['asks', 'runs'],
    { parks: true },
    { timed_out: true },
  ],
  [
    'a wait that takes up continues while people decide',
    ['asks'],
    { takesUp: true },
    { timed_out: true },
  ],
  [
    'a wait that parks after a time ends with all that are open',
    ['asks', 'runs', 'done'],
    { parks: true, parksAfterMs: 0 },
    { timed_out: true, waiting: { threads: ['asks', 'runs'], approvals: ['apr-1'] } },
  ],
  ['a parked leg has not ended', ['leg'], {}, { timed_out: true }],
  ['one end is enough', ['runs', 'done'], { mode: 'any' }, { timed_out: false, success: true }],
  [
    'one failed end is enough',
    ['runs', 'failed'],
    { mode: 'any' },
    { timed_out: false, success: false },
  ],
  ['an unknown thread is no end', ['none'], { mode: 'any' }, { timed_out: false, success: false }],
  ['all have to end', ['done', 'runs'], {}, { timed_out: true, success: false }],
  ['all have to be completed', ['done', 'failed'], {}, { timed_out: false, success: false }],
  [
    'an unknown thread is not waited for',
    ['done', 'none'],
    {},
    { timed_out: false, success: false },
  ],
])('of waits, %s', async (_, threadIds, more, expected) => {
  const { env } = await portsDesk();
  await thread(env, 'asks', 'suspended', approvalPending(['apr-1']));
  await thread(env, 'leg', 'suspended', parked('drained'));
  await thread(env, 'runs', 'running');
  await thread(env, 'done', 'completed');
  await thread(env, 'failed', 'error', { code: 'thread_error', message: 'it failed' });
  const { signal } = new AbortController();
  const request: WaitRequest = { threadIds, mode: 'all', timeoutMs: 30, signal, ...more };
  const { threads: _threads, waiting, ...report } = await waitThreads(env, request);
  expect({ ...report, ...(waiting ? { waiting } : {}) }).toMatchObject(expected);
  expect(waiting !== undefined).toBe('waiting' in expected);
});
