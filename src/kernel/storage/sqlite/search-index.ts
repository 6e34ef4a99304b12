import { RyeError } from '../../core/errors.ts';
import type { ItemType, Space } from '../../core/ids.ts';
import type {
  FileFingerprint,
  IndexedHit,
  SearchDocument,
  SearchFilters,
  SearchNode,
  SearchQuery,
  TextField,
} from '../../core/search.ts';
import type { FolderScope, IndexAnswer, SearchIndex } from '../search-index.ts';
import type { CloseOptions } from '../store.ts';
import { type DatabaseOptions, LazyDatabase, type Migrations } from './database.ts';

/** Text of scripts that put no spaces between words, which the tokenizer of the index takes for one word. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u{30FC}]+/gu;
const ALPHANUMERIC = /[A-Za-z0-9]/;
const WORD_END = /[A-Za-z0-9]*/y;
/** A longer one is data. */
const MAX_WORD = 200;
/** A place inside a word where another one begins, as in `retryDelay` or `HTTPServer`. */
const SEAM = /[a-z0-9][A-Z]|[A-Z]{2}[a-z]/g;
const PART = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+/g;

/**
 * Returns a text as it is indexed: itself, and after it the parts by which its words are found: `retry` and `delay` of
 * `retryDelay`, and each pair of neighbors in a text without spaces.
 */
function withParts(text: string): string {
  const parts = new Set<string>();
  for (const word of joinedWords(text)) parts.add(word.match(PART)?.join(' ') ?? '');
  for (const [run] of text.matchAll(UNSPACED)) parts.add(pairs(run));
  return parts.size === 0 ? text : `${text}\n${[...parts].join('\n')}`;
}

/** Returns the words that others are joined in. Looks for the seams first, because most words have none. */
function joinedWords(text: string): readonly string[] {
  const words: string[] = [];
  let end = 0;
  for (const { index } of text.matchAll(SEAM)) {
    if (index < end) continue;
    let start = index;
    while (start > end && ALPHANUMERIC.test(text[start - 1] ?? '')) start -= 1;
    WORD_END.lastIndex = index;
    end = index + (WORD_END.exec(text)?.[0].length ?? 0);
    const word = text.slice(start, end).replace(/^\d+/, '');
    if (word.length <= MAX_WORD && word.search(SEAM) !== -1) words.push(word);
  }
  return words;
}

/** Returns a searched text with its parts without spaces as pairs, which are beside each other where the text is. */
function pairedText(text: string): string {
  return text.replaceAll(UNSPACED, (run) => pairs(run, false));
}

/** True for a single sign of a script without spaces: it is the beginning of a pair. */
function isOneSign(text: string): boolean {
  const [run = ''] = text.match(UNSPACED) ?? [];
  return run === text && Array.from(run).length === 1;
}

function pairs(run: string, hasLast = true): string {
  const signs = Array.from(run);
  if (signs.length === 1) return run;
  const couples = signs.slice(1).map((sign, index) => `${signs[index]}${sign}`);
  // the last sign by itself can be searched for too
  return [...couples, ...(hasLast ? signs.slice(-1) : [])].join(' ');
}

export const INDEX_MIGRATIONS: Migrations = [
  // the tables of the first version hold copies of texts; the last step drops them
  '',
  'CREATE TABLE folders (path TEXT PRIMARY KEY, mtime_ms REAL NOT NULL) WITHOUT ROWID;',
  // Contentless: the index stores no text that a search could show in place of the file's.
  `DROP TABLE IF EXISTS documents_fts;
   DROP TABLE IF EXISTS documents;
   DELETE FROM folders;
   CREATE TABLE documents (
     rowid INTEGER PRIMARY KEY,
     key TEXT NOT NULL UNIQUE,
     size INTEGER NOT NULL,
     mtime_ms REAL NOT NULL,
     type TEXT NOT NULL,
     id TEXT NOT NULL,
     space TEXT NOT NULL,
     directive TEXT NOT NULL,
     status TEXT NOT NULL,
     model TEXT NOT NULL,
     time TEXT NOT NULL
   );
   CREATE INDEX documents_by_fingerprint ON documents (key, size, mtime_ms);
   CREATE INDEX documents_by_time ON documents (time);
   CREATE VIRTUAL TABLE documents_fts USING fts5 (
     title, tags, id, body, content = '', contentless_delete = 1,
     tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3'
   );
   CREATE TRIGGER documents_deleted AFTER DELETE ON documents BEGIN
     DELETE FROM documents_fts WHERE rowid = old.rowid;
   END;`,
  // An index of prefixes of three characters cost more at each insertion than it saved in any search.
  `DROP TABLE documents_fts;
   DELETE FROM folders;
   DROP TRIGGER documents_deleted;
   DELETE FROM documents;
   CREATE VIRTUAL TABLE documents_fts USING fts5 (
     title, tags, id, body, content = '', contentless_delete = 1,
     tokenize = 'unicode61 remove_diacritics 2', prefix = '2'
   );
   CREATE TRIGGER documents_deleted AFTER DELETE ON documents BEGIN
     DELETE FROM documents_fts WHERE rowid = old.rowid;
   END;`,
  // The index of prefixes of two characters cost a fifth of each insertion; searches for one character are quick without one.
  `DROP TABLE documents_fts;
   DELETE FROM folders;
   DROP TRIGGER documents_deleted;
   DELETE FROM documents;
   CREATE VIRTUAL TABLE documents_fts USING fts5 (
     title, tags, id, body, content = '', contentless_delete = 1,
     tokenize = 'unicode61 remove_diacritics 2'
   );
   CREATE TRIGGER documents_deleted AFTER DELETE ON documents BEGIN
     DELETE FROM documents_fts WHERE rowid = old.rowid;
   END;`,
  // Texts are indexed again with the parts of their words.
  `DROP TABLE documents_fts;
   DELETE FROM folders;
   DROP TRIGGER documents_deleted;
   DELETE FROM documents;
   CREATE VIRTUAL TABLE documents_fts USING fts5 (
     title, tags, id, body, content = '', contentless_delete = 1,
     tokenize = 'unicode61 remove_diacritics 2'
   );
   CREATE TRIGGER documents_deleted AFTER DELETE ON documents BEGIN
     DELETE FROM documents_fts WHERE rowid = old.rowid;
   END;`,
];

// a match in the title weighs more than one in the body
const RANK = 'bm25(documents_fts, 8.0, 4.0, 4.0, 1.0)';
/** Matches that are kept while the others are visited, beyond those that were asked for. */
const SPARE = 1000;

/** Fingerprints that are read as one text, which costs half of a row for each; all of them would be a long one. */
const PAGE = 5000;
/** Parts of a millisecond in which times are read: JSON has fewer digits, and no file system has finer times since 2004. */
const TICKS = 4096;

/** Fingerprints of files, each at the same place in all lists. */
interface FingerprintPage {
  readonly keys: readonly string[];
  readonly sizes: readonly number[];
  readonly times: readonly number[];
}

const NO_PAGE: FingerprintPage = { keys: [], sizes: [], times: [] };

interface HitRow {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
}

/** The full-text index of a project in one SQLite file (FTS5, BM25). */
export class SqliteSearchIndex implements SearchIndex {
  readonly #database: LazyDatabase;

  /** Without a folder for the file, it is `elsewhere`, or in memory. */
  constructor({ path, elsewhere = () => undefined }: Pick<DatabaseOptions, 'path' | 'elsewhere'>) {
    const migrations = INDEX_MIGRATIONS;
    this.#database = new LazyDatabase({ path, migrations, synchronous: 'normal', elsewhere });
  }

  async fingerprints(
    scope?: FolderScope,
    isWanted: (path: string, fingerprint: FileFingerprint) => boolean = () => true,
  ): Promise<ReadonlyMap<string, FileFingerprint>> {
    const found = new Map<string, FileFingerprint>();
    for (const { from, to } of rangesOf(scope)) {
      for (let page = this.#page('>=', from, to); page.keys.length > 0; ) {
        const { keys, sizes, times } = page;
        for (const [at, key] of keys.entries()) {
          const fingerprint = { size: sizes[at] ?? 0, mtime_ms: (times[at] ?? 0) / TICKS };
          if (isWanted(key, fingerprint)) found.set(key, fingerprint);
        }
        page = keys.length < PAGE ? NO_PAGE : this.#page('>', keys.at(-1) ?? '', to);
      }
    }
    return found;
  }

  /** The fingerprints of the next keys in order. */
  #page(after: '>' | '>=', from: string, to: string | undefined): FingerprintPage {
    const bounds = [from, ...(to === undefined ? [] : [to])];
    const [[keys, sizes, times] = []] = this.#database.rows(
      `SELECT json_group_array(key), json_group_array(size), json_group_array(CAST(mtime_ms * ${TICKS} AS INTEGER))
       FROM (SELECT key, size, mtime_ms FROM documents
         WHERE key ${after} ?${to === undefined ? '' : ' AND key < ?'} ORDER BY key LIMIT ${PAGE})`,
      ...bounds,
    );
    const parsed = [keys, sizes, times].map((text) => JSON.parse(String(text)) as unknown);
    return { keys: parsed[0], sizes: parsed[1], times: parsed[2] } as FingerprintPage;
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
      for (const key of removedKeys) this.#delete(key);
      for (const document of changed) {
        if (this.#insert(document)) continue;
        this.#delete(document.key);
        this.#insert(document);
      }
    });
  }

  async search(query: SearchQuery, isOver: () => boolean = () => false): Promise<IndexAnswer> {
    const selection = { ...compileFilters(query.filters), limit: query.limit };
    return query.text
      ? this.#match({ ...selection, expression: compileFts(query.text), isOver })
      : this.#list(selection);
  }

  close(options?: CloseOptions): void {
    this.#database.close(options);
  }

  /**
   * Visits all matches once, in the order of the index, and checks the clock at each of them: SQLite cannot
   * be interrupted within a statement.
   */
  #match(selection: Selection & { expression: string; isOver: () => boolean }): IndexAnswer {
    const { expression, conditions, parameters, limit, isOver } = selection;
    const where = ['documents_fts MATCH ?', ...conditions].join(' AND ');
    const best: Ranked[] = [];
    let total = 0;
    let complete = true;
    // the rank of the last match that would be kept: FTS5 ranks by negative numbers, the best match lowest
    let worst = Number.POSITIVE_INFINITY;
    this.#database.each(
      `SELECT documents_fts.rowid, ${RANK}
       FROM documents_fts JOIN documents ON documents.rowid = documents_fts.rowid WHERE ${where}`,
      [expression, ...parameters],
      ([row, rank]) => {
        total += 1;
        if (Number(rank) < worst) best.push({ row: Number(row), rank: Number(rank) });
        if (best.length > limit + SPARE) {
          keepBest(best, limit);
          worst = best.at(-1)?.rank ?? worst;
        }
        complete = !isOver();
        return complete;
      },
    );
    keepBest(best, limit);
    return { hits: best.map(({ row, rank }) => this.#hit(row, 0 - rank)), total, complete };
  }

  #hit(row: number, score: number): IndexedHit {
    const columns = 'SELECT type, id, space, key AS path FROM documents WHERE rowid = ?';
    return { ...(this.#database.get(columns, row) as HitRow), score };
  }

  #list({ conditions, parameters, limit }: Selection): IndexAnswer {
    const where = conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`;
    const rows = this.#database.all(
      `SELECT type, id, space, key AS path FROM documents ${where} ORDER BY time DESC, rowid DESC LIMIT ?`,
      ...parameters,
      limit,
    ) as readonly HitRow[];
    const counted = this.#database.get(
      `SELECT count(*) AS total FROM documents ${where}`,
      ...parameters,
    ) as { readonly total: number } | undefined;
    return {
      hits: rows.map((row) => ({ ...row, score: 0 })),
      total: counted?.total ?? 0,
      complete: true,
    };
  }

  #delete(key: string): void {
    this.#database.run('DELETE FROM documents WHERE key = ?', key);
  }

  /** Returns false and does nothing if the index has a document with this key: most documents are new. */
  #insert(document: SearchDocument): boolean {
    const { fingerprint, title, tags, id, body } = document;
    const inserted = this.#database.run(
      `INSERT INTO documents (key, size, mtime_ms, type, id, space, directive, status, model, time)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING`,
      document.key,
      fingerprint.size,
      fingerprint.mtime_ms,
      document.type,
      id,
      document.space,
      document.directive,
      document.status,
      document.model,
      document.time,
    );
    if (inserted === 0) return false;
    this.#database.run(
      `INSERT INTO documents_fts (rowid, title, tags, id, body)
       VALUES (last_insert_rowid(), ?, ?, ?, ?)`,
      withParts(title),
      withParts(tags),
      withParts(id),
      withParts(body),
    );
    return true;
  }
}

/** A range of keys; without `to`, all from `from` on. */
interface KeyRange {
  readonly from: string;
  readonly to?: string;
}

/** The keys inside or outside of a folder: the character after the slash ends the range of its files. */
function rangesOf(scope: FolderScope | undefined): readonly KeyRange[] {
  if (scope === undefined) return [{ from: '' }];
  const [from, to] = [`${scope.folder}/`, `${scope.folder}0`];
  return scope.side === 'inside' ? [{ from, to }] : [{ from: '', to: from }, { from: to }];
}

interface Selection {
  readonly conditions: readonly string[];
  readonly parameters: readonly string[];
  readonly limit: number;
}

interface Ranked {
  readonly row: number;
  readonly rank: number;
}

/** Sorts matches, best first, and drops those beyond the limit. */
function keepBest(matches: Ranked[], limit: number): void {
  matches.sort((left, right) => left.rank - right.rank || left.row - right.row);
  matches.length = Math.min(matches.length, limit);
}

const FTS_COLUMN: Readonly<Record<TextField, string>> = {
  title: 'title',
  tag: 'tags',
  body: 'body',
  id: 'id',
};

/** An FTS5 expression; `isNegative` if it only excludes matches. */
interface Compiled {
  readonly text: string;
  readonly negative: boolean;
}

/**
 * Compiles a query to FTS5 syntax. All user text is quoted, so none of it is syntax. FTS5
 * knows `a NOT b` only: negations are moved after the positive part of their conjunction, and one that has
 * no positive part beside it is refused with `query_malformed`.
 */
function compileFts(node: SearchNode): string {
  const { text, negative } = compile(node);
  if (negative) throw onlyNegative();
  return text;
}

function compile(node: SearchNode): Compiled {
  if (node.kind === 'or') return any(node.nodes.map(compile));
  if (node.kind === 'and') return all(node.nodes.map(compile));
  if (node.kind === 'not') {
    const { text, negative } = compile(node.node);
    return { text, negative: !negative };
  }
  const text = pairedText(node.text);
  const isPrefix = node.kind === 'term' && (node.prefix || isOneSign(node.text));
  return positive(`${column(node.field)}${quoted(text)}${isPrefix ? ' *' : ''}`);
}

function any(nodes: readonly Compiled[]): Compiled {
  // not a or not b is not (a and b); a mixture has no FTS5 form
  if (nodes.every(({ negative }) => negative) && nodes.length > 0) {
    return { text: joined(nodes, ' AND '), negative: true };
  }
  if (nodes.some(({ negative }) => negative)) throw onlyNegative();
  return positive(joined(nodes, ' OR '));
}

function all(nodes: readonly Compiled[]): Compiled {
  const wanted = nodes.filter(({ negative }) => !negative);
  const unwanted = nodes.filter(({ negative }) => negative);
  if (wanted.length === 0) return { text: joined(unwanted, ' OR '), negative: true };
  if (unwanted.length === 0) return positive(joined(wanted, ' AND '));
  return positive(`(${joined(wanted, ' AND ')} NOT ${joined(unwanted, ' OR ')})`);
}

function positive(text: string): Compiled {
  return { text, negative: false };
}

function joined(nodes: readonly Compiled[], operator: string): string {
  if (nodes.length === 0) throw new RyeError('query_malformed', 'the query has an empty group');
  return `(${nodes.map(({ text }) => text).join(operator)})`;
}

function column(field: TextField | undefined): string {
  return field === undefined ? '' : `${FTS_COLUMN[field]} : `;
}

function quoted(text: string): string {
  // SQLite reads its arguments up to a NUL
  return `"${text.replaceAll('\0', ' ').replaceAll('"', '""')}"`;
}

function onlyNegative(): RyeError {
  return new RyeError('query_malformed', 'NOT needs another term to exclude from', {
    hint: 'Write the words to find first, such as "budget NOT ledger".',
  });
}

/** SQL conditions on the `documents` table, with the values to bind, in order. */
function compileFilters(filters: SearchFilters): {
  readonly conditions: readonly string[];
  readonly parameters: readonly string[];
} {
  const { types, space, directive, status, model, after, before, granted, without } = filters;
  const conditions: string[] = [];
  const parameters: string[] = [];
  if (types) {
    conditions.push(`documents.type IN (${types.map(() => '?').join(', ')})`);
    parameters.push(...types);
  }
  if (granted) {
    const capability = `('rye.fetch.' || documents.type || '.' || replace(documents.id, '/', '.'))`;
    conditions.push(`(0 ${granted.map(() => `OR ${capability} GLOB ?`).join(' ')})`);
    parameters.push(...granted);
  }
  if (without !== undefined) {
    conditions.push('substr(documents.id, 1, length(?)) <> ?');
    parameters.push(without, without);
  }
  const exact: readonly (readonly [string, string | undefined])[] = [
    ['documents.space =', space],
    ['documents.directive =', directive],
    ['documents.status =', status],
    ['documents.model =', model],
    ['documents.time >=', after],
    ['documents.time <', before],
  ];
  for (const [condition, value] of exact) {
    if (value === undefined) continue;
    conditions.push(`${condition} ?`);
    parameters.push(value);
  }
  return { conditions, parameters };
}
