import { readFileSync, writeFileSync } from 'node:fs';
import { expect, it, onTestFinished } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { threadEnv } from '../../src/kernel/app/thread-env.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { isoTime } from '../../src/kernel/core/clock.ts';
import type { ThreadRecord } from '../../src/kernel/core/thread.ts';
import { ownerOf } from '../../src/kernel/storage/owners.ts';
import { cancelThread } from '../../src/kernel/threads/family/cancel.ts';
import type { ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { family, starts } from './family.ts';
import { calls, type House, marks } from './house.ts';

interface Ends {
  readonly parent: string;
  /** Ids of the two children, which wait. */
  readonly waiting: readonly string[];
}

/** A parent that waits for two children that wait for a person each. */
async function waitingFamily(): Promise<{ readonly here: House } & Ends> {
  const here = await family({
    parent: [calls(starts('ask-one'), starts('ask-two'))],
    'ask-one': [calls(marks('one'))],
    'ask-two': [calls(marks('two'))],
  });
  const { thread_id: parent } = await here.json(['run', 'parent'], 8);
  const waiting = (await here.waiting()).map(({ thread_id: id }) => id);
  expect(waiting).toHaveLength(2);
  return { here, parent: String(parent), waiting };
}

async function rowOf(here: House, id: string): Promise<ThreadRecord> {
  return (await here.rye().threads.show(id)).thread;
}

/** Cancels a whole tree as a process with other ports. */
async function cancelWith(
  here: House,
  threadId: string,
  change: (env: ThreadEnv) => Partial<ThreadEnv>,
): Promise<readonly string[]> {
  const { project: projectPath, home: userSpacePath, env } = here;
  const base = new Workspace({ features: FEATURES, projectPath, userSpacePath, env });
  onTestFinished(() => base.close());
  const made = await threadEnv(base, { allowUnsigned: false });
  const ports = { ...made, ...change(made) };
  return await cancelThread(ports, { threadId, reason: 'enough', tree: true });
}

it('a child that cannot be ended keeps none of its family, and stays as it was', async () => {
  const { here, parent, waiting } = await waitingFamily();
  const [damaged = '', other = ''] = waiting;
  const plan = here.path(`state/threads/${damaged}/plan.json`);
  const whole = readFileSync(plan, 'utf8');
  writeFileSync(plan, whole.replace('"directive"', '"Directive"'));
  const { code, stderr } = await here.cli(['threads', 'cancel', parent, '--tree']);
  expect([code, stderr]).toEqual([3, expect.stringContaining('plan.json')]);
  expect((await rowOf(here, parent)).status).toBe('cancelled');
  expect((await rowOf(here, other)).status).toBe('cancelled');
  expect(await rowOf(here, damaged)).toMatchObject({
    status: 'suspended',
    cancel_requested: expect.any(String),
  });
  expect((await here.waiting()).map(({ thread_id: id }) => id)).toEqual([damaged]);
  writeFileSync(plan, whole);
  await here.json(['threads', 'cancel', damaged]);
  expect((await rowOf(here, damaged)).status).toBe('cancelled');
  expect(await here.waiting()).toEqual([]);
  await here.json(['verify', 'thread', damaged]);
});

it('a thread whose log cannot be opened waits again, and its family is cancelled', async () => {
  const { here, parent, waiting } = await waitingFamily();
  const [locked = '', other = ''] = waiting;
  const before = await rowOf(here, locked);
  const cancelled = cancelWith(here, parent, ({ store }) => {
    const reopen: typeof store.logs.reopen = async (id, options) => {
      if (id === locked) throw new Error('no space');
      return await store.logs.reopen(id, options);
    };
    return { store: { ...store, logs: { ...store.logs, reopen } } };
  });
  await expect(cancelled).rejects.toThrow('no space');
  const { status, error, cost } = before;
  expect(await rowOf(here, locked)).toMatchObject({ status, error, cost });
  expect((await rowOf(here, other)).status).toBe('cancelled');
  expect((await here.waiting()).map(({ thread_id: id }) => id)).toEqual([locked]);
  await here.json(['threads', 'cancel', locked]);
  expect((await rowOf(here, locked)).status).toBe('cancelled');
});

it('a thread that another process resumes at that moment is asked to stop', async () => {
  const { here, waiting } = await waitingFamily();
  const [resumed = ''] = waiting;
  const owner = ownerOf({ pid: 1, process_start: 'x', host: 'elsewhere' });
  await cancelWith(here, resumed, ({ store, clock }) => {
    const { registry } = store;
    const real = registry.claim.bind(registry);
    const claim: typeof registry.claim = async (id, ...claimed) => {
      const now = await registry.get(id);
      if (now) await registry.resume(now, owner, isoTime(clock.now()));
      return await real(id, ...claimed);
    };
    Object.assign(registry, { claim });
    return {};
  });
  expect(await rowOf(here, resumed)).toMatchObject({
    status: 'running',
    cancel_requested: 'enough',
  });
});
