import { execFile } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { HeadsFile, type ThreadHead } from '../../src/kernel/threads/heads-fs.ts';
import { bundle } from '../helpers/bundle.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

function headsFile(): { readonly file: HeadsFile; readonly location: string } {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-heads-'));
  onTestFinished(() => removeFolder(folder));
  const location = path.join(folder, 'heads.jsonl');
  return { file: new HeadsFile(location), location };
}

function head(thread_id: string, bytes: number): ThreadHead {
  return {
    thread_id,
    status: 'completed',
    epoch: 1,
    updated_at: '2026-01-01T00:00:00.000Z',
    bytes,
    sha256: 'a'.repeat(64),
    events: 1,
    knowledge_sha256: null,
  };
}

it('the last head of a thread counts, wherever it is in the file', () => {
  const { file } = headsFile();
  expect(file.find('first')).toBeUndefined();
  for (const [id, bytes] of [
    ['first', 1],
    ['second', 2],
    ['first', 3],
    ['third', 4],
  ] as const) {
    file.note(head(id, bytes));
  }
  expect(['first', 'second', 'third', 'fir'].map((id) => file.find(id)?.bytes)).toEqual([
    3,
    2,
    4,
    undefined,
  ]);
});

it('a line that a crash cut is skipped, and the next head begins a new line', () => {
  const { file, location } = headsFile();
  file.note(head('one', 1));
  appendFileSync(location, JSON.stringify(head('one', 2)).slice(0, 60));
  expect(file.find('one')?.bytes).toBe(1);
  file.note(head('two', 3));
  expect(file.find('one')?.bytes).toBe(1);
  expect(file.find('two')?.bytes).toBe(3);
  expect(readFileSync(location, 'utf8').split('\n')).toHaveLength(4);
});

it('a thread that another line merely mentions is unknown', () => {
  const { file, location } = headsFile();
  const mention = { ...head('one', 1), status: '"thread_id":"two"' };
  appendFileSync(location, `${JSON.stringify(mention)}\n`);
  appendFileSync(location, `${JSON.stringify({ note: { ...head('two', 2) } })}\n`);
  expect(file.find('two')).toBeUndefined();
});

it('processes that note at once while files are put aside lose no head', async () => {
  const { file, location } = headsFile();
  const names = ['a', 'b', 'c'];
  const child = await bundle(path.resolve(import.meta.dirname, 'heads-child.ts'));
  await Promise.all(
    names.map(
      async (name) => await promisify(execFile)(process.execPath, [child, location, name, '400']),
    ),
  );
  const known = file.all();
  const noted = names.flatMap((name) => Array.from({ length: 400 }, (_, at) => `${name}-${at}`));
  expect(noted.filter((id) => !known.has(id))).toEqual([]);
  expect(noted.filter((id) => file.find(id) === undefined)).toEqual([]);
  expect(existsSync(`${location}.2`)).toBe(true);
});

it('a full file is put aside in spite of the lock of a process that died', () => {
  const { file, location } = headsFile();
  const long = 's'.repeat(100_000);
  file.note(head('first', 1));
  writeFileSync(`${location}.lock`, '');
  utimesSync(`${location}.lock`, 1, 1);
  for (let at = 0; at < 8; at += 1) file.note({ ...head(`t${at}`, at), sha256: long });
  expect(existsSync(`${location}.1`)).toBe(true);
  expect(file.find('first')?.bytes).toBe(1);
  expect(file.all().size).toBe(9);
});
