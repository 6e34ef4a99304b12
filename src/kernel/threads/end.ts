import { type Clock, isoTime } from '../core/clock.ts';
import type { ErrorInfo } from '../core/errors.ts';
import { compact, type JsonObject } from '../core/json.ts';
import type { ThreadStatus } from '../core/thread.ts';
import { type Cost, toMicroUsd } from '../core/usage.ts';
import type { Stored } from './ports.ts';
import { isPaused } from './run/waiting.ts';

/** The end of a run, as the records beside its log keep it. */
export interface EndOfRun {
  readonly status: ThreadStatus;
  readonly cost: Cost;
  readonly result: string;
  readonly outputs?: JsonObject | undefined;
  readonly error?: ErrorInfo | undefined;
  /** The number of the run; absent: the thread's current run. */
  readonly run?: number | undefined;
  /** The thread that continues this one: it is linked, and gets what it may spend if that is still to be moved. */
  readonly successor?: { readonly threadId: string; readonly spendUsd?: number } | undefined;
}

/** A thread that this process ends. The members are asked at each step, because a failed step can change the end. */
export interface EndingThread {
  readonly threadId: string;
  /** Epoch of the claim of this process: the store refuses a step to a process that has lost the thread. */
  readonly epoch: number;
  readonly end: () => EndOfRun;
  /** Writes thread.json with the end; absent where there is none to write. */
  readonly writeDocument?: ((end: EndOfRun, now: string) => Promise<void>) | undefined;
}

/** Runs one step of an end, which is named for a message. */
export type Attempt = (what: EndStep, step: () => Promise<unknown>) => Promise<void>;
type EndStep = 'writing thread.json' | 'releasing the budget' | 'updating the registry';

interface EndOptions {
  /** Absent: the first step that fails ends the rest, and is thrown. */
  readonly attempt?: Attempt;
  /** The budget is released later, by {@link releaseBudget}. */
  readonly keepsBudget?: boolean;
  /** No claim protects the thread: its row comes first, because the store refuses that to the slower process. */
  readonly isUnclaimed?: boolean;
}

type Ending = Pick<Stored, 'store'> & { readonly clock: Clock };

/**
 * Writes the end of a run beside the log: thread.json, then the budget, then the row of the registry, which others wait
 * for. All ends are written here, in this order: after a crash between two steps the log and thread.json tell recovery
 * the same end, and it does the rest again.
 */
export async function recordEnd(
  env: Ending,
  thread: EndingThread,
  { attempt = async (_, step) => void (await step()), keepsBudget, isUnclaimed }: EndOptions = {},
): Promise<void> {
  const steps: readonly (readonly [EndStep, () => Promise<unknown>])[] = [
    [
      'writing thread.json',
      async () => await thread.writeDocument?.(thread.end(), isoTime(env.clock.now())),
    ],
    [
      'releasing the budget',
      async () => (keepsBudget === true ? undefined : await releaseBudget(env, thread)),
    ],
    ['updating the registry', async () => await finishRow(env, thread)],
  ];
  for (const [what, step] of isUnclaimed === true ? steps.toReversed() : steps) {
    await attempt(what, step);
  }
}

/** Frees what was not spent, or passes it on. A thread that only waits keeps what its calls may need. */
export async function releaseBudget(
  { store: { ledger } }: Pick<Stored, 'store'>,
  { threadId, epoch, end }: EndingThread,
): Promise<void> {
  const { status, error, successor } = end();
  if (isPaused({ status, error: error ?? null })) return;
  if (successor?.spendUsd === undefined || status !== 'continued') {
    await ledger.release(threadId, epoch);
    return;
  }
  await ledger.handOver(threadId, successor.threadId, toMicroUsd(successor.spendUsd));
}

async function finishRow(
  { store: { registry }, clock }: Ending,
  { threadId, epoch, end }: EndingThread,
): Promise<void> {
  const { successor, ...ended } = end();
  const now = isoTime(clock.now());
  if (ended.status === 'continued' && successor) {
    await registry.heartbeat(threadId, epoch, now, { cost: ended.cost });
    await registry.linkContinuation(threadId, successor.threadId, now, epoch);
    return;
  }
  await registry.finish(threadId, { ...compact(ended), now, epoch });
}
