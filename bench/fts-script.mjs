// The floor of the search benchmark: full-text search over a folder of exports in the fewest lines.
//   node fts-script.mjs build DATABASE FOLDER      index every file
//   node fts-script.mjs trust DATABASE QUERY       rank the matches of the index
//   node fts-script.mjs stat DATABASE QUERY        compare each file with the index first
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import process from 'node:process';

const Database = createRequire(import.meta.url)('better-sqlite3');
const [, , work, index, argument] = process.argv;
const database = new Database(index);

if (work === 'build') build(argument);
else search(argument, work === 'stat');
database.close();

function build(root) {
  database.pragma('journal_mode = WAL');
  database.exec(
    `CREATE TABLE files (path TEXT, size INTEGER, mtime REAL);
     CREATE VIRTUAL TABLE texts USING fts5 (title, body, content = '', tokenize = 'unicode61 remove_diacritics 2');`,
  );
  const addFile = database.prepare(
    'INSERT INTO files (rowid, path, size, mtime) VALUES (?, ?, ?, ?)',
  );
  const addText = database.prepare('INSERT INTO texts (rowid, title, body) VALUES (?, ?, ?)');
  database.transaction(() => {
    let id = 0;
    for (const folder of readdirSync(root)) {
      for (const name of readdirSync(path.join(root, folder))) {
        const file = path.join(root, folder, name);
        const { size, mtimeMs } = lstatSync(file);
        id += 1;
        addFile.run(id, file, size, mtimeMs);
        addText.run(id, name, readFileSync(file, 'utf8'));
      }
    }
  })();
}

function search(query, isCompared) {
  if (isCompared) {
    for (const { path: file, size, mtime } of database.prepare('SELECT * FROM files').iterate()) {
      const stats = lstatSync(file);
      if (stats.size !== size || stats.mtimeMs !== mtime) throw new Error(`${file} has changed`);
    }
  }
  const hits = database
    .prepare(
      `SELECT path, rank, count(*) OVER () AS total FROM texts JOIN files ON files.rowid = texts.rowid
       WHERE texts MATCH ? ORDER BY rank LIMIT 10`,
    )
    .all(query);
  for (const hit of hits) {
    process.stdout.write(`${hit.path} ${readFileSync(hit.path, 'utf8').slice(0, 80)}\n`);
  }
  process.stdout.write(`${hits[0]?.total ?? 0} results\n`);
}
