import { RyeError } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { compact } from '../../core/json.ts';
import { isActive, type ThreadRecord, type ThreadResult } from '../../core/thread.ts';
import { threadNotFound } from '../../core/thread-errors.ts';
import { isStopped, orStopped } from '../../loop/stop.ts';
import type { ModelProvider } from '../../providers/provider.ts';
import { cancelThread } from '../family/cancel.ts';
import {
  type ChildStarter,
  chainEnd,
  type JoinedChild,
  type StartedChild,
} from '../family/children.ts';
import { familyCost } from '../family/family-cost.ts';
import { signedEnd } from '../family/signed-end.ts';
import {
  adoptThread,
  type Handover,
  labelOf,
  launchThread,
  type RunnerOptions,
  secretsOf,
} from '../family/spawn.ts';
import { waitThreads } from '../family/wait.ts';
import type { OnIdle, Preparing, SpawnRequest, ThreadEnv } from '../ports.ts';
import { type PreparedThread, prepareThread } from '../prepare/prepare.ts';
import type { PrepareRequest } from '../prepare/request.ts';
import { prepareToolRun } from '../prepare/tool-run.ts';
import type { ResumeRequest } from '../recovery/resumable.ts';
import { prepareResume } from '../recovery/resume.ts';
import type { ApprovalAttention } from './approvals.ts';
import { ownPass } from './own-pass.ts';
import { type RunOptions, runThread } from './run-thread.ts';
import { startThread } from './start.ts';
import { isWaiting, waitingOf } from './waiting.ts';

/** Time before a thread that another process resumes just now is looked at again. */
const LOOK_MS = 50;

/** Resumes a thread in this process. */
type Resume = (threadId: string) => Promise<ThreadResult>;

/**
 * Waits for the end of a thread that waited for people. One about which they have decided is resumed here unless another
 * process does so; one that cannot be resumed is an error of the call that needs it. Cancels the thread if `signal` aborts.
 */
async function joinThread(
  env: ThreadEnv,
  threadId: string,
  { signal, resume }: { readonly signal: AbortSignal; readonly resume: Resume },
): Promise<JoinedChild> {
  const { registry } = env.store;
  const onAbort = (): void => {
    const reason = 'the call that waits for it was stopped';
    void cancelThread(env, { threadId, reason, tree: false }).catch(() => undefined);
  };
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    for (;;) {
      const last = await chainEnd(registry, threadId);
      if (!last) throw threadNotFound(threadId);
      const stored = async (): Promise<JoinedChild> => ({
        result: await storedResult(env, threadId, await trusted(env, last)),
        run: await registry.runOf(last.thread_id),
      });
      if (signal.aborted) return await stored();
      if (isActive(last.status)) {
        const request = { threadIds: [threadId], mode: 'all' as const, signal };
        await waitThreads(env, { ...request, timeoutMs: undefined });
      } else if (isWaiting(last)) {
        try {
          const result = await resume(threadId);
          return { result, run: await registry.runOf(result.thread_id) };
        } catch (error) {
          const code = error instanceof RyeError ? error.code : undefined;
          if (code === 'approval_pending') return await stored();
          if (code !== 'thread_locked') throw error;
          await env.clock.sleep(LOOK_MS, signal);
        }
      } else {
        return await stored();
      }
    }
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

async function trusted(env: ThreadEnv, last: ThreadRecord): Promise<ThreadRecord> {
  return await signedEnd(env, last, await env.store.registry.runOf(last.thread_id));
}

/** Returns the end of a thread, or its wait, as the registry has it. */
async function storedResult(
  env: ThreadEnv,
  threadId: string,
  last: ThreadRecord,
): Promise<ThreadResult> {
  const { status, directive, result, outputs, error, model, parent_id: parent } = last;
  const { changes } = await env.files.readDocument(last.thread_id);
  // the patch is beside the results of the parent, and may come from another machine
  if (changes?.patch && parent !== null) await env.files.pull(parent);
  return {
    success: status === 'completed',
    thread_id: threadId,
    directive,
    status,
    result: result ?? '',
    ...(outputs ? { outputs } : {}),
    ...(error ? { error } : {}),
    ...waitingOf(last),
    cost: await familyCost(env.store.registry, last),
    model: model ?? '',
    ...(parent === null ? {} : { parent_thread_id: parent }),
    ...(last.thread_id === threadId ? {} : { continuation_thread_id: last.thread_id }),
    children: [],
    ...(changes ? { changes } : {}),
    paths: {
      thread: env.files.folder(last.thread_id),
      transcript: env.store.logs.location(last.thread_id),
      knowledge: env.files.knowledgePath(directive, last.thread_id),
    },
  };
}

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
