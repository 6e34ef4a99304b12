import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { isActive, type ThreadRecord } from '../core/thread.ts';
import { openRegistry, threadsFolder } from '../storage/open-registry.ts';
import { createProcessTable } from '../storage/processes.ts';
import type { ProcessTable, Registry, Store } from '../storage/store.ts';
import type { ListedThread, OpenRyeOptions, Rye, ThreadListFilter, ThreadsService } from './rye.ts';
import { withUserEnv } from './user-env.ts';
import { checkedPlaces } from './user-space.ts';

const MAX_CANDIDATES = 10;

/** The part of an open rye that needs nothing but the table of threads. */
export interface ThreadList extends Pick<Rye, 'close'> {
  readonly threads: Pick<ThreadsService, 'list' | 'resolveId' | 'unlisted'>;
}

/** Opens the table of threads alone: no items, no keys, no configuration, no log. */
export function openThreadList(given: OpenRyeOptions): ThreadList {
  const options = checkedPlaces(given);
  // for its notices: a file of keys that others can read is worth a word in every command
  withUserEnv(options);
  const processes = createProcessTable();
  const registry = openRegistry(options.projectPath, processes);
  return {
    threads: {
      list: async (filter) => await listThreads({ registry, processes }, filter),
      resolveId: async (part) => await resolveThreadId(registry, part),
      unlisted: async () => await unlistedFolders(options.projectPath, registry),
    },
    close() {
      registry.close();
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
  { registry, processes }: Pick<Store, 'registry' | 'processes'>,
  { parent, ...rest }: ThreadListFilter = {},
): Promise<readonly ListedThread[]> {
  const filter = { ...rest, ...(parent === undefined ? {} : { parentId: parent }) };
  const threads = await registry.list(filter);
  return threads.map((thread) =>
    hasLostProcess(thread, processes) ? { ...thread, process_gone: true } : thread,
  );
}

/** Whether nobody runs a thread that should be run. Of a process on another host nobody knows. */
function hasLostProcess(thread: ThreadRecord, processes: ProcessTable): boolean {
  const { status, pid, process_start: processStart, host } = thread;
  return (
    isActive(status) &&
    pid !== null &&
    host !== null &&
    !processes.isAlive({ pid, processStart: processStart ?? '', host })
  );
}

/** {@link ThreadsService.resolveId} */
export async function resolveThreadId(registry: Registry, part: string): Promise<string> {
  if ((await registry.get(part)) !== undefined) return part;
  const candidates = await registry.findIds(part, MAX_CANDIDATES);
  const [only] = candidates;
  if (only === undefined) {
    throw new RyeError('thread_not_found', `there is no thread ${part}`, {
      hint: 'Run: rye threads list',
    });
  }
  if (candidates.length > 1) {
    throw new RyeError('ambiguous', `${part} could be ${candidates.join(', ')}`, {
      hint: 'Give more of the id.',
      details: { candidates },
    });
  }
  return only;
}
