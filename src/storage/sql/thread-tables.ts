import type { SqlDatabase } from '../sql-work.ts';
import type { Store } from '../store.ts';
import { SqlApprovals } from './approvals.ts';
import { SqlDeliveries } from './deliveries.ts';
import { SqlHeads } from './heads.ts';

/** The tables beside the registry, which are in its database because some transactions change both. */
export function threadTables(
  database: SqlDatabase,
): Pick<Store, 'approvals' | 'deliveries' | 'heads'> {
  return {
    approvals: new SqlApprovals(database),
    deliveries: new SqlDeliveries(database),
    heads: new SqlHeads(database),
  };
}
