import { createRequire } from 'node:module';
import type BetterSqlite from 'better-sqlite3';
import { messageOf, RyeError, systemCodeOf } from '../../core/errors.ts';

/** The part of SQLite that rye uses, as better-sqlite3 declares it. */
export interface Database {
  readonly inTransaction: boolean;
  prepare(sql: string): Statement;
  exec(sql: string): unknown;
  pragma(sql: string, options?: { readonly simple?: boolean }): unknown;
  transaction<A, T>(work: (argument: A) => T): { immediate(argument: A): T };
  close(): unknown;
}

export interface Statement {
  all(...parameters: readonly unknown[]): unknown[];
  get(...parameters: readonly unknown[]): unknown;
  run(...parameters: readonly unknown[]): { readonly changes: number };
  /** Makes {@link all} and {@link iterate} return arrays of columns. */
  raw(): Statement;
  iterate(...parameters: readonly unknown[]): IterableIterator<unknown>;
}

export interface DatabaseAccess {
  readonly readonly: boolean;
  /** The longest wait for another process, in milliseconds. */
  readonly timeout: number;
}

const load = createRequire(import.meta.url);
let hasBinding = true;

/** Opens a database file with better-sqlite3 if its binding can be loaded, else with the SQLite of Node. */
export function openSqlite(path: string, access: DatabaseAccess): Database {
  if (hasBinding) {
    try {
      const Engine = load('better-sqlite3') as typeof BetterSqlite;
      return new Engine(path, { ...access, fileMustExist: access.readonly });
    } catch (error) {
      if (!isMissing(error)) throw error;
      hasBinding = false;
    }
  }
  return openNodeDatabase(nodeSqlite(), path, access);
}

/** True if better-sqlite3 is not installed, or its binding is missing or made for another Node. */
function isMissing(error: unknown): boolean {
  const code = systemCodeOf(error);
  return (
    code === 'MODULE_NOT_FOUND' ||
    code === 'ERR_DLOPEN_FAILED' ||
    messageOf(error).startsWith('Could not locate the bindings file')
  );
}

function nodeSqlite(): NodeSqlite {
  const warn = process.emitWarning.bind(process);
  // Node 22 reports that its SQLite is experimental; the rest of standard error is rye's
  process.emitWarning = () => {};
  try {
    return load('node:sqlite') as NodeSqlite;
  } catch (cause) {
    throw new RyeError(
      'storage_failed',
      `rye needs Node 22.13 or later; this is ${process.versions.node}`,
      { hint: 'Node 20.10 works with better-sqlite3, if its binding is for this Node.', cause },
    );
  } finally {
    process.emitWarning = warn;
  }
}

/** The module `node:sqlite` of Node 22.13 and later, as far as rye uses it. */
interface NodeSqlite {
  readonly DatabaseSync: new (path: string, options: { readonly readOnly: boolean }) => NodeHandle;
}

interface NodeHandle {
  prepare(sql: string): NodeStatement;
  exec(sql: string): void;
  close(): void;
}

interface NodeStatement {
  all(...parameters: readonly unknown[]): Row[];
  get(...parameters: readonly unknown[]): Row | undefined;
  run(...parameters: readonly unknown[]): { readonly changes: number };
  iterate(...parameters: readonly unknown[]): IterableIterator<Row>;
}

type Row = Readonly<Record<string, unknown>>;

/** Opens a database file with Node's SQLite; its errors have the codes of better-sqlite3. */
function openNodeDatabase(
  { DatabaseSync }: NodeSqlite,
  path: string,
  { readonly, timeout }: DatabaseAccess,
): Database {
  const handle = coded(() => new DatabaseSync(path, { readOnly: readonly }));
  coded(() => handle.exec(`PRAGMA busy_timeout = ${timeout}`));
  return new NodeDatabase(handle);
}

class NodeDatabase implements Database {
  readonly #handle: NodeHandle;
  #depth = 0;

  constructor(handle: NodeHandle) {
    this.#handle = handle;
  }

  get inTransaction(): boolean {
    return this.#depth > 0;
  }

  prepare(sql: string): Statement {
    return new BoundStatement(coded(() => this.#handle.prepare(sql)));
  }

  exec(sql: string): void {
    coded(() => this.#handle.exec(sql));
  }

  pragma(sql: string, { simple = false }: { readonly simple?: boolean } = {}): unknown {
    const rows = coded(() => this.#handle.prepare(`PRAGMA ${sql}`).all());
    return simple ? Object.values(rows[0] ?? {})[0] : rows;
  }

  transaction<A, T>(work: (argument: A) => T): { immediate(argument: A): T } {
    return { immediate: (argument) => this.#immediate(() => work(argument)) };
  }

  close(): void {
    this.#handle.close();
  }

  /** A transaction within another one is a savepoint. */
  #immediate<T>(work: () => T): T {
    const [begin, commit, undo] =
      this.#depth === 0
        ? ['BEGIN IMMEDIATE', 'COMMIT', 'ROLLBACK']
        : ['SAVEPOINT rye', 'RELEASE rye', 'ROLLBACK TO rye; RELEASE rye'];
    this.exec(begin);
    this.#depth += 1;
    try {
      const result = work();
      this.exec(commit);
      return result;
    } catch (error) {
      this.#undo(undo);
      throw error;
    } finally {
      this.#depth -= 1;
    }
  }

  #undo(sql: string): void {
    try {
      this.#handle.exec(sql);
    } catch {
      // SQLite has rolled back by itself, such as on a full disk
    }
  }
}

class BoundStatement implements Statement {
  readonly #statement: NodeStatement;
  readonly #isRaw: boolean;

  constructor(statement: NodeStatement, isRaw = false) {
    this.#statement = statement;
    this.#isRaw = isRaw;
  }

  all(...parameters: readonly unknown[]): unknown[] {
    const rows = coded(() => this.#statement.all(...parameters.map(bindable)));
    return this.#isRaw ? rows.map((row) => Object.values(row)) : rows;
  }

  get(...parameters: readonly unknown[]): unknown {
    return coded(() => this.#statement.get(...parameters.map(bindable)));
  }

  run(...parameters: readonly unknown[]): { readonly changes: number } {
    return coded(() => this.#statement.run(...parameters.map(bindable)));
  }

  raw(): Statement {
    return new BoundStatement(this.#statement, true);
  }

  *iterate(...parameters: readonly unknown[]): IterableIterator<unknown> {
    const rows = coded(() => this.#statement.iterate(...parameters.map(bindable)));
    try {
      for (const row of rows) yield this.#isRaw ? Object.values(row) : row;
    } catch (error) {
      throw withCode(error);
    }
  }
}

/** Returns null for what is undefined, which Node 22 refuses to bind. */
function bindable(value: unknown): unknown {
  return value === undefined ? null : value;
}

/** The names of SQLite's result codes that {@link Database} users tell apart. */
const CODES: Readonly<Record<number, string>> = {
  1: 'SQLITE_ERROR',
  3: 'SQLITE_PERM',
  5: 'SQLITE_BUSY',
  6: 'SQLITE_LOCKED',
  8: 'SQLITE_READONLY',
  10: 'SQLITE_IOERR',
  11: 'SQLITE_CORRUPT',
  13: 'SQLITE_FULL',
  14: 'SQLITE_CANTOPEN',
  19: 'SQLITE_CONSTRAINT',
  26: 'SQLITE_NOTADB',
};
const PRIMARY_CODE = 0xff;

function coded<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw withCode(error);
  }
}

function withCode(error: unknown): unknown {
  if (!(error instanceof Error) || !('errcode' in error)) return error;
  const code = CODES[Number(error.errcode) & PRIMARY_CODE];
  return Object.assign(error, { code: code ?? `SQLITE_${Number(error.errcode)}` });
}
