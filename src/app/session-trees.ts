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
import { signedPart } from '../threads/verified-log.ts';
import type { FoldedContext, OpenedTree, SessionTreeReads, TreeView } from './api/trees.ts';
import type { Workspace } from './workspace.ts';

/** Reads session trees. */
export class SessionTreeReader implements SessionTreeReads {
  readonly #workspace: Workspace;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  async view(
    threadId: string,
    options: Parameters<SessionTreeReads['view']>[1] = {},
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
    const { events, offsets, problems } = await this.#workspace.store.logs.readEntries(threadId);
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
    const found = await this.#workspace.store.logs.lookUp(threadId, entry);
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
    const { store, keyring } = this.#workspace;
    const part = await signedPart({ store, verifier: keyring.payloadVerifier }, threadId);
    const { events } = await store.logs.readEntries(threadId, part);
    const tree = buildTree(events);
    const leafId = entry === undefined ? tree.leafId : entryByPrefix(tree, entry).id;
    return foldContext(tree, { leafId, startedCalls: startedCallIds(events) });
  }

  async #tree(threadId: string): Promise<SessionTree> {
    return buildTree((await this.#workspace.store.logs.readEntries(threadId)).events);
  }
}
