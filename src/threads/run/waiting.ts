import type { ErrorInfo } from '../../core/errors.ts';
import type { ThreadResult, ThreadStatus } from '../../core/thread.ts';

/** The end of a run, as far as it shows whether the thread waits. */
interface RunEnd {
  readonly status: ThreadStatus;
  readonly error?: ErrorInfo | null;
}

/** The end of a run that waits for people. */
export function approvalPending(approvals: readonly string[]): ErrorInfo {
  const [first = ''] = approvals;
  return {
    code: 'approval_pending',
    message: `a person has to decide: ${approvals.join(', ')}`,
    hint: `Look at it with \`rye approvals show ${first}\`, then run \`rye approve ${first}\` or \`rye deny ${first} --comment TEXT\`.`,
    details: { approvals },
  };
}

/** True for the end of a run that continues once people have decided. */
export function isWaiting({ status, error }: RunEnd): boolean {
  return status === 'suspended' && error?.code === 'approval_pending';
}

export function waitingOf(verdict: RunEnd): Pick<ThreadResult, 'waiting_for' | 'approvals'> {
  const approvals = verdict.error?.details?.['approvals'];
  if (!isWaiting(verdict) || !Array.isArray(approvals)) return {};
  return { waiting_for: 'approval', approvals: approvals.map(String) };
}
