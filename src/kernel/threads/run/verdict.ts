import type { ErrorInfo } from '../../core/errors.ts';
import type { FinalStatus } from '../../core/thread.ts';
import type { LoopOutcome } from '../../loop/ports.ts';
import { approvalPending, parked } from './waiting.ts';

/** An outcome as the registry, thread.json and the result state it. */
export interface Verdict {
  readonly status: FinalStatus | 'suspended';
  readonly result: string;
  readonly error?: ErrorInfo;
}

/** Returns what an outcome of the loop makes of its thread. A handoff needs a successor that continues it. */
export function judge(outcome: LoopOutcome, hasSuccessor: boolean): Verdict {
  switch (outcome.kind) {
    case 'completed':
      return { status: 'completed', result: outcome.result };
    case 'limit':
    case 'error':
      return { status: 'error', result: outcome.last_text, error: outcome.error };
    case 'cancelled':
      return {
        status: 'cancelled',
        result: outcome.last_text,
        error: { code: 'cancelled', message: `the thread was cancelled: ${outcome.reason}` },
      };
    case 'suspended':
      return {
        status: 'suspended',
        result: outcome.last_text,
        error: errorOfSuspension(outcome),
      };
    case 'handoff':
      return hasSuccessor
        ? { status: 'continued', result: outcome.last_text }
        : {
            status: 'error',
            result: outcome.last_text,
            error: {
              code: 'internal',
              message: 'the thread was to hand off, but has no successor',
            },
          };
  }
}

function errorOfSuspension(outcome: Extract<LoopOutcome, { kind: 'suspended' }>): ErrorInfo {
  const { reason, approvals, threads, isParked = false } = outcome;
  if (isParked || approvals?.length === 0) return parked(reason, threads);
  if (approvals) return approvalPending(approvals, threads);
  return {
    code: 'thread_suspended',
    message: `suspended by ${reason}`,
    hint: 'To continue, resume the thread.',
  };
}
