import { join } from 'node:path';
import type { Clock } from '../core/clock.ts';
import type { IdSource } from '../core/ids.ts';
import { createFileLogStore } from './files/log-store.ts';
import { openRegistry, threadsFolder } from './open-registry.ts';
import { createProcessTable } from './processes.ts';
import { SqliteLedger } from './sqlite/ledger.ts';
import { SqliteSearchIndex } from './sqlite/search-index.ts';
import type { Store } from './store.ts';

export interface OpenStoreOptions {
  /** The project's root: state lives in its `.ai/state`. */
  readonly projectPath: string;
  readonly clock: Clock;
  readonly ids: IdSource;
}

/** The store of a project on its local disk. Opening touches nothing: each file is opened at its first use. */
export function openStore({ projectPath, clock, ids }: OpenStoreOptions): Store {
  const state = join(projectPath, '.ai', 'state');
  const threadsPath = threadsFolder(projectPath);
  const processes = createProcessTable();
  const registry = openRegistry(projectPath, processes);
  const ledger = new SqliteLedger({ path: join(threadsPath, 'budget_ledger.db') });
  const index = new SqliteSearchIndex({ path: join(state, 'index.db') });
  return {
    registry,
    ledger,
    deliveries: registry.deliveries,
    logs: createFileLogStore({ threadsPath, clock, ids, processes }),
    index,
    processes,
    close() {
      registry.close();
      ledger.close();
      index.close();
    },
  };
}
