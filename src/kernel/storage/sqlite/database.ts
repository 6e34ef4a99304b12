import { existsSync, lstatSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { messageOf, RyeError, systemCodeOf } from '../../core/errors.ts';
import { makeFolders } from '../../disk/folders.ts';
import type { DatabaseState } from '../maintenance.ts';
import type { SqlDatabase, Work } from '../sql-work.ts';
import type { CloseOptions } from '../store.ts';
import { type Database, openSqlite, type Statement } from './engine.ts';

/** Steps from one `user_version` to the next: the database is at version n after the first n of them. */
export type Migrations = readonly string[];

export interface DatabaseOptions {
  readonly path: string;
  readonly migrations: Migrations;
  /**
   * `full` forces every commit to the disk: for money. `normal` loses at most the last commits when power fails, and
   * nothing when a process dies: for state that recovery rebuilds from the logs.
   */
  readonly synchronous: 'full' | 'normal';
  /**
   * Commands that only read may write the database, so its folder is not made: if there is none, this names another file;
   * without one, the database is in memory.
   */
  readonly elsewhere?: () => string | undefined;
}

/** The longest write-ahead log that a process leaves. */
const MAX_LEFT_BYTES = 1024 * 1024;
// SQLite's waiters have no queue: beside processes that write without a pause, on a slow disk, one of them can miss its
// turn for longer than 10 s
const BUSY_TIMEOUT_MS = 30_000;

const IN_MEMORY = ':memory:';

/**
 * A SQLite file in WAL mode, opened and migrated at its first use. Queries do not create the file: until the first
 * write, a missing file counts as an empty database.
 */
export class LazyDatabase implements SqlDatabase {
  #options: DatabaseOptions;
  readonly #statements = new Map<string, Statement>();
  #database: Database | undefined;
  /** True while queries run on an empty database in memory, because the file is missing. */
  #isStandIn = false;
  #isElsewhere = false;
  /** Runs its argument in a transaction; made once, because making one costs as much as a small commit. */
  #transaction: { immediate(work: () => unknown): unknown } | undefined;
  #synchronous: DatabaseOptions['synchronous'];

  constructor(options: DatabaseOptions) {
    this.#options = options;
    this.#synchronous = options.synchronous;
  }

  /** All rows of a query, as objects by column. */
  all(sql: string, ...parameters: readonly unknown[]): readonly unknown[] {
    return this.#guarded(() => this.#statement(this.#openToRead(), sql).all(...parameters));
  }

  /** The first row, if any. */
  get(sql: string, ...parameters: readonly unknown[]): unknown {
    return this.#guarded(() => this.#statement(this.#openToRead(), sql).get(...parameters));
  }

  /** All rows of a query as arrays of columns. Each costs a third of one that {@link each} visits. */
  rows(sql: string, ...parameters: readonly unknown[]): readonly (readonly unknown[])[] {
    return this.#guarded(
      () =>
        this.#openToRead()
          .prepare(sql)
          .raw()
          .all(...parameters) as unknown[][],
    );
  }

  /** Visits the rows of a query, as arrays of columns, until `visit` returns false. */
  each(
    sql: string,
    parameters: readonly unknown[],
    visit: (row: readonly unknown[]) => boolean,
  ): void {
    this.#guarded(() => {
      const rows = this.#openToRead().prepare(sql).raw();
      for (const row of rows.iterate(...parameters)) if (!visit(row as unknown[])) return;
    });
  }

  /** Runs a statement that returns nothing; the number of rows that it changed. */
  run(sql: string, ...parameters: readonly unknown[]): number {
    return this.#guarded(() => {
      this.#setSynchronous(this.#options.synchronous);
      return this.#statement(this.#open(), sql).run(...parameters).changes;
    });
  }

  /** Runs `work` in one transaction that takes the write lock at its start; a throw rolls it back. */
  immediate<T>(work: () => T): T {
    return this.#inTransaction(this.#options.synchronous, work);
  }

  read<T>(work: () => Work<T>): T {
    return this.#drive(work());
  }

  write<T>(work: () => Work<T>, { isLosable = false } = {}): T {
    const transaction = (): T => this.#drive(work());
    return isLosable ? this.#inTransaction('normal', transaction) : this.immediate(transaction);
  }

  /** Answers each statement of the work at once, so that nothing comes between two of them. */
  #drive<T>(work: Work<T>): T {
    let step = work.next();
    while (step.done !== true) {
      if (step.value.kind === 'client')
        throw new RyeError('internal', 'SQLite has no asynchronous transactions');
      const { kind, sql, parameters } = step.value;
      if (kind === 'one') step = work.next(this.get(sql, ...parameters));
      else if (kind === 'all') step = work.next(this.all(sql, ...parameters));
      else step = work.next(this.run(sql, ...parameters));
    }
    return step.value;
  }

  close({ exiting = false }: CloseOptions = {}): void {
    if (this.#database === undefined || (exiting && !this.#isLogLong())) return;
    this.#statements.clear();
    this.#transaction = undefined;
    this.#database?.close();
    this.#database = undefined;
    this.#isStandIn = false;
  }

  /** True if the next opening would read more than it costs to fold the write-ahead log into the file now. */
  #isLogLong(): boolean {
    const stats = lstatSync(`${this.#options.path}-wal`, { throwIfNoEntry: false });
    return stats !== undefined && stats.size > MAX_LEFT_BYTES;
  }

  #inTransaction<T>(synchronous: DatabaseOptions['synchronous'], work: () => T): T {
    return this.#guarded(() => {
      const database = this.#open();
      this.#setSynchronous(synchronous);
      this.#transaction ??= database.transaction((inner: () => unknown) => inner());
      return this.#transaction.immediate(work) as T;
    });
  }

  /** Stays as it is until the next writer wants it otherwise: a run reports each turn and reserves money once. */
  #setSynchronous(synchronous: DatabaseOptions['synchronous']): void {
    const database = this.#open();
    // a transaction ends as it began
    if (this.#synchronous === synchronous || database.inTransaction) return;
    database.pragma(`synchronous = ${synchronous}`);
    this.#synchronous = synchronous;
  }

  #statement(database: Database, sql: string): Statement {
    const known = this.#statements.get(sql);
    if (known) return known;
    const statement = database.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }

  #open(): Database {
    if (this.#isStandIn) this.close();
    if (this.#database === undefined) {
      this.#choosePath();
      this.#database = this.#opened();
      this.#synchronous = this.#options.synchronous;
    }
    return this.#database;
  }

  /** A cache elsewhere is worth no failure, such as one of a file system without locks. */
  #opened(): Database {
    try {
      return openDatabase(this.#options);
    } catch (error) {
      if (!this.#isElsewhere) throw error;
      if (isUseless(error)) discardDatabase(this.#options.path);
      this.#options = { ...this.#options, path: IN_MEMORY };
      return openDatabase(this.#options);
    }
  }

  #choosePath(): void {
    const { path, elsewhere, ...options } = this.#options;
    if (elsewhere === undefined) return;
    const found = existsSync(dirname(path)) ? undefined : (elsewhere() ?? IN_MEMORY);
    this.#isElsewhere = found !== undefined && found !== IN_MEMORY;
    this.#options = { ...options, path: found ?? path };
  }

  #openToRead(): Database {
    if (this.#database === undefined) this.#choosePath();
    const { path, migrations } = this.#options;
    const isNeeded = this.#database === undefined || this.#isStandIn;
    if (!isNeeded || path === IN_MEMORY || lstatSync(path, { throwIfNoEntry: false }) !== undefined)
      return this.#open();
    if (this.#database === undefined) {
      this.#database = openSqlite(IN_MEMORY, { readonly: false, timeout: BUSY_TIMEOUT_MS });
      this.#isStandIn = true;
      migrate(this.#database, migrations, IN_MEMORY);
    }
    return this.#database;
  }

  #guarded<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      const { path } = this.#options;
      if (!this.#isElsewhere || !isUseless(error)) throw storageError(error, path);
      discardDatabase(path);
      throw new RyeError('storage_failed', `${path} was damaged and is removed`, {
        hint: 'Run the command again.',
        cause: error,
      });
    }
  }
}

/** Removes a database with the files that SQLite has beside it. */
export function discardDatabase(path: string): void {
  for (const end of ['', '-wal', '-shm']) rmSync(`${path}${end}`, { force: true });
}

function openDatabase({ path, migrations, synchronous }: DatabaseOptions): Database {
  if (path !== IN_MEMORY) makeFolders(dirname(path), 0o700);
  assertNoLinks(path);
  const database = openSqlite(path, { readonly: false, timeout: BUSY_TIMEOUT_MS });
  try {
    database.pragma('journal_mode = WAL');
    database.pragma(`synchronous = ${synchronous}`);
    database.pragma('foreign_keys = ON');
    migrate(database, migrations, path);
    assertOwnProgram(database, migrations, path);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Refuses symbolic links: a downloaded project must not choose which file rye writes. */
function assertNoLinks(path: string): void {
  for (const file of [path, `${path}-wal`, `${path}-shm`, `${path}-journal`]) {
    if (lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink() !== true) continue;
    throw new RyeError('path_denied', `${file} is refused: it is a symbolic link`, {
      hint: 'Remove the link; rye makes its own databases.',
      details: { path: file },
    });
  }
}

/**
 * Refuses a database that has foreign triggers or views: they would write rows as if rye had, such as a message of
 * the user to each new thread.
 */
function assertOwnProgram(database: Database, migrations: Migrations, path: string): void {
  const foreign = foreignProgram(database, migrations);
  if (foreign === undefined) return;
  throw new RyeError(
    'storage_failed',
    `${path} is refused: it contains ${JSON.stringify(foreign)}, which rye did not make`,
    {
      hint: 'Move it aside and rebuild it from the signed records with: rye doctor --repair',
      details: { path },
    },
  );
}

/** The name of a trigger or view that no migration of ours made. */
function foreignProgram(database: Database, migrations: Migrations): string | undefined {
  const programs = database
    .prepare(`SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view')`)
    .all() as readonly { readonly name: string; readonly sql: string }[];
  return programs.find(({ sql }) => !migrations.some((step) => step.includes(sql)))?.name;
}

function versionOf(database: Database): number {
  return database.pragma('user_version', { simple: true }) as number;
}

function migrate(database: Database, migrations: Migrations, path: string): void {
  if (versionOf(database) === migrations.length) return;
  const step = database.transaction(() => {
    // read again under the write lock: another process may have been faster
    const version = versionOf(database);
    if (version > migrations.length) throw newerDatabase(path, version, migrations.length);
    for (const sql of migrations.slice(version)) database.exec(sql);
    database.pragma(`user_version = ${migrations.length}`);
  });
  step.immediate(undefined);
}

function newerDatabase(path: string, found: number, known: number): RyeError {
  return new RyeError(
    'storage_failed',
    `${path} has version ${found}; this rye knows versions up to ${known}`,
    { hint: 'Use the rye that wrote it, or a newer one.' },
  );
}

/** True if a database is no use any more: SQLite can't read it, or another program has changed it. */
function isUseless(error: unknown): boolean {
  return error instanceof RyeError || /^SQLITE_(?:CORRUPT|NOTADB)/.test(systemCodeOf(error) ?? '');
}

const UNWRITABLE =
  /^(SQLITE_READONLY|SQLITE_CANTOPEN|SQLITE_PERM|EACCES|EROFS|EPERM|ENOTDIR|EEXIST)/;
const HINTS: readonly (readonly [RegExp, string])[] = [
  [/^(SQLITE_FULL|ENOSPC|EDQUOT)/, 'The disk is full: free some space and try again.'],
  [/^SQLITE_(CORRUPT|NOTADB)/, 'The file is damaged. Rebuild it with: rye doctor --repair'],
  [/^(SQLITE_IOERR|EFBIG|EIO)/, 'Check the disk and the limit on file sizes (ulimit -f).'],
  [/^SQLITE_(BUSY|LOCKED)/, 'Another process holds the database: try again when it is done.'],
];

function storageError(error: unknown, path: string): unknown {
  if (error instanceof RyeError) return error;
  const system = systemCodeOf(error);
  if (system === undefined) return error;
  const options = { details: { path, system }, cause: error };
  if (UNWRITABLE.test(system)) {
    return new RyeError('state_unwritable', `cannot write ${path}: ${messageOf(error)}`, {
      ...options,
      hint: "Check the owner and permissions of the project's .ai/state folder.",
    });
  }
  const hint = HINTS.find(([pattern]) => pattern.test(system))?.[1];
  return new RyeError('storage_failed', `${path}: ${messageOf(error)}`, { ...options, hint });
}

export interface InspectOptions {
  readonly path: string;
  readonly migrations: Migrations;
  /** A table that each database of this kind has. */
  readonly table: string;
}

const MAX_PROBLEMS = 3;

/** Looks at a database file without changing it: whether SQLite can read it, all of it, and whether rye made it. */
export function inspectDatabase(options: InspectOptions): Omit<DatabaseState, 'name'> {
  const { path } = options;
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return { path, state: 'missing', detail: 'file missing' };
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
  const database = openSqlite(path, { readonly: true, timeout: BUSY_TIMEOUT_MS });
  try {
    const found = database.pragma(`integrity_check(${MAX_PROBLEMS})`) as readonly {
      readonly integrity_check: string;
    }[];
    const problems = found
      .map(({ integrity_check: problem }) => problem)
      .filter((problem) => problem !== 'ok');
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
