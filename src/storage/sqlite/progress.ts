import { isJsonObject, parseJson } from '../../core/json.ts';
import type { LogHead } from '../../log/checkpoint.ts';
import type { TurnProgress } from '../store.ts';
import type { LazyDatabase } from './database.ts';

/** Records a sign of life, and how far the thread has come if that is known. */
export function noteProgress(
  database: LazyDatabase,
  threadId: string,
  { now, cost, head }: TurnProgress & { readonly now: string },
): void {
  database.run(
    `UPDATE threads SET heartbeat_at = ?, updated_at = ?, cost = coalesce(?, cost),
       signed_head = coalesce(?, signed_head) WHERE thread_id = ?`,
    now,
    now,
    cost ? JSON.stringify(cost) : null,
    head ? JSON.stringify(head) : null,
    threadId,
  );
}

/** The last signed checkpoint that the thread's owner reported. */
export function signedHead(database: LazyDatabase, threadId: string): LogHead | undefined {
  const [row] = database.all(
    'SELECT signed_head FROM threads WHERE thread_id = ?',
    threadId,
  ) as readonly { signed_head: string | null }[];
  const value = parseJson(row?.signed_head ?? '');
  if (!isJsonObject(value)) return undefined;
  const { bytes, seq, epoch, sha256 } = value;
  return typeof bytes === 'number' &&
    typeof seq === 'number' &&
    typeof epoch === 'number' &&
    typeof sha256 === 'string'
    ? { bytes, seq, epoch, sha256 }
    : undefined;
}
