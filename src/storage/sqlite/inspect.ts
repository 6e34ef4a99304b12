import { lstatSync } from 'node:fs';
import Database from 'better-sqlite3';
import { messageOf, systemCodeOf } from '../../core/errors.ts';
import type { DatabaseState } from '../store.ts';
import { foreignProgram, type Migrations } from './database.ts';

export interface InspectOptions {
  readonly path: string;
  readonly migrations: Migrations;
  /** A table that each database of this kind has. */
  readonly table: string;
}

const BUSY_TIMEOUT_MS = 10_000;
const MAX_PROBLEMS = 3;

/** Looks at a database file without changing it: whether SQLite can read it, all of it, and whether rye made it. */
export function inspectDatabase(options: InspectOptions): Omit<DatabaseState, 'name'> {
  const { path } = options;
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return { path, state: 'missing', detail: 'there is no file' };
  if (!stats.isFile()) return { path, state: 'unreadable', detail: 'it is not a regular file' };
  try {
    return { path, ...look(options) };
  } catch (error) {
    const isDamaged = /^SQLITE_(?:CORRUPT|NOTADB|ERROR|IOERR)/.test(systemCodeOf(error) ?? '');
    return { path, state: isDamaged ? 'damaged' : 'unreadable', detail: messageOf(error) };
  }
}

function look({
  path,
  migrations,
  table,
}: InspectOptions): Pick<DatabaseState, 'state' | 'detail'> {
  const database = new Database(path, {
    readonly: true,
    fileMustExist: true,
    timeout: BUSY_TIMEOUT_MS,
  });
  try {
    const found = database.pragma(`integrity_check(${MAX_PROBLEMS})`) as readonly {
      readonly integrity_check: string;
    }[];
    const problems = found.map(({ integrity_check: said }) => said).filter((said) => said !== 'ok');
    if (problems.length > 0) return { state: 'damaged', detail: problems.join('; ') };
    const version = database.pragma('user_version', { simple: true }) as number;
    if (version > migrations.length) {
      return {
        state: 'unreadable',
        detail: `it has version ${version}; use the rye that wrote it`,
      };
    }
    const foreign = foreignProgram(database, migrations);
    if (foreign !== undefined) {
      return {
        state: 'damaged',
        detail: `it contains ${JSON.stringify(foreign)}, not made by rye`,
      };
    }
    if (version > 0) database.prepare(`SELECT count(*) FROM ${table}`).get();
    return { state: 'ok', detail: 'sound' };
  } finally {
    database.close();
  }
}
