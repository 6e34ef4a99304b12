import type { Clock } from '../../../kernel/core/clock.ts';
import type { IdSource } from '../../../kernel/core/ids.ts';
import type { FleetThreads } from '../../../kernel/storage/fleet-threads.ts';
import type { SearchIndex } from '../../../kernel/storage/search-index.ts';
import { sqlLedger } from '../../../kernel/storage/sql/ledger.ts';
import { sqlRegistry } from '../../../kernel/storage/sql/registry.ts';
import { threadTables } from '../../../kernel/storage/sql/thread-tables.ts';
import type { Owners, Store } from '../../../kernel/storage/store.ts';
import type { Leases } from '../../../kernel/storage/worker-leases.ts';
import { PostgresBundles } from './bundles.ts';
import { PostgresDatabase } from './database.ts';
import { PostgresFleetThreads } from './fleet-threads.ts';
import { STATEMENT_MS, threadLeases, WorkerLeases } from './leases.ts';
import { LogRows } from './log-rows.ts';
import { PostgresLogStore } from './log-store.ts';
import { inspectServer, type ServerReport } from './server-report.ts';
import { PostgresThreadDocuments } from './thread-documents.ts';

export { inspectServer, PostgresDatabase, type ServerReport };

export interface PostgresStoreOptions {
  /** `postgres://user:password@host:port/database` */
  readonly url: string;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly owners: Owners;
  /** The index of this machine's items and exports: it can be rebuilt, so it is not shared. */
  readonly index: SearchIndex & { close(): void };
  /** The worker of the fleet for which this process runs threads; null or absent: none. */
  readonly workerId?: string | null;
  /** Connections that outlive this store. Default: its own. */
  readonly database?: PostgresDatabase;
}

/** A store that many machines share. Nothing is connected before its first use. */
export function openPostgresStore(options: PostgresStoreOptions): Store {
  const { url, clock, ids, owners, index, workerId = null } = options;
  const database = options.database ?? new PostgresDatabase({ url });
  return {
    registry: sqlRegistry(database, owners, threadLeases(workerId)),
    ledger: sqlLedger(database),
    ...threadTables(database),
    logs: new PostgresLogStore({ rows: new LogRows(database, workerId), clock, ids, owners }),
    documents: new PostgresThreadDocuments(database),
    bundles: new PostgresBundles(database),
    index,
    owners,
    close() {
      if (options.database === undefined) database.close();
      index.close();
    },
  };
}

/** Opens the leases of a fleet's workers with a separate connection, which no other work can keep busy. */
export function openWorkerLeases(url: string): Leases & { close(): void } {
  const database = new PostgresDatabase({ url, connections: 1, answerMs: STATEMENT_MS });
  const leases = new WorkerLeases(database);
  return {
    add: async (facts) => await leases.add(facts),
    renew: async (workerId, leaseMs) => await leases.renew(workerId, leaseMs),
    remove: async (workerId) => await leases.remove(workerId),
    removeSilent: async (seen) => await leases.removeSilent(seen),
    askToDrain: async (workerId) => await leases.askToDrain(workerId),
    list: async () => await leases.list(),
    close: () => database.close(),
  };
}

/** Opens the threads of a fleet, with connections that outlive them or separate ones. */
export function openFleetThreads(url: string, database?: PostgresDatabase): FleetThreads {
  if (database) return new PostgresFleetThreads(database, false);
  return new PostgresFleetThreads(new PostgresDatabase({ url, connections: 2 }), true);
}
