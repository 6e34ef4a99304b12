import type { Clock } from '../core/clock.ts';
import type { IdSource } from '../core/ids.ts';
import { PostgresDatabase } from './postgres/database.ts';
import { LogRows } from './postgres/log-rows.ts';
import { PostgresLogStore } from './postgres/log-store.ts';
import type { SearchIndex } from './search-index.ts';
import { SqlLedger } from './sql/ledger.ts';
import { SqlRegistry } from './sql/registry.ts';
import type { Owners, Store } from './store.ts';

export interface PostgresStoreOptions {
  /** `postgres://user:password@host:port/database` */
  readonly url: string;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly owners: Owners;
  /** The index of this machine's items and exports: it can be rebuilt, so it is not shared. */
  readonly index: SearchIndex & { close(): void };
}

/** A store that many machines share. Nothing is connected before its first use. */
export function openPostgresStore({ url, clock, ids, owners, index }: PostgresStoreOptions): Store {
  const database = new PostgresDatabase({ url });
  const registry = new SqlRegistry(database, owners);
  return {
    registry,
    ledger: new SqlLedger(database),
    deliveries: registry.deliveries,
    heads: registry.heads,
    approvals: registry.approvals,
    logs: new PostgresLogStore({ rows: new LogRows(database), clock, ids, owners }),
    index,
    owners,
    close() {
      database.close();
      index.close();
    },
  };
}
