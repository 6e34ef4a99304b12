import { join } from 'node:path';
import type { Clock } from '../core/clock.ts';
import { RyeError } from '../core/errors.ts';
import type { IdSource } from '../core/ids.ts';
import { makeFolders } from '../disk/folders.ts';
import { moveAside } from '../disk/whole-file.ts';
import { indexPath, projectIndex } from './cached-index.ts';
import { takeLease, UNSEEN_HINT } from './files/lease.ts';
import { createFileLogStore } from './files/log-store.ts';
import { ledgerDatabase, registryDatabase, registryPath, threadsFolder } from './open-registry.ts';
import { processOwners } from './owners.ts';
import { LEDGER_MIGRATIONS, sqlLedger } from './sql/ledger.ts';
import { sqlRegistry } from './sql/registry.ts';
import { REGISTRY_MIGRATIONS } from './sql/registry-rows.ts';
import { threadTables } from './sql/thread-tables.ts';
import { inspectDatabase } from './sqlite/database.ts';
import { INDEX_MIGRATIONS } from './sqlite/search-index.ts';
import type { Owners, Store } from './store.ts';

export interface OpenStoreOptions {
  /** The project's root: state lives in its `.ai/state`. */
  readonly projectPath: string;
  /** Names the user's cache; absent: a project without `.ai/state` has its index in memory. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  readonly clock: Clock;
  readonly ids: IdSource;
}

/** The store of a project on its local disk. Opening touches nothing: each file is opened at its first use. */
export function openStore({ projectPath, env, clock, ids }: OpenStoreOptions): Store {
  const threadsPath = threadsFolder(projectPath);
  const owners = processOwners();
  const registry = registryDatabase(registryPath(projectPath));
  const ledger = ledgerDatabase(join(threadsPath, 'budget_ledger.db'));
  const index = projectIndex({ projectPath, env, clock });
  const databases = [
    {
      name: 'registry',
      path: join(threadsPath, 'registry.db'),
      migrations: REGISTRY_MIGRATIONS,
      table: 'threads',
    },
    {
      name: 'ledger',
      path: join(threadsPath, 'budget_ledger.db'),
      migrations: LEDGER_MIGRATIONS,
      table: 'budget_ledger',
    },
    {
      name: 'index',
      path: indexPath(projectPath),
      migrations: INDEX_MIGRATIONS,
      table: 'documents',
    },
  ] as const;
  return {
    registry: sqlRegistry(registry, owners),
    ledger: sqlLedger(ledger),
    ...threadTables(registry),
    logs: createFileLogStore({ threadsPath, clock, ids, owners }),
    index,
    owners,
    maintenance: {
      inspect: () => databases.map(({ name, ...rest }) => ({ name, ...inspectDatabase(rest) })),
      setAside: (name, suffix) => {
        const found = databases.find((one) => one.name === name);
        if (!found) throw new RyeError('internal', `unknown database ${name}`);
        // an open handle would keep writing to the moved file
        ({ registry, ledger, index })[name].close();
        const to = `${found.path}.${suffix}`;
        for (const end of ['-wal', '-shm', '']) moveAside(`${found.path}${end}`, `${to}${end}`);
        return to;
      },
      holdRepair: () => holdRepair(threadsPath, owners),
    },
    close(how) {
      registry.close(how);
      ledger.close(how);
      index.close(how);
    },
  };
}

/** One repair at a time: the right to it is a lease in the folder of all threads, which a dead repair leaves to the next. */
function holdRepair(folder: string, owners: Owners): { release(): void } {
  try {
    makeFolders(folder, 0o700);
    return takeLease({ folder, threadId: 'repair', owner: owners.self(), epoch: 1, owners });
  } catch (error) {
    if (!(error instanceof RyeError) || error.code !== 'thread_locked') throw error;
    throw new RyeError('thread_locked', 'another process repairs the state of this project', {
      hint: error.hint === UNSEEN_HINT ? UNSEEN_HINT : 'Wait until it is done.',
      cause: error,
    });
  }
}
