import type { Pool, PoolClient, QueryResult } from 'pg';

/** Code of PostgreSQL for a prepared statement whose tables have changed since. */
export const PLAN_CHANGED = '0A000';
const MAX_PREPARED = 500;

/** The statements of a database, which its server parses once for each connection. */
export class Statements {
  readonly #names = new Map<string, string>();
  /** False once the tables have changed under a prepared statement: then each is parsed again. */
  #isPreparing = true;

  async run(
    client: Pool | PoolClient,
    text: string,
    values: readonly unknown[],
  ): Promise<QueryResult> {
    const statement = { text, values: [...values] };
    const name = this.#nameOf(text);
    if (name === undefined) return await client.query(statement);
    try {
      return await client.query({ ...statement, name });
    } catch (error) {
      if (codeOf(error) === PLAN_CHANGED) this.#isPreparing = false;
      throw error;
    }
  }

  #nameOf(text: string): string | undefined {
    if (!this.#isPreparing) return undefined;
    let name = this.#names.get(text);
    if (name === undefined && this.#names.size < MAX_PREPARED) {
      name = `rye${this.#names.size}`;
      this.#names.set(text, name);
    }
    return name;
  }
}

/** Runs what is in no transaction, and runs it again if the tables have changed under a prepared statement. */
export async function planned<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (codeOf(error) !== PLAN_CHANGED) throw error;
    return await work();
  }
}

/** Returns the code of an error of PostgreSQL or of the system. */
export function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}
