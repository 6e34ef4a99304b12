import type { CloseOptions } from './store.ts';

/**
 * A statement for the database that runs the work. `?` marks a parameter. The text is in the common subset of SQLite and
 * PostgreSQL.
 */
export interface Statement {
  readonly sql: string;
  readonly parameters: readonly unknown[];
  /** `change` is answered with a number: how many rows it changed. The others are answered with rows. */
  readonly kind: 'all' | 'one' | 'change';
}

/** The client of an open transaction of PostgreSQL, with `$1` for parameters. A client of `pg` is one. */
export interface Transaction {
  query(
    text: string,
    values?: unknown[],
  ): Promise<{ readonly rows: unknown[]; readonly rowCount: number | null }>;
}

/** A part of a transaction that takes its client; only a database with asynchronous transactions can run it. */
export interface ClientStep {
  readonly kind: 'client';
  readonly run: (transaction: Transaction) => Promise<unknown>;
}

/**
 * The reads and writes of one transaction. It yields each statement and continues with the answer, so that a synchronous and
 * an asynchronous database can run the same work. It has no other effects: a database may run it again after a conflict.
 */
export type Work<T> = Generator<Statement | ClientStep, T, unknown>;

/** A database that runs work. Each method is atomic towards other writers, in this process and in others. */
export interface SqlDatabase {
  /** Runs work that only reads. */
  read<T>(work: () => Work<T>): T | Promise<T>;
  /**
   * Runs work in a transaction. `isLosable`: it need not be on the disk when the call returns, because recovery rebuilds
   * it. A death of the process loses nothing.
   */
  write<T>(work: () => Work<T>, options?: { readonly isLosable: boolean }): T | Promise<T>;
  close(options?: CloseOptions): void;
}

/** Yields a query, and returns all rows, as objects by column. */
export function* all(sql: string, ...parameters: readonly unknown[]): Work<readonly unknown[]> {
  return (yield { sql, parameters, kind: 'all' }) as readonly unknown[];
}

/** Yields a query, and returns its first row; undefined if there is none. */
export function* one(sql: string, ...parameters: readonly unknown[]): Work<unknown> {
  return yield { sql, parameters, kind: 'one' };
}

/** Yields a statement, and returns how many rows it changed. */
export function* change(sql: string, ...parameters: readonly unknown[]): Work<number> {
  return (yield { sql, parameters, kind: 'change' }) as number;
}

/** Yields a part that writes with the transaction's own client, such as the enqueueing of a fleet's leg. Returns its result. */
export function* withClient<T>(run: (transaction: Transaction) => Promise<T>): Work<T> {
  return (yield { kind: 'client', run }) as T;
}

/** A method of a port that is one transaction: how its work is run, and the work of these arguments. */
interface Bound<A extends unknown[], T> {
  readonly kind: 'read' | 'write';
  readonly work: (...args: A) => Work<T>;
  readonly isLosable?: boolean;
}

type BoundMethods<P> = {
  readonly [M in keyof P]: P[M] extends (...args: infer A) => Promise<infer T>
    ? Bound<A, T>
    : never;
};

/** Returns a method whose work only reads. */
export function reading<A extends unknown[], T>(work: (...args: A) => Work<T>): Bound<A, T> {
  return { kind: 'read', work };
}

/** Returns a method whose write is on the disk when the call returns. */
export function writing<A extends unknown[], T>(work: (...args: A) => Work<T>): Bound<A, T> {
  return { kind: 'write', work };
}

/** Returns a method whose write recovery rebuilds after a power failure. */
export function writingLosably<A extends unknown[], T>(work: (...args: A) => Work<T>): Bound<A, T> {
  return { kind: 'write', work, isLosable: true };
}

/** Makes a port of the work of its methods, each a transaction of this database. */
export function bind<P extends object>(database: SqlDatabase, methods: BoundMethods<P>): P {
  const bound = Object.entries<Bound<unknown[], unknown>>(methods).map(
    ([name, { kind, work, isLosable = false }]) => [
      name,
      // a stack names the method
      {
        async [name](...args: unknown[]): Promise<unknown> {
          if (kind === 'read') return await database.read(() => work(...args));
          return await database.write(() => work(...args), { isLosable });
        },
      }[name],
    ],
  );
  return Object.fromEntries(bound) as P;
}
