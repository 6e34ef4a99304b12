import { existsSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { formatAge, isoTime } from '../core/clock.ts';
import { RyeError } from '../core/errors.ts';
import { type CostedThread, isActive, isFinal, type ThreadRecord } from '../core/thread.ts';
import { threadNotFound } from '../core/thread-errors.ts';
import { addFamilyCost, addSpend, familyCostOf, totalTokens } from '../core/usage.ts';
import { openRegistry, threadsFolder } from '../storage/open-registry.ts';
import { processOwners } from '../storage/owners.ts';
import type { Owners, Registry, Store } from '../storage/store.ts';
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

const PAGE = 100;

/**
 * The part of an open rye that needs nothing but the table of threads. It exists for start-up: `rye threads list` reads
 * the registry of a local project without opening the store. It never writes, and `openRye({ store })` does not use it.
 */
export interface ThreadList extends Pick<Rye, 'close'> {
  readonly threads: Pick<ThreadsService, 'list' | 'resolveId' | 'unlisted'>;
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
      resolveId: async (part) => await resolveThreadId(registry, part, systemClock.now()),
      unlisted: async () => await unlistedFolders(options.projectPath, registry),
    },
    close(how) {
      table.close(how);
    },
  };
}

/** {@link ThreadsService.unlisted}. Looks at the first level alone: one listing of a folder for any number of threads. */
export async function unlistedFolders(
  projectPath: string,
  registry: Registry,
): Promise<readonly string[]> {
  const ids = await registry.findIds('', -1);
  const known = new Set(ids.map((id) => id.split('/', 1)[0]));
  const root = threadsFolder(projectPath);
  if (!existsSync(root)) return [];
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
  { parent, sessions = false, ...rest }: ThreadListFilter = {},
): Promise<readonly ListedThread[]> {
  const threads =
    parent === undefined
      ? await listOf(registry, { ...rest, sessions })
      : await childrenOf(registry, parent, { ...rest, sessions });
  return threads.map((thread) => withProcess(thread, owners));
}

type OwnFilter = Omit<ThreadListFilter, 'parent'> & { readonly parentId?: string };

async function listOf(
  registry: Registry,
  { sessions = false, ...filter }: OwnFilter,
): Promise<readonly ListedThread[]> {
  if (sessions) return await listSessions(registry, filter);
  const records = await registry.list(filter);
  return await Promise.all(records.map((thread) => withFamily(registry, thread)));
}

/** Lists the children of a session, which each of its threads may have started, the newest first. */
async function childrenOf(
  registry: Registry,
  parent: string,
  filter: Omit<OwnFilter, 'parentId'>,
): Promise<readonly ListedThread[]> {
  const isKnown = (await registry.get(parent)) !== undefined;
  const parents = isKnown ? (await registry.chain(parent)).map((link) => link.thread_id) : [parent];
  const lists = await Promise.all(
    parents.map((parentId) => listOf(registry, { ...filter, parentId })),
  );
  return lists
    .flat()
    .toSorted((one, two) => (one.created_at < two.created_at ? 1 : -1))
    .slice(0, filter.limit);
}

/** Marks an active thread whose process is gone. */
export function withProcess<T extends CostedThread>(thread: T, owners: Owners): T {
  return isCrashed(thread, owners) ? { ...thread, process_gone: true } : thread;
}

/** Lists only the last thread of each chain, with the cost of all its threads. */
async function listSessions(
  registry: Registry,
  { limit, ...filter }: Parameters<Registry['list']>[0],
): Promise<readonly ListedThread[]> {
  const last = (await registry.list(filter)).filter(
    ({ continuation_thread_id: next }) => next === null,
  );
  return await Promise.all(
    last.slice(0, limit).map(async (thread) => {
      if (thread.continuation_of === null) return await withFamily(registry, thread);
      const links = await registry.chain(thread.thread_id);
      const costed = await Promise.all(links.map((link) => withFamily(registry, link)));
      const cost = costed.map((link) => link.cost).reduce(addFamilyCost);
      return { ...thread, cost, chain: links.map(({ thread_id: id }) => id) };
    }),
  );
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
  for (let limit = PAGE; ; limit *= 10) {
    const records = await registry.list({ limit });
    const ends = records.filter(
      (record) => record.parent_id === null && record.continuation_thread_id === null,
    );
    const end = ends[position - 1];
    if (end !== undefined) {
      const [first = end] = await registry.chain(end.thread_id);
      return first.thread_id;
    }
    if (records.length < limit) {
      throw threadNotFound(
        part,
        ends.length === 0
          ? 'This project has no threads yet. Run a directive: rye run hello'
          : `@ is the last thread, @${ends.length} the first one. List threads with: rye threads list`,
      );
    }
  }
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

  async tree(threadId?: string): Promise<readonly ThreadTreeNode[]> {
    if (threadId !== undefined) await assertRegistered(this.#registry, threadId);
    const nodes = threadTree(await this.#registry.list({}), threadId);
    return nodes.map((node) => this.#described(node));
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

/** Throws `thread_not_found` if the registry does not list the thread. */
export async function assertRegistered(registry: Registry, threadId: string): Promise<void> {
  if ((await registry.get(threadId)) !== undefined) return;
  throw threadNotFound(threadId);
}

/** Parents with their children, oldest first; without an id every root, newest first. `records` are newest first. */
function threadTree(
  records: readonly ThreadRecord[],
  threadId?: string,
): readonly ThreadTreeNode[] {
  const known = new Set(records.map(({ thread_id }) => thread_id));
  const children = new Map<string, ThreadRecord[]>();
  for (const record of records.toReversed()) {
    const { parent_id: parent } = record;
    if (parent === null) continue;
    const siblings = children.get(parent);
    if (siblings) siblings.push(record);
    else children.set(parent, [record]);
  }
  const node = (thread: ThreadRecord, above: ReadonlySet<string>): ThreadTreeNode => {
    const path = new Set([...above, thread.thread_id]);
    // a damaged registry could make a loop of parents
    const below = (children.get(thread.thread_id) ?? [])
      .filter(({ thread_id }) => !path.has(thread_id))
      .map((child) => node(child, path));
    const totals = below.map((child) => child.thread.cost.total);
    const cost = familyCostOf(thread.cost, totals);
    return { thread: { ...thread, cost }, subtree_spend: cost.total.spend, children: below };
  };
  const isRoot = ({ parent_id: parent }: ThreadRecord): boolean =>
    parent === null || !known.has(parent);
  const roots =
    threadId === undefined
      ? records.filter(isRoot)
      : records.filter(({ thread_id }) => thread_id === threadId);
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
