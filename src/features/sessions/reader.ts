import type {
  FoldedContext,
  OpenedTree,
  SessionTreeReads,
  TreeView,
} from '../../kernel/app/api/trees.ts';
import { learnWords } from '../../kernel/app/feature.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import { compact } from '../../kernel/core/json.ts';
import { accountOf } from '../../kernel/log/account.ts';
import type { LogProblem } from '../../kernel/log/codec.ts';
import { foldContext, startedCallIds, titleOf } from '../../kernel/log/context.ts';
import {
  buildTree,
  childrenOf,
  entryByPrefix,
  isKnown,
  leafThrough,
  pathTo,
  type SessionTree,
  type TreeEntry,
} from '../../kernel/log/tree.ts';
import {
  handoffRow,
  showsDividers,
  type TreeDivider,
  type TreeRow,
  type ViewOptions,
  viewTree,
} from '../../kernel/log/tree-view.ts';
import { type TurnFacts, turnFacts } from '../../kernel/log/turn-facts.ts';
import { readSigned } from '../../kernel/threads/verified-log.ts';

/** Reads session trees. */
export class SessionTreeReader implements SessionTreeReads {
  readonly #workspace: Workspace;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  async view(
    threadId: string,
    { filter, search, session = false }: Parameters<SessionTreeReads['view']>[1] = {},
  ): Promise<TreeView> {
    const parts = session ? await this.#session(threadId) : [await this.#read(threadId)];
    const options = compact({ filter, search });
    const rows = session
      ? sessionRows(parts, options)
      : parts.flatMap(({ tree }) => viewTree(tree, options));
    return { ...factsOf(parts, threadId), chain: await this.#chain(threadId), rows };
  }

  async open(threadId: string): Promise<OpenedTree> {
    const parts = await this.#session(threadId);
    const sent = new Map<string, ReadonlySet<string | null>>();
    return {
      ...factsOf(parts, threadId),
      chain: parts.map(({ threadId: id }) => id),
      rows: (filter) => sessionRows(parts, { filter }),
      turnOf: (entry) => parts.findLast(({ turns }) => turns.has(entry))?.turns.get(entry),
      isSent(entry) {
        const { part, leafId } = branchThrough(parts, entry);
        const key = `${part.threadId} ${leafId}`;
        const sources = sent.get(key) ?? new Set(foldContext(part.tree, { leafId }).sources);
        sent.set(key, sources);
        return sources.has(entry);
      },
    };
  }

  async locate(
    threadId: string,
    entry: string,
    { newest = false }: { readonly newest?: boolean } = {},
  ): Promise<string> {
    const later = (await this.#chain(threadId)).toReversed();
    const others = newest ? later : [threadId, ...later.filter((id) => id !== threadId)];
    let failure: unknown;
    for (const id of others) {
      try {
        await this.entry(id, entry);
        return id;
      } catch (error) {
        if (!(error instanceof RyeError) || error.code !== 'entry_not_found') throw error;
        if (id === threadId) failure = error;
      }
    }
    throw failure;
  }

  /** The threads of the session; only the given one if the registry does not list it. */
  async #chain(threadId: string): Promise<readonly string[]> {
    const { registry } = this.#workspace.store;
    if ((await registry.get(threadId)) === undefined) return [threadId];
    return (await registry.chain(threadId)).map(({ thread_id: id }) => id);
  }

  async #session(threadId: string): Promise<readonly SessionPart[]> {
    const parts: SessionPart[] = [];
    for (const id of await this.#chain(threadId)) {
      const part = await this.#read(id);
      parts.push(parts.length === 0 ? { ...part, after: 0 } : part);
    }
    return parts;
  }

  async #read(threadId: string): Promise<SessionPart> {
    await learnWords(this.#workspace);
    const { events, offsets, problems } = await this.#workspace.store.logs.readEntries(threadId);
    const tree = buildTree(events, (index) => offsets[index] ?? 0);
    const handoff = handoffOf(events, threadId);
    return {
      threadId,
      tree,
      problems: [...problems, ...tree.problems],
      after: handoff?.seq ?? 0,
      handoff,
      runs: runDividers(events),
      turns: turnFacts(events),
    };
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
    const env = { store, verifier: keyring.payloadVerifier };
    const events = await readSigned(env, threadId, { entriesOnly: true });
    const tree = buildTree(events);
    const leafId = entry === undefined ? tree.leafId : entryByPrefix(tree, entry).id;
    return foldContext(tree, { leafId, startedCalls: startedCallIds(events) });
  }

  async #tree(threadId: string): Promise<SessionTree> {
    return buildTree((await this.#workspace.store.logs.readEntries(threadId)).events);
  }
}

/** A thread of a session. */
interface SessionPart {
  readonly threadId: string;
  readonly turns: ReadonlyMap<string, TurnFacts>;
  readonly tree: SessionTree;
  readonly problems: readonly LogProblem[];
  /** Entries up to this seq are copies from the thread before. */
  readonly after: number;
  /** Present if it continues another thread. */
  readonly handoff: TreeDivider | undefined;
  readonly runs: readonly TreeDivider[];
}

function factsOf(
  parts: readonly SessionPart[],
  threadId: string,
): Omit<TreeView, 'rows' | 'chain'> {
  const titles = parts.map(({ tree }) => titleOf(tree));
  const own = parts.map(({ tree: { entries }, after }) => entries.filter(({ seq }) => seq > after));
  return {
    thread_id: threadId,
    title: titles.findLast((title) => title !== null) ?? null,
    leaf_id: parts.at(-1)?.tree.leafId ?? null,
    total: parts.length === 1 ? (parts[0]?.tree.entries.length ?? 0) : own.flat().length,
    problems: parts.flatMap(({ problems }) => problems),
  };
}

/** Draws the trees of a session one after another. */
function sessionRows(parts: readonly SessionPart[], options: ViewOptions): readonly TreeRow[] {
  return parts.flatMap(({ threadId, tree, runs, after, handoff }, index) => {
    const hasHead = index === parts.length - 1;
    const rows = viewTree(tree, { ...options, dividers: runs, after, hasHead });
    if (index === 0 || !handoff || !showsDividers(options)) return rows;
    return [handoffRow(handoff, threadId), ...rows];
  });
}

/**
 * Returns the branch that decides if an entry is sent: the newest one through it. An entry on the path to a handoff is
 * sent if the last thread has a copy of it.
 */
function branchThrough(
  parts: readonly SessionPart[],
  entry: string,
): { readonly part: SessionPart; readonly leafId: string | null } {
  const at = parts.findIndex(({ tree, after }) => (tree.byId.get(entry)?.seq ?? 0) > after);
  const part = parts[at];
  const last = parts.at(-1);
  if (!part || !last) throw new RyeError('entry_not_found', `the session has no entry ${entry}`);
  const leafId = leafThrough(part.tree, entry);
  return part === last || leafId !== part.tree.leafId
    ? { part, leafId }
    : { part: last, leafId: last.tree.leafId };
}

function handoffOf(
  events: readonly (LogEvent | UnknownEvent)[],
  threadId: string,
): TreeDivider | undefined {
  const continued = events.find((event) => isKnown(event, 'thread_continued'));
  if (!continued) return undefined;
  const { seq, timestamp } = continued;
  const text = `handed off to ${threadId} · ${minuteOf(timestamp)}`;
  return { text, seq, timestamp, payload: { thread_id: threadId } };
}

/** Marks where later runs start. */
function runDividers(events: readonly (LogEvent | UnknownEvent)[]): readonly TreeDivider[] {
  return events.flatMap((event) => {
    if (!isKnown(event, 'run_started')) return [];
    const { seq, timestamp, payload } = event;
    const text = `${accountOf(event)?.text ?? ''} · ${minuteOf(timestamp)}`;
    return [{ text, seq, timestamp, payload: { ...payload } }];
  });
}

function minuteOf(timestamp: string): string {
  return timestamp.slice(0, 'YYYY-MM-DDTHH:MM'.length).replace('T', ' ');
}
