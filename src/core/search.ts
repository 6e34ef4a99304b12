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
  readonly sha256?: string;
}

export interface SearchHit {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
  readonly title: string;
  /** BM25 as a positive number, larger is better; 0 without a text query. */
  readonly score: number;
  /** Matches stand between U+E000 and U+E001, so that every face can mark them in its own way. */
  readonly snippet: string;
  readonly directive?: string;
  readonly status?: string;
  readonly time: string;
}

export const SNIPPET_OPEN = '\u{E000}';
export const SNIPPET_CLOSE = '\u{E001}';
