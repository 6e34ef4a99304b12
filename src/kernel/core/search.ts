import type { ItemType, Space } from './ids.ts';

/** Fields that a search term can be bound to with `field:`. */
export const TEXT_FIELDS = ['title', 'tag', 'body', 'id'] as const;
export type TextField = (typeof TEXT_FIELDS)[number];

/** A parsed full-text query; independent of the index that runs it. */
export type SearchNode =
  | {
      readonly kind: 'term';
      readonly text: string;
      readonly prefix: boolean;
      readonly field?: TextField;
    }
  | { readonly kind: 'phrase'; readonly text: string; readonly field?: TextField }
  | { readonly kind: 'and'; readonly nodes: readonly SearchNode[] }
  | { readonly kind: 'or'; readonly nodes: readonly SearchNode[] }
  | { readonly kind: 'not'; readonly node: SearchNode };

/** Exact filters; `after` and `before` are ISO dates compared with a document's time. */
export interface SearchFilters {
  readonly types?: readonly ItemType[];
  readonly space?: Space;
  readonly directive?: string;
  readonly status?: string;
  readonly model?: string;
  readonly after?: string;
  readonly before?: string;
  /** Only what one of these globs over `rye.fetch.<type>.<id with / as .>` matches; none: nothing. */
  readonly granted?: readonly string[];
  /** Skip items whose id begins with this. */
  readonly without?: string;
}

export interface SearchQuery {
  /** Absent: everything that passes the filters. */
  readonly text?: SearchNode;
  readonly filters: SearchFilters;
  readonly limit: number;
}

/** One indexed file. `key` is its absolute path; the fingerprint decides whether it must be read again. */
export interface SearchDocument {
  readonly key: string;
  readonly fingerprint: FileFingerprint;
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  readonly title: string;
  readonly tags: string;
  readonly body: string;
  readonly directive: string;
  readonly status: string;
  readonly model: string;
  /** ISO 8601 time of the document: a thread's start, else the file's mtime. */
  readonly time: string;
}

export interface FileFingerprint {
  readonly size: number;
  readonly mtime_ms: number;
}

/** A match as the index returns it. Text for people comes from the file that it names, never from the index. */
export interface IndexedHit {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  /** Absolute path. */
  readonly path: string;
  /** BM25 as a positive number, larger is better; 0 without a text query. */
  readonly score: number;
}

/** A match for people and programs. */
export interface SearchHit extends IndexedHit {
  readonly title: string;
  /** From the file's bytes. Matches are between U+E000 and U+E001, so that each interface can mark them its own way. */
  readonly snippet: string;
  /** State of the file's signature, such as `signed` or `modified`; `unchecked` if the search had no time left for it. */
  readonly signature: string;
  /** True if the signature covers the bytes that title and snippet come from. */
  readonly verified: boolean;
  /** Lines of the file around the first match, if they were asked for. */
  readonly context?: string;
  readonly directive?: string;
  readonly status?: string;
  /** The thread of a thread export. */
  readonly thread_id?: string;
  /** The first thread of the session of a thread export. */
  readonly session_id?: string;
  readonly time: string;
}

export interface SearchAnswer {
  readonly results: readonly SearchHit[];
  readonly total: number;
  /** False if a bound on time or bytes cut the search; `notices` then name the bound. */
  readonly complete: boolean;
  /** Parts that a bound on time or bytes cut. */
  readonly notices: readonly string[];
}

export const SNIPPET_OPEN = '\u{E000}';
export const SNIPPET_CLOSE = '\u{E001}';
