import type { LogEvent, UnknownEvent } from '../core/events.ts';
import { compact } from '../core/json.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { foldContext, startedCallIds, titleOf } from '../log/context.ts';
import {
  buildTree,
  childrenOf,
  entryByPrefix,
  isKnown,
  leafThrough,
  pathTo,
  type SessionTree,
  type TreeEntry,
} from '../log/tree.ts';
import { type TreeDivider, viewTree } from '../log/tree-view.ts';
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
    const { tree, facts, dividers } = await this.#read(threadId);
    const { filter, search } = options;
    const drawn = options.dividers ? dividers : [];
    return { ...facts, rows: viewTree(tree, compact({ filter, search, dividers: drawn })) };
  }

  async open(threadId: string): Promise<OpenedTree> {
    const { tree, facts, dividers } = await this.#read(threadId);
    const sent = new Map<string | null, ReadonlySet<string | null>>();
    return {
      ...facts,
      rows: (filter) => viewTree(tree, { filter, dividers }),
      isSent(entry) {
        const leafId = leafThrough(tree, entry);
        const sources = sent.get(leafId) ?? new Set(foldContext(tree, { leafId }).sources);
        sent.set(leafId, sources);
        return sources.has(entry);
      },
    };
  }

  async #read(threadId: string): Promise<{
    readonly tree: SessionTree;
    readonly facts: Omit<TreeView, 'rows'>;
    readonly dividers: readonly TreeDivider[];
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
    const record = await this.#workspace.store.registry.get(threadId);
    return { tree, facts, dividers: dividersOf(events, record) };
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

/** Marks where runs start, and the threads before and after this one in a chain of handoffs. */
function dividersOf(
  events: readonly (LogEvent | UnknownEvent)[],
  record: ThreadRecord | undefined,
): readonly TreeDivider[] {
  const dividers: TreeDivider[] = [];
  const { continuation_of: earlier = null, continuation_thread_id: later = null } = record ?? {};
  if (record && earlier !== null) {
    dividers.push({
      text: `continued from ${earlier}`,
      seq: 0,
      timestamp: record.created_at,
      payload: { thread_id: earlier },
      thread: earlier,
    });
  }
  for (const event of events) {
    if (!isKnown(event, 'run_started')) continue;
    const { seq, timestamp, payload } = event;
    const when = timestamp.slice(0, 'YYYY-MM-DDTHH:MM'.length).replace('T', ' ');
    const text = `run ${payload.run} · ${payload.reason} · ${when}`;
    dividers.push({ text, seq, timestamp, payload: { ...payload } });
  }
  if (record && later !== null) {
    dividers.push({
      text: `handed off to ${later}`,
      seq: Number.MAX_SAFE_INTEGER,
      timestamp: record.updated_at,
      payload: { thread_id: later },
      thread: later,
      isSuccessor: true,
    });
  }
  return dividers;
}
