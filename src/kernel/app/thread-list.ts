import { readdirSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { formatAge, isoTime } from '../core/clock.ts';
import { RyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import { type CostedThread, isActive, isFinal, type ThreadRecord } from '../core/thread.ts';
import { threadNotFound } from '../core/thread-errors.ts';
import { addFamilyCost, addSpend, familyCostOf, totalTokens } from '../core/usage.ts';
import { openRegistry, threadsFolder } from '../storage/open-registry.ts';
import { processOwners } from '../storage/owners.ts';
import type { Owners, Registry, Store, ThreadFilter } from '../storage/store.ts';
import { withFamily } from '../threads/family/family-cost.ts';
import type { OpenRyeOptions, Rye } from './api/rye.ts';
import type {
  ChildrenService,
  ListedThread,
  StatsKey,
  ThreadListFilter,
  ThreadStats,
  ThreadsService,
  ThreadTreeNode,
} from './api/threads.ts';
import { withLabel, withWorkingTime } from './child-label.ts';
import { namesStore } from './store-setting.ts';
import { systemClock } from './system.ts';
import { checkedPlaces, withUserEnv } from './user-space.ts';

const MAX_CANDIDATES = 10;

/** `@` is the last session of the project, `@2` the one before. */
const RECENT = /^@(\d*)$/;

/**
 * The part of an open rye that needs nothing but the table of threads. It exists for start-up: `rye threads list` reads
 * the registry of a local project without opening the store. It never writes, and `openRye({ store })` does not use it.
 */
export interface ThreadList extends Pick<Rye, 'close'> {
  readonly threads: Pick<
    ThreadsService,
    'count' | 'descendants' | 'list' | 'resolveId' | 'unlisted'
  >;
}

/** Opens the table of threads alone: no items, no keys, no configuration, no log. */
export function openThreadList(given: OpenRyeOptions): ThreadList {
  const options = checkedPlaces(given);
  // for its notices: a file of keys that others can read is worth a word in every command
  withUserEnv(options);
  const owners = processOwners();
  const { registry, ...table } = openRegistry(options.projectPath, owners);
  return {
    threads: {
      list: async (filter) =>
        (await listThreads({ registry, owners }, filter)).map((thread) =>
          withLabel(options.projectPath, thread),
        ),
      count: async (filter) => await countThreads(registry, filter),
      descendants: async (ids) => await descendantsOf(registry, ids),
      resolveId: async (part) => await resolveThreadId(registry, part, systemClock.now()),
      unlisted: async () => await unlistedFolders(options.projectPath, registry),
    },
    close(how) {
      table.close(how);
    },
  };
}

/** {@link ThreadsService.unlisted}. Looks at the first level alone, and reads no folder if their number is that of the registry. */
export async function unlistedFolders(
  projectPath: string,
  registry: Registry,
): Promise<readonly string[]> {
  const root = threadsFolder(projectPath);
  const stats = statSync(root, { throwIfNoEntry: false });
  // a folder has a link from above, one from itself and one from each folder in it; other file systems count otherwise
  if (stats === undefined || stats.nlink - 2 === (await registry.count({}))) return [];
  const ids = await registry.findIds('', -1);
  const known = new Set(ids.map((id) => id.split('/', 1)[0]));
  return readdirSync(root, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !known.has(entry.name))
    .map(({ name }) => name)
    .filter((name) =>
      readdirSync(join(root, name), { recursive: true, encoding: 'utf8' }).some(
        (file) => basename(file) === 'thread.json' || basename(file).startsWith('transcript.'),
      ),
    );
}

/** {@link ThreadsService.list} */
export async function listThreads(
  { registry, owners }: Pick<Store, 'registry' | 'owners'>,
  filter: ThreadListFilter = {},
): Promise<readonly ListedThread[]> {
  const records = await recordsOf(registry, filter);
  const costed = filter.sessions === true ? withChain : withFamily<ThreadRecord>;
  return await Promise.all(
    records.map(async (thread) => withProcess(await costed(registry, thread), owners)),
  );
}

/** {@link ThreadsService.count} */
export async function countThreads(
  registry: Registry,
  filter: ThreadListFilter = {},
): Promise<number> {
  const parts = await partsOf(registry, filter);
  const counts = await Promise.all(parts.map(async (part) => await registry.count(part)));
  return counts.reduce((sum, found) => sum + found, 0);
}

async function recordsOf(
  registry: Registry,
  filter: ThreadListFilter,
): Promise<readonly ThreadRecord[]> {
  const parts = await partsOf(registry, filter);
  const [first = [], ...others] = await Promise.all(
    parts.map(async (part) => await registry.list(part)),
  );
  if (others.every((records) => records.length === 0)) return first;
  return [first, ...others]
    .flat()
    .toSorted((one, two) => (one.created_at < two.created_at ? 1 : -1))
    .slice(0, filter.limit);
}

/** Returns the queries that together answer a filter. Children of a session are the children of each of its threads. */
async function partsOf(
  registry: Registry,
  { parent, roots, sessions, ...rest }: ThreadListFilter,
): Promise<readonly ThreadFilter[]> {
  const filter: ThreadFilter = { ...rest, ...(sessions === true ? { isLast: true } : {}) };
  if (parent !== undefined) {
    const isKnown = (await registry.get(parent)) !== undefined;
    const links = isKnown ? await registry.chain(parent) : [{ thread_id: parent }];
    return links.map(({ thread_id: parentId }) => ({ ...filter, parentId }));
  }
  if (roots !== true) return [filter];
  return (['none', 'unlisted'] as const).map((kind) => ({ ...filter, parent: kind }));
}

/** {@link ThreadsService.descendants} */
export async function descendantsOf(
  registry: Registry,
  threadIds: readonly string[],
): Promise<readonly ThreadRecord[]> {
  // a damaged registry could make a loop of parents
  const found = new Map<string, ThreadRecord>();
  const visit = async (parentId: string): Promise<void> => {
    for (const child of await registry.list({ parentId })) {
      if (found.has(child.thread_id)) continue;
      found.set(child.thread_id, child);
      if (child.spawn_count > 0) await visit(child.thread_id);
    }
  };
  for (const id of threadIds) await visit(id);
  return [...found.values()];
}

/** Marks an active thread whose process is gone. */
export function withProcess<T extends CostedThread>(thread: T, owners: Owners): T {
  return isCrashed(thread, owners) ? { ...thread, process_gone: true } : thread;
}

/** Adds the cost of all threads of its chain to the last one. */
async function withChain(registry: Registry, thread: ThreadRecord): Promise<ListedThread> {
  if (thread.continuation_of === null) return await withFamily(registry, thread);
  const links = await registry.chain(thread.thread_id);
  const costed = await Promise.all(links.map((link) => withFamily(registry, link)));
  const cost = costed.map((link) => link.cost).reduce(addFamilyCost);
  return { ...thread, cost, chain: links.map(({ thread_id: id }) => id) };
}

/** True if the owner of an active thread is gone. Always false for an owner that can't be checked from here. */
function isCrashed(thread: ThreadRecord, owners: Owners): boolean {
  const owner = owners.ofRecord(thread);
  return isActive(thread.status) && owner !== undefined && owners.state(owner) === 'gone';
}

/** {@link ThreadsService.resolveId} */
export async function resolveThreadId(
  registry: Registry,
  part: string,
  now: number,
): Promise<string> {
  const position = RECENT.exec(part);
  if (position !== null) return await recentThread(registry, part, Number(position[1] || 1));
  if ((await registry.get(part)) !== undefined) return part;
  const matches = await registry.findIds(part, -1);
  const [newest] = matches;
  if (newest === undefined) {
    throw threadNotFound(part);
  }
  if (matches.length === 1) return newest;
  const chain = await registry.chain(newest);
  const ids = new Set(chain.map(({ thread_id: id }) => id));
  const [first] = chain;
  if (first !== undefined && matches.every((id) => ids.has(id))) return first.thread_id;
  const created = (await registry.get(newest))?.created_at ?? isoTime(now);
  const [, ...others] = matches.slice(0, MAX_CANDIDATES);
  const recent = [`${newest} (${formatAge(now - Date.parse(created))})`, ...others].join(', ');
  throw new RyeError('ambiguous', `"${part}" matches ${matches.length} threads`, {
    hint: `Use a full ID, or @ for the last thread. Most recent first: ${recent}`,
    details: { candidates: matches.slice(0, MAX_CANDIDATES) },
  });
}

/** Returns the first thread of the session that is `position`th from the end. A child does not count. */
async function recentThread(registry: Registry, part: string, position: number): Promise<string> {
  const sessions = { parent: 'none', isLast: true } as const;
  const limit = Math.min(position, Number.MAX_SAFE_INTEGER);
  const end = (await registry.list({ ...sessions, limit }))[position - 1];
  if (end !== undefined) {
    const [first = end] = await registry.chain(end.thread_id);
    return first.thread_id;
  }
  const total = await registry.count(sessions);
  throw threadNotFound(
    part,
    total === 0
      ? 'This project has no threads yet. Run a directive: rye run hello'
      : `@ is the last thread, @${total} the first one. List threads with: rye threads list`,
  );
}

/** Sums and trees over all threads of a project. */
export class ThreadTotals implements Pick<ChildrenService, 'tree' | 'stats'> {
  readonly #registry: Registry;
  readonly #owners: Owners;
  readonly #projectPath: string;

  constructor({ registry, owners }: Pick<Store, 'registry' | 'owners'>, projectPath: string) {
    this.#registry = registry;
    this.#owners = owners;
    this.#projectPath = projectPath;
  }

  async tree(
    threadId?: string,
    { limit }: { readonly limit?: number } = {},
  ): Promise<readonly ThreadTreeNode[]> {
    const registry = this.#registry;
    const asked = threadId === undefined ? undefined : await assertRegistered(registry, threadId);
    const roots = asked ? [asked] : await recordsOf(registry, compact({ roots: true, limit }));
    const parents = roots.filter(({ spawn_count: children }) => children > 0);
    const below = await descendantsOf(
      registry,
      parents.map(({ thread_id: id }) => id),
    );
    return threadTree(roots, below).map((node) => this.#described(node));
  }

  /** Adds labels to a node and all below it, and marks those whose process is gone. */
  #described({ thread, children, ...rest }: ThreadTreeNode): ThreadTreeNode {
    return {
      ...rest,
      thread: withWorkingTime(
        this.#projectPath,
        withLabel(this.#projectPath, withProcess(thread, this.#owners)),
      ),
      children: children.map((child) => this.#described(child)),
    };
  }

  async stats(by: StatsKey = 'directive'): Promise<readonly ThreadStats[]> {
    return statsOf(await this.#registry.list({}), by);
  }
}

/** Returns the record of a thread; throws `thread_not_found` if the registry does not list it. */
export async function assertRegistered(
  registry: Registry,
  threadId: string,
): Promise<ThreadRecord> {
  const record = await registry.get(threadId);
  if (record === undefined) throw threadNotFound(threadId);
  return record;
}

/** Roots with what is below them, oldest first. `below` is newest first. */
function threadTree(
  roots: readonly ThreadRecord[],
  below: readonly ThreadRecord[],
): readonly ThreadTreeNode[] {
  const children = new Map<string, ThreadRecord[]>();
  for (const record of below.toReversed()) {
    const { parent_id: parent } = record;
    if (parent === null) continue;
    const siblings = children.get(parent);
    if (siblings) siblings.push(record);
    else children.set(parent, [record]);
  }
  const node = (thread: ThreadRecord, above: ReadonlySet<string>): ThreadTreeNode => {
    const path = new Set([...above, thread.thread_id]);
    // a damaged registry could make a loop of parents
    const nodes = (children.get(thread.thread_id) ?? [])
      .filter(({ thread_id }) => !path.has(thread_id))
      .map((child) => node(child, path));
    const totals = nodes.map((child) => child.thread.cost.total);
    const cost = familyCostOf(thread.cost, totals);
    return { thread: { ...thread, cost }, subtree_spend: cost.total.spend, children: nodes };
  };
  return roots.map((root) => node(root, new Set()));
}

/** Sums threads by directive, model or day (UTC), the dearest first. Each thread counts its own spend only. */
function statsOf(records: readonly ThreadRecord[], by: StatsKey): readonly ThreadStats[] {
  const groups = new Map<string, ThreadRecord[]>();
  for (const record of records) {
    const key = keyOf(record, by);
    const group = groups.get(key);
    if (group) group.push(record);
    else groups.set(key, [record]);
  }
  return [...groups]
    .map(([key, threads]) => totalsOf(key, threads))
    .toSorted((left, right) => right.spend - left.spend || right.threads - left.threads);
}

function keyOf({ directive, model, created_at }: ThreadRecord, by: StatsKey): string {
  if (by === 'directive') return directive;
  return by === 'model' ? (model ?? '') : created_at.slice(0, 10);
}

function totalsOf(key: string, threads: readonly ThreadRecord[]): ThreadStats {
  const ended = (status: ThreadRecord['status']): number =>
    threads.filter((thread) => thread.status === status).length;
  const total = (of: (thread: ThreadRecord) => number): number =>
    threads.reduce((sofar, thread) => sofar + of(thread), 0);
  return {
    key,
    threads: threads.length,
    open: threads.filter(({ status }) => !isFinal(status)).length,
    completed: ended('completed'),
    error: ended('error'),
    cancelled: ended('cancelled'),
    continued: ended('continued'),
    ...threads.map(({ cost }) => cost).reduce(addSpend, { spend: 0 }),
    tokens: total(({ cost }) => totalTokens(cost)),
    turns: total(({ cost }) => cost.turns),
    elapsed_seconds: Math.round(total(({ cost }) => cost.elapsed_seconds) * 1000) / 1000,
  };
}

export { hurryGroups } from '../tools/process.ts';

/**
 * Notes in the registry that the threads of this process are to be cancelled, so that recovery ends them so after the
 * process is gone. Resolves to the number of threads.
 */
export async function requestOwnCancel(options: OpenRyeOptions): Promise<number> {
  const owners = processOwners();
  const self = owners.self();
  const { registry, ...opened } = await ownRegistry(options, owners);
  try {
    const active = await registry.list({ active: true });
    const own = active.filter((record) => owners.ofRecord(record)?.id === self.id);
    const now = isoTime(systemClock.now());
    for (const { thread_id } of own) {
      await registry.requestCancel(thread_id, 'interrupted repeatedly', now);
    }
    return own.length;
  } finally {
    opened.close();
  }
}

async function ownRegistry(
  options: OpenRyeOptions,
  owners: Owners,
): Promise<{ readonly registry: Registry; close(): void }> {
  if (namesStore(options)) {
    const { Workspace } = await import('./workspace.ts');
    const { store } = new Workspace(options);
    return { registry: store.registry, close: () => store.close() };
  }
  return openRegistry(options.projectPath, owners);
}
