import type { ItemType, Space } from '../../core/ids.ts';
import { compact } from '../../core/json.ts';
import {
  type FileFingerprint,
  type SearchDocument,
  type SearchHit,
  type SearchQuery,
  SNIPPET_CLOSE,
  SNIPPET_OPEN,
} from '../../core/search.ts';
import type { FolderScope, SearchIndex } from '../store.ts';
import { LazyDatabase, type Migrations } from './database.ts';
import { compileFilters, compileFts } from './search-query.ts';

const MIGRATIONS: Migrations = [
  // External content: the text is stored once, in `documents`, where the filters and the snippets need it. A contentless
  // table would be smaller, but has no snippets.
  `CREATE TABLE documents (
     rowid INTEGER PRIMARY KEY,
     key TEXT NOT NULL UNIQUE,
     size INTEGER NOT NULL,
     mtime_ms REAL NOT NULL,
     sha256 TEXT,
     type TEXT NOT NULL,
     id TEXT NOT NULL,
     space TEXT NOT NULL,
     title TEXT NOT NULL,
     tags TEXT NOT NULL,
     body TEXT NOT NULL,
     directive TEXT NOT NULL,
     status TEXT NOT NULL,
     model TEXT NOT NULL,
     time TEXT NOT NULL
   );
   CREATE INDEX documents_by_fingerprint ON documents (key, size, mtime_ms, sha256);
   CREATE INDEX documents_by_time ON documents (time);
   CREATE VIRTUAL TABLE documents_fts USING fts5 (
     title, tags, id, body, content = 'documents', content_rowid = 'rowid',
     tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3'
   );
   CREATE TRIGGER documents_inserted AFTER INSERT ON documents BEGIN
     INSERT INTO documents_fts (rowid, title, tags, id, body) VALUES (new.rowid, new.title, new.tags, new.id, new.body);
   END;
   CREATE TRIGGER documents_deleted AFTER DELETE ON documents BEGIN
     INSERT INTO documents_fts (documents_fts, rowid, title, tags, id, body)
       VALUES ('delete', old.rowid, old.title, old.tags, old.id, old.body);
   END;`,
  'CREATE TABLE folders (path TEXT PRIMARY KEY, mtime_ms REAL NOT NULL) WITHOUT ROWID;',
];

// a word in the title says more about a document than one in its body
const RANK = 'bm25(documents_fts, 8.0, 4.0, 4.0, 1.0)';
const SNIPPET_TOKENS = 24;

interface HitRow {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  readonly key: string;
  readonly title: string;
  readonly rank: number;
  readonly snippet: string;
  readonly directive: string;
  readonly status: string;
  readonly time: string;
}

interface FingerprintRow {
  readonly key: string;
  readonly size: number;
  readonly mtime_ms: number;
  readonly sha256: string | null;
}

/** The full-text index of a project in one SQLite file (FTS5, BM25). */
export class SqliteSearchIndex implements SearchIndex {
  readonly #database: LazyDatabase;

  constructor({ path }: { readonly path: string }) {
    this.#database = new LazyDatabase({ path, migrations: MIGRATIONS, synchronous: 'normal' });
  }

  async fingerprints(scope?: FolderScope): Promise<ReadonlyMap<string, FileFingerprint>> {
    const columns = 'SELECT key, size, mtime_ms, sha256 FROM documents';
    // the character after the slash ends the range of what is below a folder
    const range = scope === undefined ? [] : [`${scope.folder}/`, `${scope.folder}0`];
    const sides = { inside: 'key >= ? AND key < ?', outside: 'key < ? OR key >= ?' };
    const where = scope === undefined ? '' : ` WHERE ${sides[scope.side]}`;
    const rows = this.#database.all(`${columns}${where}`, ...range) as readonly FingerprintRow[];
    return new Map(
      rows.map(({ key, size, mtime_ms, sha256 }) => [
        key,
        { size, mtime_ms, ...(sha256 === null ? {} : { sha256 }) },
      ]),
    );
  }

  async folders(): Promise<ReadonlyMap<string, number>> {
    const rows = this.#database.all('SELECT path, mtime_ms FROM folders') as readonly {
      readonly path: string;
      readonly mtime_ms: number;
    }[];
    return new Map(rows.map(({ path, mtime_ms }) => [path, mtime_ms]));
  }

  async updateFolders(
    changed: ReadonlyMap<string, number>,
    gone: readonly string[],
  ): Promise<void> {
    if (changed.size === 0 && gone.length === 0) return;
    this.#database.immediate(() => {
      for (const path of gone) this.#database.run('DELETE FROM folders WHERE path = ?', path);
      for (const [path, mtime] of changed) {
        this.#database.run(
          'INSERT OR REPLACE INTO folders (path, mtime_ms) VALUES (?, ?)',
          path,
          mtime,
        );
      }
    });
  }

  async update(changed: readonly SearchDocument[], removedKeys: readonly string[]): Promise<void> {
    if (changed.length === 0 && removedKeys.length === 0) return;
    this.#database.immediate(() => {
      for (const key of [...removedKeys, ...changed.map((document) => document.key)]) {
        this.#database.run('DELETE FROM documents WHERE key = ?', key);
      }
      for (const document of changed) this.#insert(document);
    });
  }

  async search(
    query: SearchQuery,
  ): Promise<{ readonly hits: readonly SearchHit[]; readonly total: number }> {
    const { conditions, parameters } = compileFilters(query.filters);
    return query.text
      ? this.#match({
          expression: compileFts(query.text),
          conditions,
          parameters,
          limit: query.limit,
        })
      : this.#list({ conditions, parameters, limit: query.limit });
  }

  close(): void {
    this.#database.close();
  }

  #match({ expression, conditions, parameters, limit }: Selection & { expression: string }): Found {
    const where = ['documents_fts MATCH ?', ...conditions].join(' AND ');
    const from = 'documents_fts JOIN documents ON documents.rowid = documents_fts.rowid';
    // the total needs no join without filters
    const counted = conditions.length === 0 ? 'documents_fts' : from;
    const total = this.#count(`FROM ${counted} WHERE ${where}`, [expression, ...parameters]);
    const rows = this.#database.all(
      `SELECT documents.type, documents.id, documents.space, documents.key, documents.title, hit.rank,
         snippet(documents_fts, -1, ?, ?, '…', ${SNIPPET_TOKENS}) AS snippet,
         documents.directive, documents.status, documents.time
       FROM (SELECT documents_fts.rowid AS id, ${RANK} AS rank FROM ${from} WHERE ${where}
             ORDER BY rank, documents_fts.rowid LIMIT ?) AS hit
       JOIN documents_fts ON documents_fts.rowid = hit.id
       JOIN documents ON documents.rowid = hit.id
       WHERE documents_fts MATCH ? ORDER BY hit.rank, hit.id`,
      SNIPPET_OPEN,
      SNIPPET_CLOSE,
      expression,
      ...parameters,
      limit,
      expression,
    ) as readonly HitRow[];
    return { hits: rows.map(hitOf), total };
  }

  #list({ conditions, parameters, limit }: Selection): Found {
    const where = conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`;
    const rows = this.#database.all(
      `SELECT type, id, space, key, title, 0.0 AS rank, substr(body, 1, 160) AS snippet, directive, status, time
       FROM documents ${where} ORDER BY time DESC, rowid DESC LIMIT ?`,
      ...parameters,
      limit,
    ) as readonly HitRow[];
    return { hits: rows.map(hitOf), total: this.#count(`FROM documents ${where}`, parameters) };
  }

  #count(rest: string, parameters: readonly unknown[]): number {
    return (
      (
        this.#database.get(`SELECT count(*) AS total ${rest}`, ...parameters) as
          | { total: number }
          | undefined
      )?.total ?? 0
    );
  }

  #insert(document: SearchDocument): void {
    const { fingerprint } = document;
    this.#database.run(
      `INSERT INTO documents (key, size, mtime_ms, sha256, type, id, space, title, tags, body, directive, status,
         model, time) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      document.key,
      fingerprint.size,
      fingerprint.mtime_ms,
      fingerprint.sha256 ?? null,
      document.type,
      document.id,
      document.space,
      document.title,
      document.tags,
      unmarked(document.body),
      document.directive,
      document.status,
      document.model,
      document.time,
    );
  }
}

interface Selection {
  readonly conditions: readonly string[];
  readonly parameters: readonly string[];
  readonly limit: number;
}

interface Found {
  readonly hits: readonly SearchHit[];
  readonly total: number;
}

/** A document can't fake the marks of a match. */
function unmarked(text: string): string {
  return text.replaceAll(SNIPPET_OPEN, '').replaceAll(SNIPPET_CLOSE, '');
}

function hitOf({ key, rank, directive, status, ...row }: HitRow): SearchHit {
  return compact({
    ...row,
    path: key,
    // FTS5 ranks by negative numbers, the best match lowest
    score: rank === 0 ? 0 : -rank,
    directive: directive === '' ? undefined : directive,
    status: status === '' ? undefined : status,
  });
}
