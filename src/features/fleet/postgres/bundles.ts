import { RyeError } from '../../../kernel/core/errors.ts';
import { sha256Hex } from '../../../kernel/log/checkpoint.ts';
import type { Bundles, StoredBundle } from '../../../kernel/storage/bundles.ts';
import type { PostgresDatabase } from './database.ts';

/** Bundles in two tables: the tars, and the statements about them. */
export class PostgresBundles implements Bundles {
  readonly #database: PostgresDatabase;

  constructor(database: PostgresDatabase) {
    this.#database = database;
  }

  async put({ digest, planSha256, tar, envelope }: StoredBundle): Promise<void> {
    if (sha256Hex(tar) !== digest) {
      throw new RyeError('invalid_input', `the bundle does not have the digest ${digest}`, {
        hint: 'Make the bundle again.',
      });
    }
    const { rowCount } = await this.#database.query('SELECT 1 FROM bundles WHERE digest = $1', [
      digest,
    ]);
    if (rowCount === 0) {
      await this.#database.query(
        'INSERT INTO bundles (digest, tar) VALUES ($1, $2) ON CONFLICT DO NOTHING',
        [digest, Buffer.from(tar)],
      );
    }
    await this.#database.query(
      `INSERT INTO bundle_statements (digest, plan_sha256, envelope) VALUES ($1, $2, $3)
       ON CONFLICT DO NOTHING`,
      [digest, planSha256, envelope],
    );
  }

  async get(digest: string, planSha256: string): Promise<StoredBundle | undefined> {
    const { rows } = await this.#database.query(
      `SELECT tar, envelope FROM bundles JOIN bundle_statements USING (digest)
       WHERE digest = $1 AND plan_sha256 = $2`,
      [digest, planSha256],
    );
    const [row] = rows as readonly { readonly tar: Buffer; readonly envelope: string }[];
    if (!row) return undefined;
    if (sha256Hex(row.tar) === digest) return { digest, planSha256, ...row };
    throw new RyeError('thread_tampered', `the bundle ${digest} in the store has another digest`, {
      hint: 'It was changed in the database. rye ignored it.',
      details: { digest },
    });
  }
}
