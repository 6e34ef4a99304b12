import { LIMIT_NAMES, type Limits, type PartialLimits } from '../../core/limits.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { type Cost, type MicroUsd, toMicroUsd, toUsd } from '../../core/usage.ts';
import { raisedLimits } from '../../log/runs.ts';
import { limitsOfRun, type RunLimits, type UsedLimits } from '../../policy/run-limits.ts';
import type { Process, Stored } from '../ports.ts';
import type { Resumable } from './resumable.ts';
import { heirAbove, leftByRoot } from './successor.ts';

/** The limits of a thread's next run. */
export interface NextLimits extends RunLimits {
  /** Those of the plan that is stored for it. */
  readonly planned: Limits;
}

/** Returns the limits of the next run of a thread that has used `cost`. */
export async function nextLimits(
  env: Stored & Pick<Process, 'onNotice'>,
  resumable: Resumable,
  { cost, grants }: { readonly cost: Cost; readonly grants: PartialLimits },
): Promise<NextLimits> {
  const { record, planned } = resumable;
  const { ledger } = env.store;
  const subtreeSpend = toUsd(await ledger.committed(record.thread_id));
  const limits = limitsNow(resumable);
  const used = { cost, subtreeSpend, spawns: record.spawn_count };
  const allowed = withinParent(env, resumable, { limits, used, grants });
  const next = within(allowed, await mostSpend(env, record, grants));
  // a raise is in the log: with another plan, no decision about the calls that wait would count
  const isAsNow = LIMIT_NAMES.every((name) => next.total[name] === limits[name]);
  return { ...next, planned: isAsNow ? planned.limits : next.total };
}

/** Returns a thread's limits: those of its plan, and what was raised since. */
export function limitsNow({ planned, log }: Pick<Resumable, 'planned' | 'log'>): Limits {
  return { ...planned.limits, ...raisedLimits(log.events) };
}

/** Tells a person what the parent takes from the limits. */
function withinParent(
  { onNotice }: Pick<Process, 'onNotice'>,
  { parent }: Resumable,
  {
    limits,
    used,
    grants,
  }: { readonly limits: Limits; readonly used: UsedLimits; readonly grants: PartialLimits },
): RunLimits {
  const next = limitsOfRun(limits, used, grants, parent?.limits);
  if (!parent) return next;
  const { run: wanted } = limitsOfRun(limits, used, grants);
  for (const name of LIMIT_NAMES) {
    const allowed = next.run[name];
    if (allowed === wanted[name]) continue;
    onNotice(
      `the limit ${name} of this run is ${allowed} instead of ${wanted[name]}: its parent ${parent.thread_id} allows no more`,
    );
  }
  return next;
}

/** Returns the most that a run may spend without a grant of a person; undefined: its limits and the ledger decide. */
async function mostSpend(
  env: Stored,
  { thread_id: threadId, parent_id: parentId }: ThreadRecord,
  grants: PartialLimits,
): Promise<MicroUsd | undefined> {
  if (grants.spend !== undefined) return undefined;
  const [row] = await env.store.ledger.rows({ thread_id: threadId });
  // one that waits has kept its money
  return row?.status === 'active' ? undefined : await leftByRoot(env, parentId);
}

/** Returns limits with no more spend in the next run than `most`. */
function within({ total, run }: RunLimits, most: MicroUsd | undefined): RunLimits {
  const less = most === undefined ? 0 : Math.max(0, toMicroUsd(run.spend) - most);
  const lowered = (limits: Limits): Limits => {
    return { ...limits, spend: toUsd(toMicroUsd(limits.spend) - less) };
  };
  return { total: lowered(total), run: lowered(run) };
}

/** Opens the budget of a thread for its next run. Returns how to take that back. */
export async function fundNextRun(
  env: Stored,
  { thread_id: threadId, parent_id: parentId }: ThreadRecord,
  { spend, epoch }: { readonly spend: number; readonly epoch: number },
): Promise<() => Promise<void>> {
  const { ledger } = env.store;
  const [before] = await ledger.rows({ thread_id: threadId });
  const held = await ledger.remaining(threadId);
  const heir = await heirAbove(env, parentId);
  await ledger.reopen(threadId, toMicroUsd(spend), { epoch, heir });
  // one that waits holds as much as before, an ended one nothing
  return async () =>
    before?.status === 'active'
      ? await ledger.reopen(threadId, held, { epoch })
      : await ledger.release(threadId, epoch);
}
