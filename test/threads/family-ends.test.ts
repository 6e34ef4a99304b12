import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { threadEnv } from '../../src/kernel/app/thread-env.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { afterEnd } from '../../src/kernel/threads/family/cancel.ts';
import { endChildren } from '../../src/kernel/threads/family/end-children.ts';
import { settleChildren } from '../../src/kernel/threads/family/settle-children.ts';
import type { ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { approvalPending } from '../../src/kernel/threads/run/waiting.ts';
import { requestedApproval } from '../../testing/conformance/approvals.ts';
import { desk } from './steering-desk.ts';

const now = new Date().toISOString();
const FACTS = { directive: 'team/watch', model: 'm', now } as const;

/** The ports of a project, with a fleet that notes which threads it is to resume. */
async function family(coordination = '') {
  const { project, store } = await desk([], { coordination });
  const home = path.join(project, '..', 'home');
  const base = new Workspace({
    features: FEATURES,
    projectPath: project,
    userSpacePath: home,
    env: { HOME: home },
  });
  onTestFinished(() => base.close());
  const resumed: string[] = [];
  const fleet = {
    start: async () => undefined,
    resume: async (threadId: string) => resumed.push(threadId) > 0,
  };
  const env: ThreadEnv = { ...(await threadEnv(base, { allowUnsigned: false })), fleet };
  return { env, store, resumed };
}

it('the policy for a parent that completed is not about one that waits or that another one continues', async () => {
  const { env, store } = await family('child_policy: { on_parent_complete: cancel }\n');
  await store.registry.register({ ...FACTS, threadId: 'parent', parentId: null, owner: null });
  await store.registry.register({ ...FACTS, threadId: 'child', parentId: 'parent', owner: null });
  const ends: string[] = [];
  for (const status of ['suspended', 'continued', 'completed'] as const) {
    await endChildren(env, 'parent', status);
    ends.push(`${status}: ${(await store.registry.get('child'))?.status}`);
  }
  expect(ends).toEqual(['suspended: created', 'continued: created', 'completed: cancelled']);
});

it.each(['approved', 'denied', 'answered', 'withdrawn', undefined] as const)(
  'a thread about which people decided while it was suspended continues at once: %s',
  async (outcome) => {
    const { env, store, resumed } = await family();
    const owned = { ...FACTS, owner: env.owner, isClaimed: true };
    await store.registry.register({ ...owned, threadId: 'a-1', parentId: null });
    const error = approvalPending(['apr-1']);
    const end = { status: 'suspended', now, cost: NO_COST, result: '', error, epoch: 1 } as const;
    await store.registry.finish('a-1', end);
    await store.approvals.add([requestedApproval('apr-1')]);
    if (outcome) await store.approvals.close('apr-1', outcome, now);
    // the row of the first one is lost: it was not decided
    const result = { thread_id: 'a-1', status: 'suspended', approvals: ['apr-0', 'apr-1'] };
    await afterEnd(env, result as unknown as ThreadResult);
    expect(resumed).toEqual(outcome ? ['a-1'] : []);
  },
);

it('the children of a thread that is cancelled while it waits for them are cancelled too', async () => {
  const { env, store } = await family();
  const owned = { ...FACTS, owner: env.owner, isClaimed: true };
  await store.registry.register({ ...owned, threadId: 'parent', parentId: null });
  await store.registry.register({ ...owned, threadId: 'child', parentId: 'parent' });
  let calls = 0;
  const registry = new Proxy(env.store.registry, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      return async (...args: readonly unknown[]): Promise<unknown> => {
        calls += 1;
        if (calls > 500) throw new Error('it waits for a child that was not told to end');
        const found: unknown = await Reflect.apply(value, target, args);
        const end = { status: 'cancelled', now, cost: NO_COST, result: '', epoch: 1 } as const;
        if (name === 'requestCancel') await target.finish('child', end);
        return found;
      };
    },
  });
  const until = AbortSignal.abort('enough');
  const ports = { ...env, store: { ...env.store, registry } };
  await settleChildren(ports, { threadId: 'parent', until });
  expect(await store.registry.get('child')).toMatchObject({
    status: 'cancelled',
    cancel_requested: 'its parent parent ended',
  });
});
