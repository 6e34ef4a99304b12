import { join } from 'node:path';
import { LEDGER_MIGRATIONS } from './sql/ledger.ts';
import { sqlRegistry } from './sql/registry.ts';
import { REGISTRY_MIGRATIONS } from './sql/registry-rows.ts';
import { LazyDatabase } from './sqlite/database.ts';
import type { CloseOptions, Owners, Registry } from './store.ts';

/** The folder of a project where its threads keep their state. */
export function threadsFolder(projectPath: string): string {
  return join(projectPath, '.ai', 'state', 'threads');
}

/** The table of a project's threads; the file is opened at its first use. */
export function openRegistry(
  projectPath: string,
  owners: Owners,
): { readonly registry: Registry; close(how?: CloseOptions): void } {
  const database = registryDatabase(registryPath(projectPath));
  return { registry: sqlRegistry(database, owners), close: (how) => database.close(how) };
}

/** The file with the table of a project's threads. */
export function registryPath(projectPath: string): string {
  return join(threadsFolder(projectPath), 'registry.db');
}

/** The database of the registry in one SQLite file. Recovery rebuilds from the logs what a power failure takes. */
export function registryDatabase(path: string): LazyDatabase {
  return new LazyDatabase({ path, migrations: REGISTRY_MIGRATIONS, synchronous: 'normal' });
}

/** The database of the ledger in one SQLite file, which forces each decision about money to the disk. */
export function ledgerDatabase(path: string): LazyDatabase {
  return new LazyDatabase({ path, migrations: LEDGER_MIGRATIONS, synchronous: 'full' });
}
