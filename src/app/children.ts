import { assertItemId } from '../core/ids.ts';
import type { ThreadResult } from '../core/thread.ts';
import { type CancelRequest, cancelThread, killThread } from '../threads/family/cancel.ts';
import { handoverOf, launchThread } from '../threads/family/spawn.ts';
import { waitThreads } from '../threads/family/wait.ts';
import type { ThreadEnv } from '../threads/ports.ts';
import { prepareThread } from '../threads/prepare/prepare.ts';
import { prepareToolRun } from '../threads/prepare/tool-run.ts';
import { runLaunched } from '../threads/run/lifecycle.ts';
import type { Foundation } from './foundation.ts';
import { openRecording } from './recording.ts';
import type {
  ExecuteDirectiveRequest,
  ExecuteToolRequest,
  KilledThread,
  LaunchedThread,
  LaunchOptions,
  WaitOptions,
  WaitReport,
} from './rye.ts';
import { threadEnv } from './thread-env.ts';
import { observer, prepareRequest, runnerOptions, withPresets } from './thread-runs.ts';

/** Starts a directive in a process of its own. */
export async function launchDirective(
  base: Foundation,
  given: ExecuteDirectiveRequest,
  { leaves }: LaunchOptions = {},
): Promise<LaunchedThread> {
  const request = withPresets(base, given);
  const { allowUnsigned = false, replayFrom, threadId } = request;
  const env = threadEnv(base, { allowUnsigned, replayFrom, preset: request.preset });
  const prepared = await prepareThread(env, prepareRequest(request));
  return await launchThread(env, { prepared, threadId, options: runnerOptions(request), leaves });
}

/** Starts one tool in a process of its own. */
export async function launchToolRun(
  base: Foundation,
  { toolId, params = {}, allowUnsigned = false, acknowledge }: ExecuteToolRequest,
): Promise<LaunchedThread> {
  assertItemId(toolId, 'tool');
  const env = threadEnv(base, { allowUnsigned });
  const parentThreadId = env.parentFromEnvironment === '' ? undefined : env.parentFromEnvironment;
  const prepared = await prepareToolRun(env, { toolId, params, parentThreadId, acknowledge });
  const options = { allow_unsigned: allowUnsigned };
  return await launchThread(env, { prepared, threadId: env.ids.uuid(), options });
}

/** Runs a launched thread in this process. */
export async function runLaunchedThread(
  base: Foundation,
  threadId: string,
  { signal }: { readonly signal: AbortSignal },
): Promise<ThreadResult> {
  const handover = await handoverOf(envOf(base), threadId);
  const { allow_unsigned: allowUnsigned, replay_from, record_to } = handover.options;
  const env = threadEnv(base, { allowUnsigned, replayFrom: replay_from });
  return await runLaunched(env, threadId, {
    handover,
    signal,
    onEvent: observer(env, undefined),
    wrapProvider: record_to === undefined ? undefined : openRecording(record_to),
  });
}

/** Waits until threads have ended. */
export async function waitForIds(
  base: Foundation,
  threadIds: readonly string[],
  { any = false, timeoutSeconds, signal, onEnd, onLook }: WaitOptions,
): Promise<WaitReport> {
  return await waitThreads(envOf(base), {
    threadIds,
    mode: any ? 'any' : 'all',
    timeoutMs: timeoutSeconds === undefined ? undefined : timeoutSeconds * 1000,
    signal: signal ?? new AbortController().signal,
    onEnd,
    onLook,
  });
}

/** Asks a thread to stop. */
export async function cancelById(
  base: Foundation,
  request: CancelRequest,
): Promise<readonly string[]> {
  return await cancelThread(envOf(base), request);
}

/** Ends the process of a thread, then the thread. */
export async function killById(
  base: Foundation,
  request: CancelRequest,
): Promise<readonly KilledThread[]> {
  return await killThread(envOf(base), request);
}

function envOf(base: Foundation): ThreadEnv {
  return threadEnv(base, { allowUnsigned: false });
}
