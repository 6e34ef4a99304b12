import { toRyeError } from '../core/errors.ts';
import { assertItemId } from '../core/ids.ts';
import type { ThreadResult } from '../core/thread.ts';
import { cancelThread, killThread } from '../threads/family/cancel.ts';
import { endQueued, handoverOf, launchThread } from '../threads/family/spawn.ts';

import { waitThreads } from '../threads/family/wait.ts';
import type { ThreadEnv } from '../threads/ports.ts';
import { prepareThread } from '../threads/prepare/prepare.ts';
import { prepareToolRun } from '../threads/prepare/tool-run.ts';
import { runLaunched } from '../threads/run/lifecycle.ts';
import type { ExecuteDirectiveRequest } from './api/rye.ts';
import type {
  ChildrenService,
  ExecuteToolRequest,
  KilledThread,
  LaunchedThread,
  LaunchOptions,
  StopOptions,
  WaitOptions,
  WaitReport,
} from './api/threads.ts';
import { openRecording } from './models.ts';
import { foldPresets } from './presets.ts';
import { threadEnv, threadPorts } from './thread-env.ts';
import { assertRegistered } from './thread-list.ts';
import { observer, runnerOptions } from './thread-runs.ts';
import type { Workspace } from './workspace.ts';

/** Starts threads in new processes, waits for them and stops them. */
export class Children implements Omit<ChildrenService, 'tree' | 'stats'> {
  readonly #workspace: Workspace;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  async launch(
    given: ExecuteDirectiveRequest,
    { leaves }: LaunchOptions = {},
  ): Promise<LaunchedThread> {
    const request = foldPresets(this.#workspace.preset, given);
    const { allowUnsigned = false, replayFrom, threadId, preset } = request;
    const env = await threadEnv(this.#workspace, { allowUnsigned, replayFrom, preset });
    const prepared = await prepareThread(env, request);
    return await launchThread(env, { prepared, threadId, options: runnerOptions(request), leaves });
  }

  async launchTool({
    toolId,
    params = {},
    allowUnsigned = false,
    acknowledge,
  }: ExecuteToolRequest): Promise<LaunchedThread> {
    assertItemId(toolId, 'tool');
    const env = await threadEnv(this.#workspace, { allowUnsigned });
    const parentThreadId = env.parentFromEnvironment === '' ? undefined : env.parentFromEnvironment;
    const prepared = await prepareToolRun(env, { toolId, params, parentThreadId, acknowledge });
    const options = { allow_unsigned: allowUnsigned };
    return await launchThread(env, { prepared, threadId: env.ids.uuid(), options });
  }

  async runLaunched(
    threadId: string,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<ThreadResult> {
    const ports = threadPorts(this.#workspace, { allowUnsigned: false });
    const handover = await handoverOf(ports.files, threadId);
    const { allow_unsigned: allowUnsigned, replay_from, record_to } = handover.options;
    let env: ThreadEnv;
    try {
      env = await threadEnv(this.#workspace, { allowUnsigned, replayFrom: replay_from });
    } catch (error) {
      // no other process will run it
      await endQueued(ports, threadId, toRyeError(error));
      throw error;
    }
    return await runLaunched(env, threadId, {
      handover,
      signal,
      onEvent: observer(env, undefined),
      wrapProvider: record_to === undefined ? undefined : openRecording(record_to),
    });
  }

  async wait(
    threadIds: readonly string[],
    { any = false, timeoutSeconds, signal, onEnd, onLook }: WaitOptions = {},
  ): Promise<WaitReport> {
    return await waitThreads(await this.#env(), {
      threadIds,
      mode: any ? 'any' : 'all',
      timeoutMs: timeoutSeconds === undefined ? undefined : timeoutSeconds * 1000,
      signal: signal ?? new AbortController().signal,
      onEnd,
      onLook,
    });
  }

  async cancel(
    threadId: string,
    { tree = false, reason = 'asked by a person' }: StopOptions = {},
  ): Promise<readonly string[]> {
    await assertRegistered(this.#workspace.store.registry, threadId);
    return await cancelThread(await this.#env(), { threadId, tree, reason });
  }

  async kill(
    threadId: string,
    { tree = false, reason = 'killed by a person' }: StopOptions = {},
  ): Promise<readonly KilledThread[]> {
    await assertRegistered(this.#workspace.store.registry, threadId);
    return await killThread(await this.#env(), { threadId, tree, reason });
  }

  async #env(): Promise<ThreadEnv> {
    return await threadEnv(this.#workspace, { allowUnsigned: false });
  }
}
