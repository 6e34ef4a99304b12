import type { Clock } from '../core/clock.ts';
import type { IdSource } from '../core/ids.ts';
import { MemoryLogStore } from './memory/log-store.ts';
import { ledgerDatabase, registryDatabase } from './open-registry.ts';
import { processOwners } from './owners.ts';
import { sqlLedger } from './sql/ledger.ts';
import { sqlRegistry } from './sql/registry.ts';
import { threadTables } from './sql/thread-tables.ts';
import { SqliteSearchIndex } from './sqlite/search-index.ts';
import type { Store } from './store.ts';

export interface MemoryStoreOptions {
  readonly clock: Clock;
  readonly ids: IdSource;
  /** Awaited by each `sync` of a log; absent: a log is durable at once. */
  readonly onSync?: () => Promise<void>;
}

const MEMORY = ':memory:';

/**
 * A store that keeps nothing: logs in memory, tables in SQLite databases without a file. It belongs to one process, so
 * children in separate processes don't see it.
 */
export function openMemoryStore({ clock, ids, onSync }: MemoryStoreOptions): Store {
  const owners = processOwners();
  const registry = registryDatabase(MEMORY);
  const ledger = ledgerDatabase(MEMORY);
  const index = new SqliteSearchIndex({ path: MEMORY });
  return {
    registry: sqlRegistry(registry, owners),
    ledger: sqlLedger(ledger),
    ...threadTables(registry),
    logs: new MemoryLogStore({ clock, ids, owners, onSync }),
    index,
    owners,
    close() {
      registry.close();
      ledger.close();
      index.close();
    },
  };
}
