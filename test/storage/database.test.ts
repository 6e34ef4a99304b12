import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ownerOf, processOf } from '../../src/kernel/storage/owners.ts';
import { LazyDatabase } from '../../src/kernel/storage/sqlite/database.ts';
import { openTestStore, temporaryFolder } from './support.ts';

const V1 = 'CREATE TABLE notes (text TEXT NOT NULL)';
const V2 = "ALTER TABLE notes ADD COLUMN tag TEXT NOT NULL DEFAULT 'none'";

function open(path: string, migrations: readonly string[] = [V1]): LazyDatabase {
  return new LazyDatabase({ path, migrations, synchronous: 'normal' });
}

describe('a lazy database', () => {
  it('is made at the first use, in WAL mode, and keeps its data over migrations', () => {
    const path = join(temporaryFolder(), 'deep', 'notes.db');
    const first = open(path);
    expect(existsSync(path)).toBe(false);
    first.run('INSERT INTO notes VALUES (?)', 'a');
    expect(first.get('PRAGMA journal_mode')).toEqual({ journal_mode: 'wal' });
    first.close();
    const second = open(path, [V1, V2]);
    expect(second.all('SELECT * FROM notes')).toEqual([{ text: 'a', tag: 'none' }]);
    expect(() => open(path).all('SELECT 1')).toThrow(
      expect.objectContaining({
        code: 'storage_failed',
        message: expect.stringContaining('has version 2'),
      }),
    );
    second.close();
  });

  it('leaves a short write-ahead log to the next opening when its process ends, and folds a long one', () => {
    const path = join(temporaryFolder(), 'notes.db');
    const database = open(path);
    database.run('INSERT INTO notes VALUES (?)', 'a');
    database.close({ exiting: true });
    expect(existsSync(`${path}-wal`)).toBe(true);
    const next = open(path);
    expect(next.all('SELECT text FROM notes')).toEqual([{ text: 'a' }]);
    next.close();
    database.run('INSERT INTO notes VALUES (?)', 'b'.repeat(1_200_000));
    database.close({ exiting: true });
    expect(existsSync(`${path}-wal`)).toBe(false);
  });

  it('rolls a failed transaction back', () => {
    const database = open(join(temporaryFolder(), 'notes.db'));
    expect(() =>
      database.immediate(() => {
        database.run('INSERT INTO notes VALUES (?)', 'a');
        throw new Error('no');
      }),
    ).toThrow('no');
    expect(database.all('SELECT * FROM notes')).toEqual([]);
    database.close();
  });

  it('queries an empty database until the file exists, and does not create it', () => {
    const file = join(temporaryFolder(), 'state', 'notes.db');
    const [reader, writer] = [open(file), open(file)];
    expect(reader.all('SELECT * FROM notes')).toEqual([]);
    expect(existsSync(join(file, '..'))).toBe(false);
    writer.run('INSERT INTO notes VALUES (?)', 'a');
    expect(reader.all('SELECT * FROM notes')).toHaveLength(1);
    reader.run('INSERT INTO notes VALUES (?)', 'b');
    expect(writer.all('SELECT * FROM notes')).toHaveLength(2);
    reader.close();
    writer.close();
  });

  it('reports that it cannot write, that a file is damaged, and that the disk is full', () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'file'), '');
    const insert = 'INSERT INTO notes VALUES (1)';
    expect(() => open(join(folder, 'file', 'notes.db')).run(insert)).toThrow(
      expect.objectContaining({ code: 'state_unwritable' }),
    );
    mkdirSync(join(folder, 'folder.db'));
    expect(() => open(join(folder, 'folder.db')).all('SELECT 1')).toThrow(
      expect.objectContaining({ code: 'state_unwritable' }),
    );
    writeFileSync(
      join(folder, 'damaged.db'),
      'this is not a database, and long enough to tell. '.repeat(50),
    );
    expect(() => open(join(folder, 'damaged.db')).all('SELECT 1')).toThrow(
      expect.objectContaining({ code: 'storage_failed', hint: expect.stringContaining('damaged') }),
    );
    const small = open(join(folder, 'small.db'));
    small.run('INSERT INTO notes VALUES (?)', 'a');
    small.all('PRAGMA max_page_count = 4');
    expect(() => small.run('INSERT INTO notes VALUES (?)', 'x'.repeat(100_000))).toThrow(
      expect.objectContaining({
        code: 'storage_failed',
        hint: expect.stringContaining('disk is full'),
      }),
    );
    small.close();
  });
});

describe('opening a store', () => {
  it('touches nothing', () => {
    const store = openTestStore();
    expect(existsSync(join(store.projectPath, '.ai'))).toBe(false);
    store.close();
  });

  it('finds everything again after a restart', async () => {
    const first = openTestStore();
    await first.ledger.register('root', 5);
    first.close();
    expect(await openTestStore(first.projectPath).ledger.remaining('root')).toBe(5);
  });
});

describe('owners that are processes', () => {
  const { owners } = openTestStore();

  it('tells living processes from those that are gone', () => {
    const self = owners.self();
    const columns = processOf(self);
    expect(owners.state(self)).toBe('alive');
    expect(owners.ofProcess(process.pid)).toEqual(self);
    expect(owners.ofRecord(owners.columns(self))).toEqual(self);
    expect(owners.state(ownerOf({ ...columns, process_start: 'other' }))).toBe('gone');
    for (const pid of [2 ** 22 + 1, 0, -1, 1.5]) {
      expect(owners.state(ownerOf({ ...columns, pid }))).toBe('gone');
      expect(owners.ofProcess(pid)).toBeUndefined();
    }
  });

  it('does not judge an owner on another host', () => {
    const elsewhere = ownerOf({ pid: process.pid, process_start: 'then', host: 'else/where 1' });
    expect(owners.state(elsewhere)).toBe('unknown');
    expect(owners.pidOf(elsewhere)).toBeUndefined();
    expect(owners.describe(elsewhere)).toBe(`process ${process.pid} on else/where 1`);
    expect(owners.columns(elsewhere)).toMatchObject({
      process_start: 'then',
      host: 'else/where 1',
    });
  });
});
