import type { MicroUsd } from '../core/usage.ts';
import type { BudgetRow, Heir, Held } from '../policy/budget.ts';

/**
 * Hierarchical budgets in integer micro-dollars. Each method is one immediate transaction. Nothing is added twice:
 * subtree spend is derived, never cascaded.
 */
export interface Ledger {
  /** Registers a root. Registering the same root again with the same maximum is a no-op. */
  register(threadId: string, max: MicroUsd): Promise<void>;
  /**
   * Sets `amount` aside from the parent, which keeps at least `keep` (default 0); refused with `budget_insufficient` when
   * it does not fit, with `illegal_transition` when the parent has ended.
   */
  reserve(childId: string, amount: MicroUsd, parentId: string, keep?: MicroUsd): Promise<void>;
  /**
   * Makes a thread that has ended active again, with `grant` above what its subtree spent and still holds; what it
   * spent stays. The nearest active ancestor pays and keeps at least `keep` (default 0): `budget_insufficient` when the
   * grant does not fit. Without an active ancestor the thread is its own cap. With an epoch it fences as {@link fence} does.
   * With an heir the thread's branch moves to the heir's successor first, which then pays.
   */
  reopen(
    threadId: string,
    grant: MicroUsd,
    options?: {
      readonly epoch?: number;
      readonly keep?: MicroUsd;
      readonly heir?: Heir | undefined;
    },
  ): Promise<void>;
  /**
   * Raises the thread's maximum; one that has as much keeps it. The nearest active ancestor pays the difference:
   * `budget_insufficient` when it does not fit. Refused with `thread_locked` to an owner that was fenced.
   */
  raise(threadId: string, to: MicroUsd, epoch: number): Promise<void>;
  /**
   * Sets aside what a model call may cost at most, before it is sent and until the next report, so that no other thread gets
   * it. Replaces what was set aside before. False if it does not fit. Refused with `thread_locked` to an owner that was fenced.
   */
  holdForCall(threadId: string, amount: MicroUsd, epoch: number): Promise<boolean>;
  /**
   * Sets the thread's own spend so far, with which its call is over. Never lowers the spend. `nextCall` is what the thread
   * needs for its next model call; absent: as before. Refused with `thread_locked` to an owner that was fenced.
   */
  report(threadId: string, actual: MicroUsd, epoch: number, nextCall?: MicroUsd): Promise<void>;
  /** Returns what a thread needs for its next model call, as it reported last; 0 if it has made none. */
  nextCall(threadId: string): Promise<MicroUsd>;
  /** From now on only owners with this epoch or a higher one report for the thread. */
  fence(threadId: string, epoch: number): Promise<void>;
  /**
   * Ends the thread's claim: what it did not spend returns to the parent. Idempotent. Without effect for the epoch of an
   * owner that was fenced: the budget is that of a later run.
   */
  release(threadId: string, epoch?: number): Promise<void>;
  /**
   * Releases a thread and passes the rest of its budget, at most `amount`, to its successor, so that no other thread
   * can take it in between. Returns what the successor got. Once only: refused for a released thread.
   */
  handOver(threadId: string, successorId: string, amount: MicroUsd): Promise<MicroUsd>;
  /** max − own − Σ active children max(reserved, subtree) − Σ released children's subtree. The thread's own call is part of it. */
  remaining(threadId: string): Promise<MicroUsd>;
  /** Returns the unspent reservations of a thread's running children, the largest first. */
  held(threadId: string): Promise<readonly Held[]>;
  /** Inserts rows that are missing, parents first; returns the ids of those that were. */
  restore(rows: readonly BudgetRow[]): Promise<readonly string[]>;
  subtreeSpend(threadId: string): Promise<MicroUsd>;
  /** The spend of the subtree, and what its running threads still hold. */
  committed(threadId: string): Promise<MicroUsd>;
  /** In the order of their registration. */
  rows(filter?: Partial<Pick<BudgetRow, 'thread_id' | 'status'>>): Promise<readonly BudgetRow[]>;
}
