import { toRyeError } from '../core/errors.ts';
import { assertItemId } from '../core/ids.ts';
import { cancelThread, killThread } from '../threads/family/cancel.ts';
import { endQueued, handoverOf, launchThread } from '../threads/family/spawn.ts';

import { type WaitedThread, waitThreads } from '../threads/family/wait.ts';
import type { ThreadEnv } from '../threads/ports.ts';
import { prepareThread } from '../threads/prepare/prepare.ts';
import { prepareToolRun } from '../threads/prepare/tool-run.ts';
import { runLaunched } from '../threads/run/lifecycle.ts';
import type { ChildrenService } from './api/threads.ts';
import { labelOfThread, withLabel } from './child-label.ts';
import { openRecording } from './models.ts';
import { foldPresets } from './presets.ts';
import { threadEnv, threadPorts } from './thread-env.ts';
import { assertRegistered } from './thread-list.ts';
import { observer, runnerOptions } from './thread-runs.ts';
import type { Workspace } from './workspace.ts';

/** Starts threads in new processes, waits for them and stops them. */
export function threadChildren(workspace: Workspace): Omit<ChildrenService, 'tree' | 'stats'> {
  const opened = async () => await threadEnv(workspace, { allowUnsigned: false });
  const { registry } = workspace.store;
  const { projectPath } = workspace.options;
  return {
    async launch(given, { leaves } = {}) {
      const request = foldPresets(workspace.preset, given);
      const { allowUnsigned = false, replayFrom, threadId, preset } = request;
      const env = await threadEnv(workspace, { allowUnsigned, replayFrom, preset });
      const prepared = await prepareThread(env, request);
      const options = runnerOptions(request);
      return await launchThread(env, { prepared, threadId, options, leaves });
    },
    async launchTool({ toolId, params = {}, allowUnsigned = false, acknowledge }) {
      assertItemId(toolId, 'tool');
      const env = await threadEnv(workspace, { allowUnsigned });
      const parentThreadId = env.parentFromEnvironment || undefined;
      const prepared = await prepareToolRun(env, { toolId, params, parentThreadId, acknowledge });
      const options = { allow_unsigned: allowUnsigned };
      return await launchThread(env, { prepared, threadId: env.ids.uuid(), options });
    },
    async runLaunched(threadId, { signal, onNext }) {
      const ports = await threadPorts(workspace, { allowUnsigned: false });
      const handover = await handoverOf(ports.files, threadId);
      const { allow_unsigned: allowUnsigned, replay_from, record_to } = handover.options;
      let env: ThreadEnv;
      try {
        env = await threadEnv(workspace, { allowUnsigned, replayFrom: replay_from });
      } catch (error) {
        // no other process will run it
        await endQueued(ports, threadId, toRyeError(error));
        throw error;
      }
      const runNext = (next: string, ended: string): boolean =>
        ended === threadId && !signal.aborted && (onNext?.(next) ?? false);
      return await runLaunched({ ...env, runNext }, threadId, {
        handover,
        signal,
        onEvent: observer(env, undefined),
        wrapProvider: record_to === undefined ? undefined : openRecording(record_to),
      });
    },
    wait: async (
      threadIds,
      {
        any = false,
        timeoutSeconds,
        approvals,
        signal = new AbortController().signal,
        onEnd,
        onLook,
      } = {},
    ) => {
      const { threads, ...report } = await waitThreads(await opened(), {
        threadIds,
        mode: any ? 'any' : 'all',
        takesUp: approvals,
        timeoutMs: timeoutSeconds === undefined ? undefined : timeoutSeconds * 1000,
        signal,
        onEnd: onEnd && ((thread) => onEnd(withLabel(projectPath, thread))),
        onLook,
      });
      const labeled = threads.map(async (thread): Promise<WaitedThread> => {
        const record = await registry.get(thread.thread_id);
        return record ? { ...thread, ...labelOfThread(projectPath, record) } : thread;
      });
      return { ...report, threads: await Promise.all(labeled) };
    },
    async cancel(threadId, { tree = false, reason = 'asked by a person' } = {}) {
      await assertRegistered(registry, threadId);
      return await cancelThread(await opened(), { threadId, tree, reason });
    },
    async kill(threadId, { tree = false, reason = 'killed by a person' } = {}) {
      await assertRegistered(registry, threadId);
      return await killThread(await opened(), { threadId, tree, reason });
    },
  };
}
