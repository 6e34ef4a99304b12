import type { LogEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { foldContext, startedCallIds, titleOf } from '../log/context.ts';
import {
  buildTree,
  childrenOf,
  entryByPrefix,
  pathTo,
  type SessionTree,
  type TreeEntry,
} from '../log/tree.ts';
import { viewTree } from '../log/tree-view.ts';
import type { ThreadEnv } from '../threads/ports.ts';
import { signedPart } from '../threads/verified-log.ts';
import type { Foundation } from './foundation.ts';
import type {
  BranchOptions,
  FoldedContext,
  ImportedSession,
  ImportOptions,
  ManualCompaction,
  OpenedTree,
  ReplayOptions,
  ReplayReport,
  SessionTrees,
  TreeView,
} from './session-trees.ts';

/** Reading and editing session trees. What edits, summarises or replays is loaded when it is first used. */
export class Trees implements SessionTrees {
  readonly #base: Foundation;

  constructor(base: Foundation) {
    this.#base = base;
  }

  async view(
    threadId: string,
    options: Parameters<SessionTrees['view']>[1] = {},
  ): Promise<TreeView> {
    const { tree, facts } = await this.#read(threadId);
    return { ...facts, rows: viewTree(tree, options) };
  }

  async open(threadId: string): Promise<OpenedTree> {
    const { tree, facts } = await this.#read(threadId);
    return { ...facts, rows: (filter) => viewTree(tree, { filter }) };
  }

  async #read(threadId: string): Promise<{
    readonly tree: SessionTree;
    readonly facts: Omit<TreeView, 'rows'>;
  }> {
    const { events, offsets, problems } = await this.#base.store.logs.readEntries(threadId);
    const tree = buildTree(events, (index) => offsets[index] ?? 0);
    const facts = {
      thread_id: threadId,
      title: titleOf(tree),
      leaf_id: tree.leafId,
      total: tree.entries.length,
      problems: [...problems, ...tree.problems],
    };
    return { tree, facts };
  }

  async entry(threadId: string, entry: string): Promise<TreeEntry> {
    const found = await this.#base.store.logs.lookUp(threadId, entry);
    return 'entry' in found ? found.entry : entryByPrefix(buildTree(found.opened.events), entry);
  }

  async path(threadId: string, entry?: string): Promise<readonly TreeEntry[]> {
    const tree = await this.#tree(threadId);
    return pathTo(tree, entry === undefined ? tree.leafId : entryByPrefix(tree, entry).id);
  }

  async children(threadId: string, entry: string): Promise<readonly TreeEntry[]> {
    const tree = await this.#tree(threadId);
    return childrenOf(tree, entry === 'root' ? null : entryByPrefix(tree, entry).id);
  }

  async context(threadId: string, entry?: string): Promise<FoldedContext> {
    const { store, keyring } = this.#base;
    const part = await signedPart({ store, verifier: keyring.payloadVerifier }, threadId);
    const { events } = await store.logs.readEntries(threadId, part);
    const tree = buildTree(events);
    const leafId = entry === undefined ? tree.leafId : entryByPrefix(tree, entry).id;
    return foldContext(tree, { leafId, startedCalls: startedCallIds(events) });
  }

  async branch(threadId: string, options: BranchOptions): Promise<readonly LogEvent[]> {
    const { at, summary, instructions, message } = options;
    const { branchThread } = await import('../threads/session/edit.ts');
    const env = await this.#env();
    if (summary !== 'model') {
      return await branchThread(env, threadId, { at, summary: summary?.text, message });
    }
    const { branchWithModelSummary } = await import('../threads/session/offline-summary.ts');
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
    const { extractThread } = await import('../threads/session/copied-thread.ts');
    return await extractThread(await this.#env(), threadId, options);
  }

  async label(threadId: string, entry: string, label: string | null): Promise<readonly LogEvent[]> {
    const { labelEntry } = await import('../threads/session/edit.ts');
    return await labelEntry(await this.#env(), threadId, { entry, label });
  }

  async title(threadId: string, title: string): Promise<readonly LogEvent[]> {
    const { titleThread } = await import('../threads/session/edit.ts');
    return await titleThread(await this.#env(), threadId, title);
  }

  async changeModel(
    threadId: string,
    wanted: Parameters<SessionTrees['changeModel']>[1],
  ): Promise<readonly LogEvent[]> {
    const { changeModel } = await import('../threads/session/edit.ts');
    return await changeModel(await this.#env(), threadId, wanted);
  }

  async changeThinking(threadId: string, level: string): Promise<readonly LogEvent[]> {
    const { changeThinking } = await import('../threads/session/edit.ts');
    return await changeThinking(await this.#env(), threadId, level);
  }

  async appendCustom(
    threadId: string,
    customType: string,
    data: JsonObject,
  ): Promise<readonly LogEvent[]> {
    const { appendCustom } = await import('../threads/session/edit.ts');
    return await appendCustom(await this.#env(), threadId, { customType, data });
  }

  async appendCustomMessage(
    threadId: string,
    message: Parameters<SessionTrees['appendCustomMessage']>[1],
  ): Promise<readonly LogEvent[]> {
    const { appendCustomMessage } = await import('../threads/session/edit.ts');
    return await appendCustomMessage(await this.#env(), threadId, message);
  }

  async editContext(
    threadId: string,
    edit: Parameters<SessionTrees['editContext']>[1],
  ): Promise<readonly LogEvent[]> {
    const { editContext } = await import('../threads/session/edit.ts');
    return await editContext(await this.#env(), threadId, edit);
  }

  async compact(
    threadId: string,
    options: Parameters<SessionTrees['compact']>[1] = {},
  ): Promise<ManualCompaction> {
    const { compactThread } = await import('../threads/session/offline-summary.ts');
    const { instructions, signal = new AbortController().signal } = options;
    return await compactThread(await this.#env(), threadId, { instructions, signal });
  }

  async replay(threadId: string, options: ReplayOptions = {}): Promise<ReplayReport> {
    const { replayThread } = await import('../threads/session/replay.ts');
    return await replayThread(await this.#env(), threadId, options);
  }

  async importSession(options: ImportOptions): Promise<ImportedSession> {
    const { importSession } = await import('../pi/import-file.ts');
    return await importSession(await this.#env(), options);
  }

  async #tree(threadId: string): Promise<SessionTree> {
    return buildTree((await this.#base.store.logs.readEntries(threadId)).events);
  }

  async #env(): Promise<ThreadEnv> {
    const { threadEnv } = await import('./thread-env.ts');
    return threadEnv(this.#base, { allowUnsigned: false });
  }
}
