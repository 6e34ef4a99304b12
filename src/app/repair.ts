import { RyeError } from '../core/errors.ts';
import { findDead, recoverEach } from '../threads/recovery/recover.ts';
import { assertIdle, restoreThreads } from '../threads/recovery/repair.ts';
import type { Foundation } from './foundation.ts';
import type { RepairReport } from './recovery-types.ts';
import { refreshIndex } from './search.ts';
import { threadEnv } from './thread-env.ts';

/**
 * Rebuilds what a project keeps in databases from the signed files of its threads. Damaged databases are moved aside,
 * nothing is deleted, and what is sound stays as it is. Refused while a thread runs or another repair is under way.
 */
export async function repairState(base: Foundation): Promise<RepairReport> {
  const env = threadEnv(base, { allowUnsigned: false });
  const { store } = env;
  const isEmpty = store.inspect().every(({ state }) => state === 'missing');
  if (isEmpty && env.files.list().length === 0) return NOTHING;
  const lock = store.holdRepair();
  try {
    assertIdle(env);
    const found = store.inspect();
    const unusable = found.find(({ state }) => state === 'unreadable');
    if (unusable) {
      throw new RyeError('storage_failed', `${unusable.path}: ${unusable.detail}`, {
        hint: 'Nothing was changed. Move the file away, then run `rye doctor --repair` again.',
        details: { path: unusable.path },
      });
    }
    const damaged = found.filter(({ state }) => state === 'damaged');
    const suffix = `damaged-${base.clock.now()}`;
    const moved = damaged.map(({ name, path }) => ({
      database: name,
      from: path,
      to: store.setAside(name, suffix),
    }));
    const { threads, budgets, failures } = await restoreThreads(env);
    await refreshIndex(base);
    const swept = await recoverEach(env, await findDead(env, { onlyGone: true }));
    const lostRegistry = threads.length > 0;
    return {
      moved,
      threads,
      budgets,
      recovered: swept.recovered,
      failures: [...failures, ...swept.failures],
      notes: lostRegistry ? [LOST] : [],
    };
  } finally {
    lock.release();
  }
}

const NOTHING: RepairReport = {
  moved: [],
  threads: [],
  budgets: [],
  recovered: [],
  failures: [],
  notes: [],
};

const LOST =
  'Only the registry had queued messages, requests to cancel and which threads ran in the background: they are not restored.';
