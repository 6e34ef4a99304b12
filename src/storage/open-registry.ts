import { join } from 'node:path';
import { LEDGER_MIGRATIONS, SqlLedger } from './sql/ledger.ts';
import { SqlRegistry } from './sql/registry.ts';
import { REGISTRY_MIGRATIONS } from './sql/registry-rows.ts';
import { LazyDatabase } from './sqlite/database.ts';
import type { Owners } from './store.ts';

/** The folder of a project where its threads keep their state. */
export function threadsFolder(projectPath: string): string {
  return join(projectPath, '.ai', 'state', 'threads');
}

/** The table of a project's threads; the file is opened at its first use. */
export function openRegistry(projectPath: string, owners: Owners): SqlRegistry {
  return new SqlRegistry(registryDatabase(registryPath(projectPath)), owners);
}

/** The file with the table of a project's threads. */
export function registryPath(projectPath: string): string {
  return join(threadsFolder(projectPath), 'registry.db');
}

/** The database of the registry in one SQLite file. Recovery rebuilds from the logs what a power failure takes. */
export function registryDatabase(path: string): LazyDatabase {
  return new LazyDatabase({ path, migrations: REGISTRY_MIGRATIONS, synchronous: 'normal' });
}

/** A ledger in one SQLite file, which forces each decision about money to the disk. */
export function sqliteLedger(path: string): SqlLedger {
  return new SqlLedger(
    new LazyDatabase({ path, migrations: LEDGER_MIGRATIONS, synchronous: 'full' }),
  );
}
