import { join } from 'node:path';
import { SqliteRegistry } from './sqlite/registry.ts';
import type { Owners } from './store.ts';

/** The folder of a project where its threads keep their state. */
export function threadsFolder(projectPath: string): string {
  return join(projectPath, '.ai', 'state', 'threads');
}

/** The table of a project's threads; the file is opened at its first use. */
export function openRegistry(projectPath: string, owners: Owners): SqliteRegistry {
  return new SqliteRegistry({ path: join(threadsFolder(projectPath), 'registry.db'), owners });
}
