import type { SqlDatabase } from '../sql-work.ts';
import type { Store } from '../store.ts';
import { sqlAppends } from './appends.ts';
import { sqlApprovals } from './approvals.ts';
import { sqlDeliveries } from './deliveries.ts';
import { sqlHeads } from './heads.ts';

/** The tables beside the registry, which are in its database because some transactions change both. */
export function threadTables(
  database: SqlDatabase,
): Pick<Store, 'appends' | 'approvals' | 'deliveries' | 'heads'> {
  return {
    appends: sqlAppends(database),
    approvals: sqlApprovals(database),
    deliveries: sqlDeliveries(database),
    heads: sqlHeads(database),
  };
}
