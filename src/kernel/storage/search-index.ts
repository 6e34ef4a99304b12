import type { FileFingerprint, IndexedHit, SearchDocument, SearchQuery } from '../core/search.ts';

/** A folder by its absolute path, and which side of it is meant. */
export interface FolderScope {
  readonly folder: string;
  readonly side: 'inside' | 'outside';
}

export interface IndexAnswer {
  readonly hits: readonly IndexedHit[];
  readonly total: number;
  readonly complete: boolean;
}

/** Full-text index of items and exports. Rebuildable: it is never the only copy of anything. */
export interface SearchIndex {
  /**
   * Returns the fingerprints of all files, or of those inside or outside a folder. `isWanted` sees each of them once and
   * selects those to return, so that thousands of unchanged files take no memory.
   */
  fingerprints(
    scope?: FolderScope,
    isWanted?: (path: string, fingerprint: FileFingerprint) => boolean,
  ): Promise<ReadonlyMap<string, FileFingerprint>>;
  /** Modification times of folders whose files are indexed as they were then. */
  folders(): Promise<ReadonlyMap<string, number>>;
  /** Remembers folders, and forgets those that are gone. */
  updateFolders(changed: ReadonlyMap<string, number>, gone: readonly string[]): Promise<void>;
  /** Upserts and removals in one transaction. */
  update(changed: readonly SearchDocument[], removedKeys: readonly string[]): Promise<void>;
  /**
   * The best matches, and how many there are. `isOver` is asked after each matching document: once it is true the
   * answer has what was found so far, and `complete` is false.
   */
  search(query: SearchQuery, isOver?: () => boolean): Promise<IndexAnswer>;
}
