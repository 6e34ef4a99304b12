import type { ErrorInfo } from '../../core/errors.ts';
import { isActive, type ThreadResult, type ThreadStatus } from '../../core/thread.ts';

/** The end of a run, as far as it shows whether the thread waits. */
interface RunEnd {
  readonly status: ThreadStatus;
  readonly error?: ErrorInfo | null;
}

/** The end of a run that waits for people, itself or through threads whose end it needs. */
export function approvalPending(
  approvals: readonly string[],
  threads: readonly string[] = [],
): ErrorInfo {
  const [first = ''] = approvals;
  return {
    code: 'approval_pending',
    message: `Waiting for approval: ${approvals.join(', ')}`,
    hint: `Look at it with \`rye approvals show ${first}\`, then run \`rye approve ${first}\` or \`rye deny ${first} --comment TEXT\`.`,
    details: { approvals, ...(threads.length === 0 ? {} : { threads }) },
  };
}

/** The end of a leg of a fleet's thread: another leg continues it without a person. */
export function parked(reason: string, threads: readonly string[] = []): ErrorInfo {
  return {
    code: 'thread_parked',
    message: `another leg continues the thread: ${reason}`,
    hint: 'A worker of the fleet continues it. See: rye fleet status',
    details: { reason, ...(threads.length === 0 ? {} : { threads }) },
  };
}

/** True for the end of a leg that another leg continues. */
export function isParked({ status, error }: RunEnd): boolean {
  return status === 'suspended' && error?.code === 'thread_parked';
}

/** True for the end of a run that only waits: it keeps what its calls may need. */
export function isPaused(end: RunEnd): boolean {
  return isWaiting(end) || isParked(end);
}

/** True while a thread may need its budget: no other thread gets what it holds, also if its process is gone. */
export function holdsMoney(record: RunEnd): boolean {
  return isActive(record.status) || isPaused(record);
}

/** True for the end of a run that continues once people have decided. */
export function isWaiting({ status, error }: RunEnd): boolean {
  return status === 'suspended' && error?.code === 'approval_pending';
}

export function waitingOf(verdict: RunEnd): Pick<ThreadResult, 'waiting_for' | 'approvals'> {
  if (!isWaiting(verdict)) return {};
  return { waiting_for: 'approval', approvals: awaitedApprovals(verdict) };
}

/** Ids of the requests that a thread waits for: its own, and requests of the threads that it waits for. */
export function awaitedApprovals({ error }: Pick<RunEnd, 'error'>): readonly string[] {
  return textsOf(error?.details?.['approvals']);
}

/** Ids of the threads whose end a thread needs that waits for people, or that was parked. */
export function awaitedThreads({ error }: Pick<RunEnd, 'error'>): readonly string[] {
  return textsOf(error?.details?.['threads']);
}

function textsOf(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map(String) : [];
}
