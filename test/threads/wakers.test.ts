import { expect, it } from 'vitest';
import type { RequestedApproval } from '../../src/kernel/core/approval.ts';
import type { ErrorInfo } from '../../src/kernel/core/errors.ts';
import type { ThreadStatus } from '../../src/kernel/core/thread.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { resumeWaitingAncestors } from '../../src/kernel/threads/family/resume-process.ts';
import { DecisionTaker, wakeUnwoken } from '../../src/kernel/threads/family/take-up.ts';
import type { ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { approvalPending, parked } from '../../src/kernel/threads/run/waiting.ts';
import { requestedApproval } from '../../testing/conformance/approvals.ts';
import { portsDesk } from './ports-desk.ts';

const now = new Date().toISOString();
const PAST = '2026-01-01T00:00:00.000Z';
const FUTURE = '2999-01-01T00:00:00.000Z';

/** The ports of a process, with a fleet that notes which threads it is to resume. */
async function wakers() {
  const { env } = await portsDesk();
  const resumed: string[] = [];
  const clock = { ...env.clock, ms: 0 };
  const fleet = {
    start: async () => undefined,
    resume: async (threadId: string) => resumed.push(threadId) > 0,
  };
  const ports: ThreadEnv = { ...env, fleet, clock: { ...env.clock, monotonic: () => clock.ms } };
  return { env: ports, resumed, clock };
}

/** Registers a thread in a state. */
async function thread(
  { store: { registry }, owner }: ThreadEnv,
  threadId: string,
  status: ThreadStatus,
  error?: ErrorInfo,
  parentId: string | null = null,
): Promise<void> {
  const row = { threadId, directive: 'd', parentId, model: 'm', now };
  const { epoch } = await registry.register({ ...row, owner, isClaimed: true });
  if (status === 'running') return;
  const end = { status, now, cost: NO_COST, result: '', epoch, ...(error ? { error } : {}) };
  await registry.finish(threadId, end);
}

function request(
  { signer }: ThreadEnv,
  changes: { readonly of?: string; readonly expires?: string; readonly isOthers?: boolean } = {},
): RequestedApproval {
  const { of = 'a', expires = FUTURE, isOthers = false } = changes;
  const found = requestedApproval('apr-1', { thread_id: of, expires_at: expires });
  const key = isOthers ? {} : { worker_key_id: signer().keyId };
  return { ...found, request: { ...found.request, ...key } };
}

it.each<[string, Parameters<typeof request>[1], boolean, string, readonly string[]]>([
  ['is decided', {}, true, 'apr-1', ['a']],
  ['is open', {}, false, 'apr-1', []],
  ['has expired', { expires: PAST }, false, 'apr-1', ['a']],
  ['is of a thread of another key', { isOthers: true }, true, 'apr-1', []],
  ['is not what its thread waits for now', {}, true, 'apr-2', []],
])('a request resumes its thread: it %s', async (_, changes, isDecided, awaited, ids) => {
  const { env, resumed } = await wakers();
  await thread(env, 'a', 'suspended', approvalPending([awaited]));
  await thread(env, 'b', 'suspended', approvalPending(['apr-1']));
  await env.store.approvals.add([request(env, changes)]);
  if (isDecided) await env.store.approvals.close('apr-1', 'approved', now);
  const taker = new DecisionTaker(env);
  expect(await taker.takeUpAll()).toEqual(ids);
  expect(await taker.takeUp(['a'])).toEqual([]);
  expect(resumed).toEqual(ids);
});

it('a thread that did not continue is resumed again after a while, and its next run at once', async () => {
  const { env, resumed, clock } = await wakers();
  await thread(env, 'a', 'suspended', approvalPending(['apr-1']));
  await env.store.approvals.add([request(env)]);
  await env.store.approvals.close('apr-1', 'approved', now);
  const taker = new DecisionTaker(env);
  const tries = async (ms: number): Promise<number> => {
    clock.ms = ms;
    return (await taker.takeUp(['a'])).length;
  };
  expect([await tries(0), await tries(29_999), await tries(30_000)]).toEqual([1, 0, 1]);
  const { registry } = env.store;
  const record = await registry.get('a');
  if (!record) throw new Error('no thread');
  const { epoch } = await registry.resume(record, env.owner, now);
  const error = approvalPending(['apr-1']);
  await registry.finish('a', { status: 'suspended', now, cost: NO_COST, result: '', error, epoch });
  expect(await tries(30_001)).toBe(1);
  expect(resumed).toEqual(['a', 'a', 'a']);
});

it.each<[string, ThreadStatus, boolean, readonly string[]]>([
  ['has ended', 'completed', false, ['a']],
  ['has failed', 'error', false, ['a']],
  ['runs', 'running', false, []],
  ['has ended, and a request of another key is awaited too', 'completed', true, []],
])(
  'a thread whose waker died is woken: the one that it waits for %s',
  async (_, status, isOthers, ids) => {
    const { env, resumed } = await wakers();
    await thread(env, 'kid', status);
    await thread(env, 'a', 'suspended', approvalPending(['apr-1'], ['kid']));
    await thread(env, 'b', 'suspended', { code: 'thread_suspended', message: 'by a hook' });
    await env.store.approvals.add([request(env, { isOthers })]);
    await wakeUnwoken(env);
    expect(resumed).toEqual(ids);
  },
);

it('in a store of many machines only those above the ended threads are woken', async () => {
  const { env, resumed } = await wakers();
  await thread(env, 'a', 'suspended', approvalPending([], ['kid']));
  await thread(env, 'kid', 'completed', undefined, 'a');
  await thread(env, 'b', 'suspended', approvalPending([], ['done']));
  await thread(env, 'done', 'completed', undefined, 'b');
  const { maintenance: _local, ...shared } = env.store;
  await wakeUnwoken({ ...env, store: shared }, { ended: ['kid'] });
  expect(resumed).toEqual(['a']);
});

type Above = readonly [ErrorInfo, ThreadStatus, (ErrorInfo | undefined)?, ThreadStatus?];

it.each<[string, Above, readonly string[]]>([
  ['waits for it, and it has ended', [approvalPending(['x'], ['kid']), 'completed'], ['a']],
  ['waits for another', [approvalPending(['x'], ['other']), 'completed'], []],
  ['waits for it, and it runs', [approvalPending(['x'], ['kid']), 'running'], []],
  [
    'waits for the request for which it waits too',
    [approvalPending(['x'], ['kid']), 'suspended', approvalPending(['x'])],
    [],
  ],
  [
    'does not know a request for which it waits',
    [approvalPending(['x'], ['kid']), 'suspended', approvalPending(['x', 'y'])],
    ['a'],
  ],
  ['is parked for it, and it has ended', [parked('w', ['kid']), 'completed'], ['a']],
  [
    'is parked for it and another, which runs',
    [parked('w', ['kid', 'other']), 'completed', undefined, 'running'],
    [],
  ],
  [
    'is parked for it and another, which waits for people',
    [parked('w', ['kid', 'other']), 'completed', undefined, 'suspended'],
    ['a'],
  ],
  ['is parked for it, and it is parked too', [parked('w', ['kid']), 'suspended', parked('w')], []],
])(
  'the end of a thread resumes the one above: that %s',
  async (_, [error, kid, kidError, other], ids) => {
    const { env, resumed } = await wakers();
    await thread(env, 'a', 'suspended', error);
    await thread(env, 'kid', kid, kidError, 'a');
    const waits = other === 'suspended' ? approvalPending(['z']) : undefined;
    await thread(env, 'other', other ?? 'completed', waits, 'a');
    await resumeWaitingAncestors(env, 'kid');
    expect(resumed).toEqual(ids);
  },
);
