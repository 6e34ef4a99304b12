import {
  readFileSync,
  statSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, test } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

/** A project with the exports of two threads that the index knows, in folders that stay as they are. */
async function indexed(): Promise<{ readonly here: Workspace; readonly exports: string[] }> {
  const here = await workspace();
  const folder = path.join(here.project, '.ai/knowledge/agent/threads/hello');
  for (const id of ['one', 'two']) {
    expect((await here.rye(['run', 'hello', '--thread-id', id])).code).toBe(0);
  }
  // a folder that changed long ago is not listed again
  const long = new Date('2026-01-01T00:00:00Z');
  for (const settled of [folder, path.dirname(folder)]) utimesSync(settled, long, long);
  expect(await hits(here, 'greeting')).toEqual(['one', 'two']);
  return { here, exports: ['one', 'two'].map((id) => path.join(folder, `${id}.md`)) };
}

async function hits(here: Workspace, query: string): Promise<readonly string[]> {
  const { results } = await here.json(['search', 'knowledge', query]);
  return (results as { thread_id: string }[]).map(({ thread_id: id }) => id).toSorted();
}

test('an export that was edited in place is found by its new words, and not by its old ones', async () => {
  const { here, exports } = await indexed();
  const [file = ''] = exports;
  const before = statSync(path.dirname(file)).mtimeMs;
  writeFileSync(file, readFileSync(file, 'utf8').replaceAll('greeting', 'pelican'));
  expect(statSync(path.dirname(file)).mtimeMs).toBe(before);
  expect(await hits(here, 'pelican')).toEqual(['one']);
  expect(await hits(here, 'greeting')).toEqual(['two']);
});

test('an export that was emptied or removed is not found, also in a folder with its old time', async () => {
  const { here, exports } = await indexed();
  const [emptied = '', removed = ''] = exports;
  const folder = path.dirname(emptied);
  const { atime, mtime } = statSync(folder);
  truncateSync(emptied);
  unlinkSync(removed);
  utimesSync(folder, atime, mtime);
  expect(await hits(here, 'greeting')).toEqual([]);
});

test('an index of the version before is filled again by the next search', async () => {
  const { here } = await indexed();
  const database = new Database(path.join(here.project, '.ai/state/index.db'));
  expect(database.pragma('user_version', { simple: true })).toBe(6);
  database.pragma('user_version = 3');
  database.close();
  expect(await hits(here, 'greeting')).toEqual(['one', 'two']);
});

test('a search for another type leaves the exports as they are, and the next one for knowledge reads them', async () => {
  const { here, exports } = await indexed();
  const [file = ''] = exports;
  writeFileSync(file, readFileSync(file, 'utf8').replaceAll('greeting', 'pelican'));
  const counted = (): unknown => {
    const database = new Database(path.join(here.project, '.ai/state/index.db'));
    const row = database.prepare('SELECT size, mtime_ms FROM documents WHERE key = ?').get(file);
    database.close();
    return row;
  };
  const before = counted();
  expect(before).toMatchObject({ size: expect.any(Number) });
  const { results } = await here.json(['search', 'directive', 'greeting']);
  expect(results).toMatchObject([{ type: 'directive', id: 'hello' }]);
  expect(counted()).toEqual(before);
  expect(await hits(here, 'pelican')).toEqual(['one']);
  expect(counted()).not.toEqual(before);
});
