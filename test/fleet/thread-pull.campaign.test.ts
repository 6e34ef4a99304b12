import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { readingThread, threadFile, twoMachines } from './machines.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

const LOG = 'transcript.jsonl';

/** A thread that ran on the first of two machines. */
async function ranHere() {
  const machines = await twoMachines(server);
  const { env, run } = await readingThread(machines.here);
  const ran = await machines.here.rye([...run, '--thread-id', 'far'], { env });
  expect(JSON.parse(ran.stdout)).toMatchObject({ success: true });
  const log = async (): Promise<Buffer> => {
    const { rows } = await machines.sql.query<{ data: Buffer }>(
      "SELECT data FROM log_pieces WHERE thread_id = 'far' ORDER BY start",
    );
    return Buffer.concat(rows.map(({ data }) => data));
  };
  return { ...machines, env, log };
}

it('a pulled thread verifies without the store, and its log is the one in the store', async () => {
  const { here, there, env, log } = await ranHere();
  for (const time of ['once', 'twice']) {
    const pulled = await there.json(['threads', 'pull', 'far']);
    const expected = { success: true, thread_id: 'far', status: 'completed' };
    expect([time, pulled]).toEqual([time, expect.objectContaining(expected)]);
    expect(readFileSync(threadFile(there, 'far', LOG))).toEqual(await log());
  }
  const again = await here.rye(['threads', 'resume', 'far', '-m', 'And now?', '--json'], { env });
  expect(JSON.parse(again.stdout)).toMatchObject({ result: 'It still is.' });
  const many = await Promise.all(
    [1, 2, 3].map(async () => await there.rye(['threads', 'pull', 'far'])),
  );
  expect(many.map(({ code, stderr }) => [code, stderr])).toEqual(
    [0, 0, 0].map((code) => [code, '']),
  );
  const bytes = await log();
  expect(readFileSync(threadFile(there, 'far', LOG))).toEqual(bytes);

  rmSync(path.join(there.project, '.ai/config/store.yaml'));
  const verified = await there.json(['verify', 'thread', 'far']);
  expect(verified).toMatchObject({ success: true, ok: true });
  const checks = verified['checks'] as { name: string; detail?: string }[];
  expect(checks.map(({ name }) => name)).toContain('artifacts');
  const detail = checks.find(({ name }) => name === 'transcript')?.detail;
  expect(detail).toContain(`${bytes.length} bytes signed`);
});

it('a log that does not verify is not pulled, and leaves the local log', async () => {
  const { there, sql, log } = await ranHere();
  const change = async (from: string, to: string): Promise<void> => {
    const { rowCount } = await sql.query(
      `UPDATE log_pieces SET data = convert_to(replace(convert_from(data, 'UTF8'), $1, $2), 'UTF8')
       WHERE thread_id = 'far' AND position($1 IN convert_from(data, 'UTF8')) > 0`,
      [from, to],
    );
    expect(rowCount).toBeGreaterThan(0);
  };
  const good = await log();
  for (const isHere of [false, true]) {
    if (isHere) expect(await there.rye(['threads', 'pull', 'far'])).toMatchObject({ code: 0 });
    await change('It is large.', 'It is small.');
    const { code, stdout } = await there.rye(['--json', 'threads', 'pull', 'far']);
    expect([code, stdout]).toEqual([3, expect.stringContaining('transcript_tampered')]);
    expect(existsSync(threadFile(there, 'far', LOG))).toBe(isHere);
    if (isHere) expect(readFileSync(threadFile(there, 'far', LOG))).toEqual(good);
    await change('It is small.', 'It is large.');
  }
  await sql.query("DELETE FROM log_pieces WHERE thread_id = 'far' AND start > 0");
  expect(await there.rye(['threads', 'pull', 'far'])).toMatchObject({ code: 3 });
  const names = readdirSync(path.dirname(threadFile(there, 'far', LOG)));
  expect(names.filter((name) => name.endsWith('.tmp'))).toEqual([]);
});

it('a log of another thread with this ID is not replaced', async () => {
  const { there } = await ranHere();
  expect(await there.rye(['threads', 'pull', 'far'])).toMatchObject({ code: 0 });
  const file = threadFile(there, 'far', LOG);
  const whole = readFileSync(file);
  for (const other of [Buffer.concat([whole, Buffer.from('{}\n')]), Buffer.from('{}\n')]) {
    writeFileSync(file, other);
    const { code, stdout } = await there.rye(['--json', 'threads', 'pull', 'far']);
    expect([code, stdout]).toEqual([2, expect.stringContaining('already_exists')]);
    expect(readFileSync(file)).toEqual(other);
  }
  // a beginning of it is completed
  writeFileSync(file, whole.subarray(0, whole.indexOf(10) + 1));
  expect(await there.rye(['threads', 'pull', 'far'])).toMatchObject({ code: 0 });
  expect(readFileSync(file)).toEqual(whole);
});

it('quarantined parts are pulled under their own names and with their own bytes alone', async () => {
  const { there, sql } = await ranHere();
  const put = async (file: string, bytes: string, offset = 7): Promise<void> => {
    const sha256 = createHash('sha256').update('torn').digest('hex');
    const part = JSON.stringify({ offset, bytes: 4, sha256, lines: 1, file });
    await sql.query('TRUNCATE log_quarantine');
    const values = ['far', file, part, Buffer.from(bytes)];
    await sql.query('INSERT INTO log_quarantine VALUES ($1, $2, $3, $4)', values);
  };
  for (const [file, bytes] of [
    ['../evil.txt', 'torn'],
    ['transcript.unverified-7.jsonl', 'born'],
  ] as const) {
    await put(file, bytes);
    const { code, stdout } = await there.rye(['--json', 'threads', 'pull', 'far']);
    expect([file, code, stdout]).toEqual([file, 3, expect.stringContaining('thread_tampered')]);
    expect(existsSync(threadFile(there, 'far', file))).toBe(false);
  }
  await put('transcript.unverified-7.jsonl', 'torn');
  expect(await there.rye(['threads', 'pull', 'far'])).toMatchObject({ code: 0 });
  const kept = readFileSync(threadFile(there, 'far', 'transcript.unverified-7.jsonl'), 'utf8');
  expect(kept).toBe('torn');
});
