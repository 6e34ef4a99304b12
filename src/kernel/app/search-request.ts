import type { ItemType, Space } from '../core/ids.ts';

export interface SearchRequest {
  readonly type: ItemType | 'all';
  readonly query: string;
  readonly limit?: number;
  readonly space?: Space;
  /** A date, a time or an age such as `7d`. */
  readonly since?: string;
  /** Capabilities of the thread: only items that it may fetch are found and counted. */
  readonly capabilities?: readonly string[];
  /** True for files that the thread's tools must not read: none of them is a result. Absent: a person searches. */
  readonly denies?: (path: string) => boolean;
  /** Skip the exports of threads, unless the query names a field that only they have. */
  readonly withoutThreads?: boolean;
  /** Lines of the file to give with each result, on each side of its first match. */
  readonly contextLines?: number;
}
