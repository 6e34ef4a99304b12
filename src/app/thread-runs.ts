import { compact } from '../core/json.ts';
import type { ThreadPlan } from '../core/plan.ts';
import type { ThreadResult } from '../core/thread.ts';
import { type PrepareRequest, prepareThread } from '../threads/prepare.ts';
import { recoverQuietly } from '../threads/recover.ts';
import { runDirective } from '../threads/run-directive.ts';
import type { RunnerOptions } from '../threads/spawn.ts';
import type { Foundation } from './foundation.ts';
import { openRecording } from './recording.ts';
import type { ExecuteDirectiveRequest } from './rye.ts';
import { threadEnv } from './thread-env.ts';

/** Resolves a request to a plan and changes nothing. */
export async function planDirective(
  base: Foundation,
  request: ExecuteDirectiveRequest,
): Promise<ThreadPlan> {
  const { plan } = await prepareThread(threadEnv(base, envOptions(request)), {
    ...prepareRequest(request),
    isDryRun: true,
  });
  return plan;
}

/** Runs a directive to its end in this process. */
export async function executeDirective(
  base: Foundation,
  request: ExecuteDirectiveRequest,
): Promise<ThreadResult> {
  const env = threadEnv(base, envOptions(request));
  await recoverQuietly(env);
  return await runDirective(env, {
    prepare: prepareRequest(request),
    threadId: request.threadId,
    signal: request.signal,
    onEvent: request.onEvent,
    wrapProvider: request.recordTo === undefined ? undefined : openRecording(request.recordTo),
    runner: runnerOptions(request),
  });
}

function envOptions({ allowUnsigned = false, replayFrom }: ExecuteDirectiveRequest) {
  return { allowUnsigned, replayFrom };
}

/** What children in processes of their own are started with. */
export function runnerOptions({
  allowUnsigned = false,
  replayFrom,
  recordTo,
}: ExecuteDirectiveRequest): RunnerOptions {
  return compact({ allow_unsigned: allowUnsigned, replay_from: replayFrom, record_to: recordTo });
}

/** What prepare is asked for. */
export function prepareRequest(request: ExecuteDirectiveRequest): PrepareRequest {
  const {
    directiveId,
    inputs = {},
    model,
    limits,
    parentThreadId,
    acknowledge,
    allowUnpriced,
    outputSchema,
    behavior,
  } = request;
  const provider = request.provider ?? (request.replayFrom === undefined ? undefined : 'replay');
  return {
    directiveId,
    inputs,
    model,
    provider,
    limits,
    parentThreadId,
    acknowledge,
    allowUnpriced,
    behavior: { ...behavior, ...(outputSchema === undefined ? {} : { schema: outputSchema }) },
  };
}
