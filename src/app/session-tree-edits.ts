import type { LogEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadRecord } from '../core/thread.ts';
import type { ThreadEnv, ThreadPorts } from '../threads/ports.ts';
import { extractThread } from '../threads/session/copied-thread.ts';
import {
  appendCustom,
  appendCustomMessage,
  branchThread,
  changeModel,
  changeThinking,
  editContext,
  labelEntry,
  titleThread,
} from '../threads/session/edit.ts';
import { branchWithModelSummary, compactThread } from '../threads/session/offline-summary.ts';
import { replayThread } from '../threads/session/replay.ts';
import type {
  BranchOptions,
  ImportedSession,
  ImportOptions,
  ManualCompaction,
  ReplayOptions,
  ReplayReport,
  SessionTreeEdits,
} from './api/trees.ts';
import { threadEnv, threadPorts } from './thread-env.ts';
import type { Workspace } from './workspace.ts';

/** Appends to session trees, replays them and imports sessions. */
export class SessionTreeEditor implements SessionTreeEdits {
  readonly #workspace: Workspace;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  async branch(threadId: string, options: BranchOptions): Promise<readonly LogEvent[]> {
    const { at, summary, instructions, message } = options;
    if (summary !== 'model') {
      return await branchThread(this.#ports(), threadId, { at, summary: summary?.text, message });
    }
    const env = await this.#env();
    const signal = options.signal ?? new AbortController().signal;
    const events = await branchWithModelSummary(env, threadId, { at, instructions, signal });
    if (message === undefined) return events;
    const leaf = events.findLast(({ id }) => id !== undefined)?.id ?? at;
    return [...events, ...(await branchThread(env, threadId, { at: leaf, message }))];
  }

  async extract(
    threadId: string,
    options: { readonly at: string; readonly threadId?: string },
  ): Promise<ThreadRecord> {
    return await extractThread(this.#ports(), threadId, options);
  }

  async label(threadId: string, entry: string, label: string | null): Promise<readonly LogEvent[]> {
    return await labelEntry(this.#ports(), threadId, { entry, label });
  }

  async title(threadId: string, title: string): Promise<readonly LogEvent[]> {
    return await titleThread(this.#ports(), threadId, title);
  }

  async changeModel(
    threadId: string,
    wanted: Parameters<SessionTreeEdits['changeModel']>[1],
  ): Promise<readonly LogEvent[]> {
    return await changeModel(this.#ports(), threadId, wanted);
  }

  async changeThinking(threadId: string, level: string): Promise<readonly LogEvent[]> {
    return await changeThinking(this.#ports(), threadId, level);
  }

  async appendCustom(
    threadId: string,
    customType: string,
    data: JsonObject,
  ): Promise<readonly LogEvent[]> {
    return await appendCustom(this.#ports(), threadId, { customType, data });
  }

  async appendCustomMessage(
    threadId: string,
    message: Parameters<SessionTreeEdits['appendCustomMessage']>[1],
  ): Promise<readonly LogEvent[]> {
    return await appendCustomMessage(this.#ports(), threadId, message);
  }

  async editContext(
    threadId: string,
    edit: Parameters<SessionTreeEdits['editContext']>[1],
  ): Promise<readonly LogEvent[]> {
    return await editContext(this.#ports(), threadId, edit);
  }

  async compact(
    threadId: string,
    options: Parameters<SessionTreeEdits['compact']>[1] = {},
  ): Promise<ManualCompaction> {
    const { instructions, signal = new AbortController().signal } = options;
    return await compactThread(await this.#env(), threadId, { instructions, signal });
  }

  async replay(threadId: string, options: ReplayOptions = {}): Promise<ReplayReport> {
    return await replayThread(await this.#env(), threadId, options);
  }

  async importSession(options: ImportOptions): Promise<ImportedSession> {
    const { importSession } = await import('../pi/import-file.ts');
    return await importSession(await this.#env(), options);
  }

  #ports(): ThreadPorts {
    return threadPorts(this.#workspace, { allowUnsigned: false });
  }

  async #env(): Promise<ThreadEnv> {
    return await threadEnv(this.#workspace, { allowUnsigned: false });
  }
}
