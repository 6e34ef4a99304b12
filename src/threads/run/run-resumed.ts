import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { ThreadResult } from '../../core/thread.ts';
import type { ThreadEnv } from '../ports.ts';
import { prepareResume, type ResumeRequest } from '../recovery/resume.ts';
import { childStarter } from './run-directive.ts';
import { runThread } from './run-thread.ts';

export interface ResumedRun extends ResumeRequest {
  readonly allowUnsigned: boolean;
  readonly signal?: AbortSignal | undefined;
  readonly onEvent?: ((event: LogEvent | UnknownEvent) => void) | undefined;
}

/** Goes on with a thread, to its end, in this process. */
export async function runResumed(env: ThreadEnv, request: ResumedRun): Promise<ThreadResult> {
  const { allowUnsigned, signal, onEvent, ...resume } = request;
  const { started, conversation, release } = await prepareResume(env, resume);
  try {
    return await runThread(env, started, {
      secrets: resume.secrets,
      signal,
      onEvent,
      children: childStarter(env, { allow_unsigned: allowUnsigned }),
      conversation,
    });
  } finally {
    release?.();
  }
}
