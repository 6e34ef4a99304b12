import { RyeError } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { compact } from '../../core/json.ts';
import type { ThreadResult } from '../../core/thread.ts';
import { isStopped, orStopped } from '../../loop/stop.ts';
import type { ModelProvider } from '../../providers/provider.ts';
import { cancelThread } from '../family/cancel.ts';
import type { ChildStarter, StartedChild } from '../family/children.ts';
import {
  adoptThread,
  type Handover,
  labelOf,
  launchThread,
  type RunnerOptions,
  secretsOf,
} from '../family/spawn.ts';
import type { OnIdle, Preparing, SpawnRequest, ThreadEnv } from '../ports.ts';
import { type PreparedThread, prepareThread } from '../prepare/prepare.ts';
import type { PrepareRequest } from '../prepare/request.ts';
import { prepareToolRun } from '../prepare/tool-run.ts';
import type { ResumeRequest } from '../recovery/resumable.ts';
import { prepareResume } from '../recovery/resume.ts';
import type { ApprovalAttention } from './approvals.ts';
import { joinThread } from './join.ts';
import { ownPass } from './own-pass.ts';
import { type RunOptions, runThread } from './run-thread.ts';
import { startThread } from './start.ts';

export interface DirectiveRun extends Omit<RunOptions, 'secrets' | 'children'> {
  readonly prepare: PrepareRequest;
  readonly threadId?: string | undefined;
  /** Called when the thread exists, before it runs. */
  readonly onStarted?: ((started: StartedChild) => void | Promise<void>) | undefined;
  /** The options of children in other processes. */
  readonly runner: RunnerOptions;
}

/** prepare → start → run, for a root and for its synchronous children alike. */
export async function runDirective(
  env: ThreadEnv,
  { prepare, threadId, onStarted, runner, ...options }: DirectiveRun,
): Promise<ThreadResult> {
  await ownPass();
  const { plan, secrets, parent } = await prepared(env, prepare, options.signal);
  await ownPass();
  const started = await startThread(env, plan, { threadId, parent });
  await onStarted?.({
    thread_id: started.threadId,
    directive: plan.directive.id,
    ...labelOf(plan),
  });
  await ownPass();
  return await runThread(env, started, {
    ...options,
    secrets,
    children: childStarter(env, runner, options.attention),
  });
}

/** Prepares a thread. Nothing is left to finalize when it is interrupted, so it stops at once, with `cancelled`. */
async function prepared(
  env: Preparing,
  request: PrepareRequest,
  signal: AbortSignal | undefined,
): Promise<PreparedThread> {
  const work = prepareThread(env, request);
  const ready = signal === undefined ? await work : await orStopped(work, signal);
  if (!isStopped(ready)) return ready;
  throw new RyeError(
    'cancelled',
    `${request.directiveId} was interrupted before its thread began`,
    {
      hint: 'Nothing was run. Start it again.',
    },
  );
}

/** Starts children of any thread of this process, nested or in the background. */
function childStarter(
  env: ThreadEnv,
  runner: RunnerOptions,
  attention?: ApprovalAttention,
): ChildStarter {
  const options = { allow_unsigned: runner.allow_unsigned };
  return {
    run: async (request, parent, { signal, onStarted, onEvent, onIdle }) =>
      await runDirective(env, {
        prepare: prepareChild(request, parent.threadId),
        signal,
        onStarted,
        onEvent,
        onIdle,
        attention,
        runner: options,
      }),
    join: async (threadId, { signal, onEvent, onIdle }) =>
      await joinThread(env, threadId, {
        signal,
        resume: async () => {
          const resumed = { threadId, signal, onEvent, onIdle, attention, secrets: {} };
          return await runResumed(env, { ...resumed, runner: options });
        },
      }),
    withdraw: async (threadId) => {
      const reason = 'a hook started it, and a hook cannot wait for people';
      await cancelThread(env, { threadId, reason, tree: true });
      return await env.store.registry.get(threadId);
    },
    launch: async (request, parent) =>
      await launchThread(env, {
        prepared: await prepareThread(env, prepareChild(request, parent.threadId)),
        options,
      }),
    launchTool: async (toolId, params, { threadId: parentThreadId }) =>
      await launchThread(env, {
        prepared: await prepareToolRun(env, { toolId, params, parentThreadId }),
        threadId: env.ids.uuid(),
        options,
      }),
  };
}

function prepareChild(
  { directiveId, inputs, limits, model, hookCapabilities, isolation, label }: SpawnRequest,
  parentThreadId: string,
): PrepareRequest {
  const rest = { hookCapabilities, isolation, label, parentThreadId };
  return compact({ directiveId, inputs, limits, model, ...rest });
}

export interface LaunchedRun {
  readonly handover: Handover;
  readonly signal: AbortSignal;
  readonly onEvent?: ((event: LogEvent | UnknownEvent) => void) | undefined;
  readonly wrapProvider?: ((provider: ModelProvider) => ModelProvider) | undefined;
}

/** Runs a launched thread to its end in this process, which was started for it. */
export async function runLaunched(
  env: ThreadEnv,
  threadId: string,
  { handover, ...options }: LaunchedRun,
): Promise<ThreadResult> {
  const secrets = await secretsOf(env, threadId, handover);
  const started = await adoptThread(env, threadId);
  return await runThread(env, started, {
    ...options,
    secrets,
    children: childStarter(env, handover.options),
  });
}

export interface ResumedRun extends ResumeRequest {
  readonly signal?: AbortSignal | undefined;
  readonly onEvent?: ((event: LogEvent | UnknownEvent) => void) | undefined;
  readonly onIdle?: OnIdle | undefined;
  readonly attention?: ApprovalAttention | undefined;
  /** Options of its children in other processes. */
  readonly runner: RunnerOptions;
}

/** Resumes a thread and runs it to its end in this process. */
export async function runResumed(env: ThreadEnv, request: ResumedRun): Promise<ThreadResult> {
  const { runner, signal, onEvent, onIdle, attention, ...resume } = request;
  const isAttended = attention !== undefined;
  const { started, conversation, release } = await prepareResume(env, { ...resume, isAttended });
  const names = started.plan.secret_inputs;
  const given = Object.entries(resume.secrets).filter(([name]) => names.includes(name));
  try {
    return await runThread(env, started, {
      secrets: Object.fromEntries(given),
      signal,
      onEvent,
      onIdle,
      attention,
      children: childStarter(env, runner, attention),
      conversation,
    });
  } finally {
    await release?.();
  }
}
