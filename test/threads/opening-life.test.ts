import { expect, it, onTestFinished, vi } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { lazy } from '../../src/kernel/app/lazy.ts';
import { threadEnv } from '../../src/kernel/app/thread-env.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import type { ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { runDirective } from '../../src/kernel/threads/run/lifecycle.ts';
import type { Worktrees } from '../../src/kernel/threads/worktrees.ts';
import { text } from '../helpers/wire-server.ts';
import { bash, repository, type UndoDesk } from './undo-desk.ts';

const FAST = 'recovery: { stale_seconds: 1 }\n';

/** The ports of a process in this project. */
async function processOf({ lab }: UndoDesk): Promise<ThreadEnv> {
  const { project: projectPath, home: userSpacePath, env } = lab;
  const base = new Workspace({ features: FEATURES, projectPath, userSpacePath, env });
  onTestFinished(() => base.close());
  return await threadEnv(base, { allowUnsigned: false });
}

/** Waits until the thread gives another sign of life. */
async function nextSign({ store }: ThreadEnv, threadId: string): Promise<void> {
  const before = (await store.registry.get(threadId))?.heartbeat_at;
  const isLater = async (): Promise<boolean> =>
    (await store.registry.get(threadId))?.heartbeat_at !== before;
  await vi.waitUntil(isLater, { timeout: 20_000, interval: 50 });
}

function run(env: ThreadEnv, isolation?: { readonly kind: 'worktree' }) {
  const prepare = { directiveId: 'work', inputs: {}, ...(isolation ? { isolation } : {}) };
  return runDirective(env, { prepare, threadId: 'a', runner: { allow_unsigned: false } });
}

it('a thread gives signs of life, and sees a request to stop, while its worktree is made', async () => {
  const desk = await repository();
  desk.lab.signed('config/agent/coordination.yaml', FAST);
  const made = await processOf(desk);
  const { worktrees } = made;
  const open: typeof worktrees.open = async (...request) => {
    await nextSign(made, 'a');
    await nextSign(made, 'a');
    await made.store.registry.requestCancel('a', 'enough', '2026-01-01T00:00:00.000Z');
    await nextSign(made, 'a');
    await worktrees.open(...request);
  };
  desk.turns.push([text('Done.')]);
  const env = { ...made, worktrees: lazy<Worktrees>(async () => worktrees, { open }) };
  const result = await run(env, { kind: 'worktree' });
  expect(result.status).toBe('cancelled');
});

it('a thread that continues another one gives signs of life while that one ends', async () => {
  const desk = await repository();
  const handsOff = 'continuation: { mode: handoff, trigger_threshold: 0.00001 }\n';
  desk.lab.signed('config/agent/coordination.yaml', FAST + handsOff);
  const env = await processOf(desk);
  const { registry } = env.store;
  const link = registry.linkContinuation.bind(registry);
  let links = 0;
  const linkContinuation: typeof link = async (threadId, successorId, ...others) => {
    links += 1;
    if (links === 1) await nextSign(env, successorId);
    await link(threadId, successorId, ...others);
  };
  Object.assign(registry, { linkContinuation });
  desk.turns.push([bash('true')], [text('Done.')]);
  expect((await run(env)).status).toBe('continued');
  expect(links).toBeGreaterThan(0);
});
