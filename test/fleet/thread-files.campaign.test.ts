import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import path from 'node:path';
import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { threadPorts } from '../../src/kernel/app/thread-env.ts';
import { threadFiles } from '../../src/kernel/app/thread-files.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { ownerOf } from '../../src/kernel/storage/owners.ts';
import { threadParams } from '../../testing/conformance/fixtures.ts';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import type { Workspace as Machine } from '../helpers/workspace.ts';
import { isThere, readingThread, threadFile, trust, twoMachines, useStore } from './machines.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

const ARTIFACT = 'artifacts/toolu_large.txt';

/** Runs a thread with a large tool result on the first of two machines. */
async function ranHere(id: string) {
  const machines = await twoMachines(server);
  const { env, run } = await readingThread(machines.here);
  const ran = await machines.here.rye([...run, '--thread-id', id], { env });
  expect(JSON.parse(ran.stdout)).toMatchObject({ success: true, status: 'completed' });
  return { ...machines, env };
}

function knowledge(machine: Machine, id: string): string {
  return path.join(machine.project, '.ai/knowledge/agent/threads/reader', `${id}.md`);
}

describe('a thread that ran on another machine', () => {
  it('is shown, logged, awaited, verified and exported, with the files that were written there', async () => {
    const { here, there } = await ranHere('far');
    const list = await there.json(['threads', 'list']);
    expect(list['threads']).toMatchObject([{ thread_id: 'far', status: 'completed' }]);
    const shown = await there.json(['threads', 'show', 'far']);
    expect(shown).toMatchObject({ success: true, document: { thread_id: 'far' } });
    expect((await there.rye(['threads', 'logs', 'far'])).stdout).toContain('It is large.');
    expect(await there.json(['threads', 'wait', 'far'])).toMatchObject({ success: true });
    expect((await there.rye(['threads', 'entries', 'far'])).stdout).toContain('It is large.');
    expect((await there.rye(['threads', 'export', 'far'])).stdout).toContain('It is large.');

    const verified = await there.json(['verify', 'thread', 'far']);
    expect(verified).toMatchObject({ success: true });
    const names = (verified['checks'] as { name: string }[]).map(({ name }) => name);
    expect(names).toEqual(
      expect.arrayContaining(['plan', 'capabilities', 'artifacts', 'knowledge']),
    );
    for (const name of ['thread.json', 'plan.json', 'capabilities.md', ARTIFACT]) {
      const copy = readFileSync(threadFile(there, 'far', name));
      expect([name, copy.equals(readFileSync(threadFile(here, 'far', name)))]).toEqual([
        name,
        true,
      ]);
    }
    expect(readFileSync(knowledge(there, 'far'))).toEqual(readFileSync(knowledge(here, 'far')));
  });

  it('is resumed there, and the first machine follows what was written', async () => {
    const { here, there, env } = await ranHere('moves');
    // the tool that the plan names
    cpSync(path.join(here.project, '.ai/tools'), path.join(there.project, '.ai/tools'), {
      recursive: true,
    });
    const resumed = await there.rye(['threads', 'resume', 'moves', '-m', 'And now?', '--json'], {
      env,
    });
    expect(JSON.parse(resumed.stdout)).toMatchObject({ success: true, result: 'It still is.' });
    expect(isThere(there, 'moves', ARTIFACT)).toBe(true);
    // its key is not trusted here yet
    expect(await here.rye(['verify', 'thread', 'moves'])).toMatchObject({ code: 3 });
    await trust(here, there);
    expect(await here.json(['verify', 'thread', 'moves'])).toMatchObject({ success: true });
    const documents = [here, there].map((one) =>
      readFileSync(threadFile(one, 'moves', 'thread.json'), 'utf8'),
    );
    expect(documents[0]).toBe(documents[1]);
  });
});

/** Removes what a machine has pulled, as if it never saw the thread. */
function forget(machine: Machine): void {
  rmSync(path.join(machine.project, '.ai/state/threads'), { recursive: true, force: true });
  rmSync(path.join(machine.project, '.ai/knowledge/agent'), { recursive: true, force: true });
}

/** Changes the row of a file, verifies the thread on a machine that has none of it, and restores the rows. */
async function withRow(
  sql: Client,
  machine: Machine,
  { name, set }: { readonly name: string; readonly set: string },
) {
  await sql.query('CREATE TABLE saved AS SELECT * FROM thread_files');
  const { rowCount } = await sql.query(
    `UPDATE thread_files SET ${set} WHERE thread_id = 'far' AND name = $1`,
    [name],
  );
  expect(rowCount).toBe(1);
  forget(machine);
  const { code, stdout } = await machine.rye(['--json', 'verify', 'thread', 'far']);
  await sql.query('TRUNCATE thread_files');
  await sql.query('INSERT INTO thread_files SELECT * FROM saved');
  await sql.query('DROP TABLE saved');
  return { code, stdout };
}

const FILES = ['thread.json', 'plan.json', 'capabilities.md', 'knowledge.md', ARTIFACT];

/** Sets columns to the values of another file of the thread. */
function fromOther(...columns: readonly string[]): string {
  const other = "CASE thread_files.name WHEN 'plan.json' THEN 'thread.json' ELSE 'plan.json' END";
  return columns
    .map((one) => `${one} = (SELECT o.${one} FROM thread_files o WHERE o.name = ${other})`)
    .join(', ');
}

/** A part of the refusal of a name. */
const FOREIGN = 'which rye does not write';
const LONGER = "bytes || ' '::bytea";
const FORGED = `bytes = ${LONGER}, sha256 = encode(sha256(${LONGER}), 'hex')`;

describe('a row of a file that was changed in the database', () => {
  it('is refused on a machine that has no copy, or has no effect, column by column', async () => {
    const { there, sql } = await ranHere('far');
    const changes: readonly (readonly [name: string, set: string, code: string])[] = [
      ...FILES.map((name) => [name, FORGED, 'thread_tampered'] as const),
      ['thread.json', `bytes = ${LONGER}`, 'thread_tampered'],
      ['thread.json', "sha256 = repeat('0', 64)", 'thread_tampered'],
      [ARTIFACT, "sha256 = repeat('0', 64)", 'thread_tampered'],
      ['thread.json', "signature = ''", 'thread_tampered'],
      [ARTIFACT, fromOther('signature'), 'thread_tampered'],
      ['capabilities.md', fromOther('bytes', 'sha256', 'signature'), 'thread_tampered'],
      ['knowledge.md', "name = '../../../../evil.txt'", FOREIGN],
      [ARTIFACT, "name = 'artifacts/../../../evil.txt'", FOREIGN],
      ['plan.json', "name = 'plan-0123456789abcdef.json'", 'thread_tampered'],
      ['thread.json', "thread_id = 'other'", 'thread_not_found'],
      ['plan.json', "thread_id = 'other'", 'file_not_found'],
      [ARTIFACT, "thread_id = 'other'", 'part_missing'],
    ];
    for (const [name, set, expected] of changes) {
      const { code, stdout } = await withRow(sql, there, { name, set });
      const about = `${name}: ${set}`;
      expect([about, stdout]).toEqual([about, expect.stringContaining(expected)]);
      expect([about, code]).not.toEqual([about, 0]);
    }
    for (const set of ['epoch = 999', "written_at = 'epoch'"]) {
      const { code } = await withRow(sql, there, { name: 'thread.json', set });
      expect([set, code]).toEqual([set, 0]);
    }
    const root = path.join(there.project, '..');
    const names = readdirSync(root, { recursive: true, encoding: 'utf8' });
    expect(names.filter((name) => name.includes('evil'))).toEqual([]);
  });

  it('does not replace the copy of a machine that has one', async () => {
    const { there, sql } = await ranHere('far');
    expect(await there.rye(['verify', 'thread', 'far'])).toMatchObject({ code: 0 });
    const copies = () =>
      FILES.filter((name) => isThere(there, 'far', name)).map((name) =>
        readFileSync(threadFile(there, 'far', name), 'utf8'),
      );
    const before = copies();
    await sql.query(`UPDATE thread_files SET ${FORGED}`);
    expect(await there.rye(['verify', 'thread', 'far'])).toMatchObject({ code: 3 });
    expect(copies()).toEqual(before);
    expect(before).toHaveLength(4);
  });

  it('is refused if it is an older state of the thread', async () => {
    const { here, there, env, sql } = await ranHere('far');
    await sql.query("CREATE TABLE old AS SELECT * FROM thread_files WHERE name = 'thread.json'");
    const again = await here.rye(['threads', 'resume', 'far', '-m', 'And now?', '--json'], { env });
    expect(JSON.parse(again.stdout)).toMatchObject({ result: 'It still is.' });
    expect(await there.rye(['verify', 'thread', 'far'])).toMatchObject({ code: 0 });
    await sql.query(
      `UPDATE thread_files file SET bytes = old.bytes, sha256 = old.sha256, signature = old.signature FROM old
       WHERE file.name = 'thread.json'`,
    );
    const known = readFileSync(threadFile(there, 'far', 'thread.json'), 'utf8');
    for (const isKnown of [true, false]) {
      if (!isKnown) forget(there);
      const { code, stdout } = await there.rye(['--json', 'verify', 'thread', 'far']);
      const refused = [isKnown, 3, expect.stringContaining('thread_rolled_back')];
      expect([isKnown, code, stdout]).toEqual(refused);
      if (!isKnown) continue;
      expect(readFileSync(threadFile(there, 'far', 'thread.json'), 'utf8')).toBe(known);
    }
  });
});

it('a file is not pulled through a link', async () => {
  const { there } = await ranHere('far');
  const outside = mkdtempSync(path.join(there.home, 'outside-'));
  mkdirSync(path.join(there.project, '.ai/state/threads'), { recursive: true });
  symlinkSync(outside, path.join(there.project, '.ai/state/threads/far'));
  const { code, stdout } = await there.rye(['--json', 'verify', 'thread', 'far']);
  expect([code, stdout]).toEqual([4, expect.stringContaining('path_denied')]);
  expect(readdirSync(outside)).toEqual([]);
});

it('a copy is not taken for the thread while the server is away', async () => {
  const { there, url } = await ranHere('far');
  expect(await there.rye(['verify', 'thread', 'far'])).toMatchObject({ code: 0 });
  await useStore(there, url.replace(/:\d+\//, ':1/'));
  for (const words of [
    ['threads', 'show', 'far'],
    ['verify', 'thread', 'far'],
    ['threads', 'export', 'far'],
  ]) {
    const { code, stdout } = await there.rye(['--json', ...words]);
    const error = expect.objectContaining({ code: 'fleet_unavailable' });
    expect([words, code, JSON.parse(stdout)]).toEqual([
      words,
      1,
      expect.objectContaining({ error }),
    ]);
  }
  expect(existsSync(threadFile(there, 'far', 'thread.json'))).toBe(true);
});

it('a process whose thread was taken over writes none of its files any more', async () => {
  const { here, there } = await twoMachines(server);
  const opened = [here, there].map(async ({ project: projectPath, home: userSpacePath }) => {
    const base = new Workspace({ features: FEATURES, projectPath, userSpacePath, env: {} });
    onTestFinished(() => base.close());
    return { base, ports: await threadPorts(base, { allowUnsigned: false }) };
  });
  const [first, second] = await Promise.all(opened);
  if (!first || !second) throw new Error('no machines');
  const now = '2026-11-24T00:00:00.000Z';
  const owner = ownerOf({ pid: 7, process_start: 'then', host: 'another-machine' });
  const { registry } = first.ports.store;
  await registry.register({ ...threadParams('taken'), owner: null });
  const claimed = await registry.claim('taken', owner, now);
  await first.ports.files.writeCapabilities('taken', 'of the first owner');
  await second.ports.store.registry.claim('taken', owner, now, claimed.heartbeat_at);
  await second.ports.files.writeCapabilities('taken', 'of the second owner');

  const locked = { code: 'thread_locked' };
  const { files } = first.ports;
  await expect(files.writeCapabilities('taken', 'late')).rejects.toMatchObject(locked);
  await expect(files.writeArtifact('taken', 'late', 'late')).rejects.toMatchObject(locked);
  // a person who rebuilds a file has claimed nothing
  await threadFiles(first.base).writeArtifact('taken', 'mended', 'by hand');
  const listed = await second.base.store.documents?.list('taken');
  expect(listed?.map(({ name }) => name)).toEqual(['artifacts/mended.txt', 'capabilities.md']);
});
