import { stat } from 'node:fs/promises';
import { messageOf } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import type { ThreadPlan } from '../core/plan.ts';
import type { ThreadResult } from '../core/thread.ts';
import { observe } from '../hooks/handlers.ts';
import type { RunnerOptions } from '../threads/family/spawn.ts';
import type { Embedding, Process } from '../threads/ports.ts';
import { prepareThread } from '../threads/prepare/prepare.ts';
import { recoverQuietly } from '../threads/recovery/recover.ts';
import { type DirectiveRun, runDirective } from '../threads/run/lifecycle.ts';
import type { ExecuteDirectiveRequest } from './api/rye.ts';
import { attentionOf } from './attendant.ts';
import { openRecording } from './models.ts';
import { foldPresets } from './presets.ts';
import { type ThreadEnvOptions, threadEnv } from './thread-env.ts';
import type { Workspace } from './workspace.ts';

/** Resolves a request to a plan and changes nothing. */
export async function planDirective(
  base: Workspace,
  given: ExecuteDirectiveRequest,
  { needsModel = false }: { readonly needsModel?: boolean } = {},
): Promise<ThreadPlan> {
  return (await planned(base, given, needsModel)).plan;
}

async function planned(base: Workspace, given: ExecuteDirectiveRequest, needsModel: boolean) {
  const request = foldPresets(base.preset, given);
  const env = await threadEnv(base, envOptions(request));
  const { plan } = await prepareThread(env, { ...request, isDryRun: true, needsModel });
  return { env, plan };
}

/** {@link ThreadsService.warmUp} */
export async function warmUp(
  base: Workspace,
  request: ExecuteDirectiveRequest | undefined,
): Promise<void> {
  try {
    const { registry, ledger } = base.store;
    // starts the threads of Node that sync files
    await stat(base.options.projectPath);
    await registry.count({ active: true });
    await ledger.nextCall('');
    // it loads the client of both protocols, which is most of the first request
    await import('node:https');
    if (request === undefined) return;
    const { env, plan } = await planned(base, request, true);
    // the compiled form of a rule is kept as long as its text is the same
    env.rules.watch(plan, { leafId: null });
  } catch {
    // the start fails with the reason
  }
}

/** Runs a directive to its end in this process. */
export async function executeDirective(
  base: Workspace,
  given: ExecuteDirectiveRequest &
    Pick<DirectiveRun, 'onStarted'> &
    Pick<ThreadEnvOptions, 'added'>,
): Promise<ThreadResult> {
  const { added, ...unfolded } = given;
  const request = foldPresets(base.preset, unfolded);
  const env = await threadEnv(base, envOptions({ ...request, added }));
  await recoverQuietly(env);
  return await runDirective(env, {
    prepare: request,
    threadId: request.threadId,
    signal: request.signal,
    onEvent: observer(env, request.onEvent),
    onStarted: given.onStarted,
    wrapProvider: request.recordTo === undefined ? undefined : openRecording(request.recordTo),
    ...(await attentionOf(base, request.attendant)),
    runner: runnerOptions(request),
  });
}

function envOptions({
  allowUnsigned = false,
  replayFrom,
  preset,
  added,
}: Pick<ExecuteDirectiveRequest, 'allowUnsigned' | 'replayFrom' | 'preset'> &
  Pick<ThreadEnvOptions, 'added'>) {
  return { allowUnsigned, replayFrom, preset, added };
}

/** Calls the program's handlers and then the caller. A handler that fails is noticed once and changes nothing. */
export function observer(
  { handlers, onNotice }: Embedding & Pick<Process, 'onNotice'>,
  onEvent: ExecuteDirectiveRequest['onEvent'],
): ExecuteDirectiveRequest['onEvent'] {
  if (!handlers) return onEvent;
  return (event) => {
    observe(handlers(), event, (name, error) =>
      onNotice(`a handler of ${name} failed: ${messageOf(error)}`),
    );
    onEvent?.(event);
  };
}

/** Returns the options for children in other processes. */
export function runnerOptions({
  allowUnsigned = false,
  replayFrom,
  recordTo,
}: Pick<ExecuteDirectiveRequest, 'allowUnsigned' | 'replayFrom' | 'recordTo'>): RunnerOptions {
  return compact({ allow_unsigned: allowUnsigned, replay_from: replayFrom, record_to: recordTo });
}
