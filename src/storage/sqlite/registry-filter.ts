import type { ThreadFilter } from '../store.ts';
import type { LazyDatabase } from './database.ts';
import { ACTIVE_STATUSES } from './registry-rows.ts';

/** A filter as the condition of a query over threads. */
export function conditions(filter: ThreadFilter): {
  readonly where: string;
  readonly parameters: readonly string[];
} {
  const { active, status, directive, parentId } = filter;
  const parts: string[] = [];
  const parameters: string[] = [];
  const add = (sql: string, ...values: readonly string[]): void => {
    parts.push(sql);
    parameters.push(...values);
  };
  if (active !== undefined) add(`status ${active ? '' : 'NOT '}IN (${ACTIVE_STATUSES})`);
  if (status !== undefined) add('status = ?', status);
  if (parentId !== undefined) add('parent_id = ?', parentId);
  if (directive?.includes('*')) add('directive GLOB ?', literalGlob(directive));
  else if (directive !== undefined) add('directive = ?', directive);
  return { where: parts.length === 0 ? '' : `WHERE ${parts.join(' AND ')}`, parameters };
}

/** Only `*` is a wildcard: the others of SQLite's GLOB stand for themselves. */
function literalGlob(pattern: string): string {
  return pattern.replaceAll(/[?[]/g, '[$&]');
}

/** Ids that begin or end with `part`, newest first. */
export function idsLike(database: LazyDatabase, part: string, limit: number): readonly string[] {
  // length and substr compare literally: the part may hold `%` and `_`
  const rows = database.all(
    `SELECT thread_id FROM threads
      WHERE substr(thread_id, 1, length(?)) = ? OR substr(thread_id, -length(?)) = ?
      ORDER BY created_at DESC, rowid DESC LIMIT ?`,
    part,
    part,
    part,
    part,
    limit,
  ) as readonly { thread_id: string }[];
  return rows.map(({ thread_id }) => thread_id);
}
