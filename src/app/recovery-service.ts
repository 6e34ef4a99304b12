import type { ThreadResult } from '../core/thread.ts';
import type { Foundation } from './foundation.ts';
import type {
  RecoveryReport,
  RecoveryService,
  RepairReport,
  ResumeThreadRequest,
  RetentionReport,
} from './recovery-types.ts';

/** Loads what resumes and recovers only when it is asked for. */
export class LazyRecovery implements RecoveryService {
  readonly #base: Foundation;

  constructor(base: Foundation) {
    this.#base = base;
  }

  async resume(request: ResumeThreadRequest): Promise<ThreadResult> {
    const { resumeThread } = await import('./recovery.ts');
    return await resumeThread(this.#base, request);
  }

  async recover(options: Parameters<RecoveryService['recover']>[0] = {}): Promise<RecoveryReport> {
    const { recoverThreads } = await import('./recovery.ts');
    return await recoverThreads(this.#base, options);
  }

  async repair(): Promise<RepairReport> {
    const { repairState } = await import('./repair.ts');
    return await repairState(this.#base);
  }

  async collect(options: Parameters<RecoveryService['collect']>[0]): Promise<RetentionReport> {
    const { collectLogs } = await import('./recovery.ts');
    return await collectLogs(this.#base, options);
  }
}
