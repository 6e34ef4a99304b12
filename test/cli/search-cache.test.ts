import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, test } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const MONTH_MS = 31 * 86_400_000;

/** A project as a clone has it, without `.ai/state`. */
async function clone(): Promise<Workspace & { readonly cache: string; readonly note: string }> {
  const here = await workspace();
  const folder = path.join(here.project, '.ai', 'knowledge');
  mkdirSync(folder, { recursive: true });
  const note = path.join(folder, 'note.md');
  writeFileSync(note, '---\ntitle: Note\n---\n\nThe pelican sleeps.\n');
  return { ...here, note, cache: path.join(here.home, '.cache', 'rye', 'search') };
}

async function hits(here: Workspace, query: string, env = {}): Promise<readonly string[]> {
  const { results } = await here.json(['search', 'knowledge', query], { env });
  return (results as { id: string }[]).map(({ id }) => id);
}

function databases(cache: string): readonly string[] {
  return existsSync(cache) ? readdirSync(cache).filter((name) => name.endsWith('.db')) : [];
}

function documents(file: string): number {
  const database = new Database(file);
  const { total } = database.prepare('SELECT count(*) AS total FROM documents').get() as {
    total: number;
  };
  database.close();
  return total;
}

test('a search in a clone keeps its index in the cache of the user, and follows changed files', async () => {
  const here = await clone();
  expect(await hits(here, 'pelican')).toEqual(['note']);
  expect(existsSync(path.join(here.project, '.ai', 'state'))).toBe(false);
  const [name = ''] = databases(here.cache);
  const file = path.join(here.cache, name);
  expect(documents(file)).toBeGreaterThan(0);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(statSync(here.cache).mode & 0o777).toBe(0o700);

  writeFileSync(here.note, readFileSync(here.note, 'utf8').replace('pelican', 'heron'));
  expect(await hits(here, 'heron')).toEqual(['note']);
  expect(await hits(here, 'pelican')).toEqual([]);
  unlinkSync(here.note);
  expect(await hits(here, 'heron')).toEqual([]);
  expect(databases(here.cache)).toEqual([name]);
  expect(existsSync(path.join(here.project, '.ai', 'state'))).toBe(false);
});

test('a moved clone has another index; the folder of XDG_CACHE_HOME is used; a project with state has its own', async () => {
  const here = await clone();
  const caches = path.join(here.home, 'caches');
  const env = { XDG_CACHE_HOME: caches };
  expect(await hits(here, 'pelican', env)).toEqual(['note']);
  renameSync(here.project, `${here.project}-2`);
  symlinkSync(`${here.project}-2`, here.project);
  expect(await hits(here, 'pelican', env)).toEqual(['note']);
  expect(databases(path.join(caches, 'rye', 'search'))).toHaveLength(2);
  expect(databases(here.cache)).toEqual([]);
  mkdirSync(path.join(here.project, '.ai', 'state'));
  expect(await hits(here, 'pelican')).toEqual(['note']);
  expect(databases(here.cache)).toEqual([]);
  expect(existsSync(path.join(here.project, '.ai', 'state', 'index.db'))).toBe(true);
});

test('an index that no search has used for 30 days is removed, a newer one stays', async () => {
  const here = await clone();
  mkdirSync(here.cache, { recursive: true, mode: 0o700 });
  const past = new Date(Date.now() - MONTH_MS);
  for (const name of ['old.db', 'old.db-wal', 'new.db']) {
    writeFileSync(path.join(here.cache, name), '');
    if (name.startsWith('old')) utimesSync(path.join(here.cache, name), past, past);
  }
  await hits(here, 'pelican');
  const left = readdirSync(here.cache);
  expect(left.filter((name) => name.startsWith('old'))).toEqual([]);
  expect(left).toContain('new.db');
});

test.each([
  ['others may write into the folder', (cache: string) => chmodSync(cache, 0o777)],
  [
    'the folder is a link',
    (cache: string) => {
      renameSync(cache, `${cache}-2`);
      symlinkSync(`${cache}-2`, cache);
    },
  ],
  [
    'the file is a link',
    (cache: string, file: string) => {
      renameSync(file, `${file}-2`);
      symlinkSync(`${file}-2`, file);
    },
  ],
  ['others may read the file', (_cache: string, file: string) => chmodSync(file, 0o644)],
  [
    'a folder is in place of the file',
    (_cache: string, file: string) => {
      unlinkSync(file);
      mkdirSync(file);
    },
  ],
])('the index is in memory if %s', async (_name, spoil) => {
  const here = await clone();
  await hits(here, 'pelican');
  const [name = ''] = databases(here.cache);
  const file = path.join(here.cache, name);
  spoil(here.cache, file);
  const before = statSync(file).mtimeMs;
  writeFileSync(here.note, '---\ntitle: Note\n---\n\nThe heron sleeps.\n');
  expect(await hits(here, 'heron')).toEqual(['note']);
  expect(await hits(here, 'pelican')).toEqual([]);
  expect(statSync(file).mtimeMs).toBe(before);
});

test('what a forged or damaged index tells is not printed', async () => {
  const here = await clone();
  await hits(here, 'pelican');
  const [name = ''] = databases(here.cache);
  const file = path.join(here.cache, name);
  const secret = path.join(here.home, 'secret.md');
  writeFileSync(secret, 'The pelican has a password.\n');
  const database = new Database(file);
  const { changes } = database
    .prepare(`UPDATE documents SET key = ?, id = 'secret' WHERE id = 'note'`)
    .run(secret);
  database.close();
  expect(changes).toBe(1);
  const { stdout } = await here.rye(['search', 'knowledge', 'pelican']);
  expect(stdout).not.toContain('password');
  expect(await hits(here, 'pelican')).toEqual(['note']);

  writeFileSync(file, 'no database');
  expect(await hits(here, 'pelican')).toEqual(['note']);
  // removed, so that the next search makes another one
  expect(await hits(here, 'pelican')).toEqual(['note']);
  expect(documents(file)).toBeGreaterThan(0);
});
