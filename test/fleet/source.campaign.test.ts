import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { type FleetLab, writeDirective, writeTool } from './lab.ts';
import { answeredFleet, linesOf, untilTrue } from './proof.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

const IDENTITY = ['-c', 'user.name=t', '-c', 'user.email=t@example.com'];

interface Repository {
  readonly git: (...args: readonly string[]) => string;
  /** A bare repository, the remote `origin`. */
  readonly origin: string;
  /** The pushed commit. */
  readonly commit: string;
}

/** Makes the project a repository with `a.txt`, whose commit is on a remote. */
function repository({ here }: FleetLab, { isPushed = true } = {}): Repository {
  const origin = path.join(here.home, 'origin.git');
  const git = (...args: readonly string[]): string =>
    execFileSync('git', [...IDENTITY, ...args], { cwd: here.project, encoding: 'utf8' }).trim();
  writeFileSync(path.join(here.project, 'a.txt'), 'one\n');
  writeFileSync(path.join(here.project, '.gitignore'), 'ignored\n');
  git('init', '--quiet', '--initial-branch=main');
  git('add', 'a.txt', '.gitignore');
  git('commit', '--quiet', '-m', 'first');
  git('init', '--quiet', '--bare', '--initial-branch=main', origin);
  git('remote', 'add', 'origin', origin);
  if (isPushed) git('push', '--quiet', 'origin', 'main');
  return { git, origin, commit: git('rev-parse', 'HEAD') };
}

const FILES = ['--sources', 'file'];

/** A directive that adds a line to a file, and then stops until a file exists. */
async function editor({ here }: FleetLab, directive = 'job'): Promise<void> {
  await writeTool(here, 'edit', 'cat a.txt; echo two >> a.txt; echo new > b.txt');
  const permissions = '<execute><tool>edit</tool></execute>';
  await writeDirective(here, directive, { permissions, body: `I am ${directive}.` });
}

const EDIT_THEN_DONE = ({ results }: { readonly results: number }) =>
  results === 0 ? calls(toolUse('edit', {}, 'toolu_1')) : reply('Done.');

it('a thread works on the exact commit, and its changes are a ref of the remote and a patch', async () => {
  const lab = await answeredFleet(server, EDIT_THEN_DONE);
  const { here, env } = lab;
  const { git, origin, commit } = repository(lab);
  // programs that a hostile repository names: none may run
  const ran = path.join(here.home, 'ran');
  for (const name of [
    'pre-receive',
    'update',
    'post-receive',
    'reference-transaction',
    'post-update',
  ]) {
    writeFileSync(path.join(origin, 'hooks', name), `#!/bin/sh\necho ${name} >> ${ran}\n`);
    chmodSync(path.join(origin, 'hooks', name), 0o755);
  }
  await editor(lab);
  await lab.worker({ args: FILES });
  const run = await here.rye(
    ['run', 'job', '--fleet', '--wait', '--json', '--source', 'git', '--thread-id', 'work'],
    { env },
  );
  expect(run.code, run.stdout + run.stderr).toBe(0);
  expect(JSON.parse(run.stdout)).toMatchObject({
    success: true,
    changes: {
      status: 'patch',
      base: commit,
      files: [
        { path: 'a.txt', change: 'modified' },
        { path: 'b.txt', change: 'added' },
      ],
      pushed: { ref: 'refs/rye/work' },
    },
  });
  git('fetch', '--quiet', 'origin', 'refs/rye/work');
  expect(git('show', 'FETCH_HEAD:a.txt')).toBe('one\ntwo');
  expect(git('rev-parse', 'FETCH_HEAD^')).toBe(commit);
  expect(git('ls-remote', 'origin')).toMatch(
    /^\S+\tHEAD\n\S+\trefs\/heads\/main\n\S+\trefs\/rye\/work$/,
  );
  expect(linesOf(ran)).toEqual([]);

  // the patch, after a pull
  const pulled = await here.json(['threads', 'pull', 'work']);
  expect(pulled).toMatchObject({ success: true });
  const patch = path.join(here.project, '.ai/state/threads/work/artifacts/work-changes.patch');
  git('apply', patch);
  expect(readFileSync(path.join(here.project, 'b.txt'), 'utf8')).toBe('new\n');
  expect(await here.json(['verify', 'thread', 'work'])).toMatchObject({ success: true });
});

interface LoggedEvent {
  readonly event_type: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

it('after kill -9 another worker continues with the changed files of all calls that had ended', async () => {
  const lab = await answeredFleet(server, ({ results }) => {
    const turns = ['edit', 'edit', 'hold', 'show'];
    const tool = turns[results];
    return tool === undefined ? reply('Done.') : calls(toolUse(tool, {}, `toolu_${results}`));
  });
  const { here, env } = lab;
  // nothing is pushed: the commit travels with the thread
  const { commit } = repository(lab, { isPushed: false });
  const shown = path.join(here.home, 'shown');
  const pid = path.join(here.home, 'pid');
  await writeTool(here, 'edit', 'echo two >> a.txt; echo hidden > ignored; rm -f gone');
  await writeTool(here, 'hold', `echo half > half.txt; echo "$PPID" > ${pid}; sleep 600`);
  await writeTool(here, 'show', `cat a.txt > ${shown}; ls >> ${shown}`);
  await writeDirective(here, 'job', {
    permissions: '<execute><tool>edit</tool><tool>hold</tool><tool>show</tool></execute>',
  });
  const first = await lab.worker({ label: 'first' });
  const submit = ['run', 'job', '--fleet', '--thread-id', 'long', '--source', 'bundle'];
  expect(await here.json(submit, { env })).toMatchObject({ success: true });
  await untilTrue('the call runs', () => existsSync(pid));
  await lab.worker({ label: 'second' }).then(async (one) => await one.id());
  await first.kill();
  const waited = await here.json(['threads', 'wait', 'long']);
  expect(waited, JSON.stringify(waited)).toMatchObject({
    threads: [
      {
        result: 'Done.',
        changes: { status: 'patch', base: commit, files: [{ path: 'a.txt', change: 'modified' }] },
      },
    ],
  });
  // without the effects of the call that was in flight, and without what git ignores
  expect(linesOf(shown)).toEqual(['one', 'two', 'two', 'a.txt']);
  expect(JSON.stringify(waited)).not.toContain('pushed');
  const { events } = (await here.json(['threads', 'logs', 'long'])) as { events: LoggedEvent[] };
  const saves = events.filter(({ event_type: type }) => type === 'worktree_saved');
  // after each edit, and where the ignored file was left with the machine
  expect(saves.map(({ payload }) => payload['left_out'])).toMatchObject([
    { paths: ['ignored'] },
    { paths: ['ignored'] },
    undefined,
  ]);
  expect(await here.json(['verify', 'thread', 'long'])).toMatchObject({ success: true });
});

const SAVED =
  "SELECT bytes, sha256, signature FROM thread_files WHERE name = 'artifacts/worktree-0.patch'";

it('a parked thread is refused if an older state of its files was put back', async () => {
  let older: unknown[] = [];
  const lab: FleetLab = await answeredFleet(server, async ({ results }) => {
    if (results === 1) older = (await lab.sql.query(SAVED)).rows;
    const tool = ['edit', 'edit', 'edit', 'last'][results];
    return tool === undefined ? reply('Done.') : calls(toolUse(tool, {}, `toolu_${results}`));
  });

  const { here, env } = lab;
  repository(lab, { isPushed: false });
  const marks = path.join(here.home, 'marks');
  await writeTool(here, 'edit', 'echo two >> a.txt');
  await writeTool(here, 'last', `cat a.txt >> ${marks}`);
  await writeDirective(here, 'job', {
    permissions: '<execute><tool>edit</tool><tool ask="true">last</tool></execute>',
  });
  const first = await lab.worker({ label: 'first' });
  const submit = ['run', 'job', '--fleet', '--wait', '--json', '--source', 'bundle', '--thread-id'];
  const park = async (id: string): Promise<string> => {
    const run = await here.rye([...submit, id], { env });
    expect(run.code, run.stdout).toBe(8);
    const { error } = JSON.parse(run.stdout) as {
      readonly error: { readonly details: { readonly approvals: readonly string[] } };
    };
    return error.details.approvals[0] ?? '';
  };
  const approval = await park('good');
  await first.leave();
  // another worker has the files that the first one left
  const second = await lab.worker({ label: 'second' });
  expect(await here.rye(['approve', approval])).toMatchObject({ code: 0 });
  await lab.until("SELECT status = 'completed' FROM threads WHERE thread_id = 'good'");
  expect(linesOf(marks)).toEqual(['one', 'two', 'two', 'two']);

  const other = await park('changed');
  await second.leave();
  const changed = await lab.sql.query(
    `UPDATE thread_files SET bytes = $1, sha256 = $2, signature = $3
     WHERE thread_id = 'changed' AND name = 'artifacts/worktree-0.patch'`,
    Object.values(older[0] as object),
  );
  expect(changed.rowCount).toBe(1);
  expect(await here.rye(['approve', other])).toMatchObject({ code: 0 });
  const third = await lab.worker({ label: 'third' });
  await lab.until("SELECT status = 'error' FROM threads WHERE thread_id = 'changed'");
  const { rows } = await lab.sql.query(
    "SELECT json_or_null(error) ->> 'code' AS code FROM threads WHERE thread_id = 'changed'",
  );
  expect(rows).toEqual([{ code: 'thread_tampered' }]);
  expect(linesOf(marks)).toHaveLength(4);
  expect(third.process.exitCode).toBeNull();
});

it('a child in the background works on the same commit, and its parent gets the patch', async () => {
  const lab = await answeredFleet(server, ({ name, results }) => {
    if (name === 'child')
      return results === 0 ? calls(toolUse('edit', {}, 'toolu_c')) : reply('A child.');
    const turns = [
      toolUse('spoil', {}, 'toolu_1'),
      toolUse('rye_execute', { item_type: 'directive', item_id: 'child', async: true }, 'toolu_2'),
      toolUse('rye_agent_threads_orchestrator', { operation: 'wait_threads' }, 'toolu_3'),
      toolUse('apply', {}, 'toolu_4'),
    ];
    const turn = turns[results];
    return turn ? calls(turn) : reply('Done.');
  });
  const { here, env } = lab;
  const { commit } = repository(lab);
  const seen = path.join(here.home, 'seen');
  await writeTool(here, 'spoil', 'echo mine > mine.txt');
  await writeTool(here, 'edit', `ls > ${seen}; echo two >> a.txt`);
  // the patch of the child is beside the results of the parent, on whichever worker that is
  await writeTool(
    here,
    'apply',
    'git apply "$RYE_PROJECT"/../../threads/parent/artifacts/*-changes.patch',
  );
  await writeDirective(here, 'child', {
    permissions: '<execute><tool>edit</tool></execute>',
    body: 'I am child.',
    spend: '0.10',
  });
  await writeDirective(here, 'parent', {
    permissions:
      '<execute><directive>*</directive></execute><execute><tool>rye/agent/threads/orchestrator</tool><tool>spoil</tool><tool>edit</tool><tool>apply</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
    body: 'I am parent.',
  });
  for (const label of ['first', 'second'])
    await lab.worker({ label, args: [...FILES, '--slots', '1', '--wait-inline', '0s'] });
  const run = await here.rye(
    ['run', 'parent', '--fleet', '--wait', '--json', '--source', 'git', '--thread-id', 'parent'],
    { env },
  );
  expect(run.code, run.stdout).toBe(0);
  const logs = (await here.rye(['threads', 'logs', 'parent'])).stdout;
  expect(linesOf(seen), logs).toEqual(['a.txt']);
  expect(JSON.parse(run.stdout)).toMatchObject({
    changes: {
      files: [
        { path: 'a.txt', change: 'modified' },
        { path: 'mine.txt', change: 'added' },
      ],
      base: commit,
      pushed: { ref: 'refs/rye/parent' },
    },
  });
});

it('refuses a source that is not what the files have, or that no worker can get', async () => {
  const lab = await answeredFleet(server, EDIT_THEN_DONE);
  const { here, env } = lab;
  const submit = async (...args: readonly string[]) =>
    await here.rye(['run', 'job', '--fleet', ...args], { env });
  await editor(lab);
  // no repository: nothing by default, an error if it was asked for
  expect(await submit('--source', 'git')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('is in no git repository'),
  });
  const { git } = repository(lab, { isPushed: false });
  expect(await submit('--source', 'git')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('--source bundle'),
  });
  const announced = await submit();
  expect(announced).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('the thread works in an empty folder'),
  });
  git('push', '--quiet', 'origin', 'main');
  writeFileSync(path.join(here.project, 'a.txt'), 'changed\n');
  writeFileSync(path.join(here.project, 'ignored'), 'ignored\n');
  const dirty = await submit('--source', 'git');
  expect(dirty).toMatchObject({ code: 2, stderr: expect.stringContaining('a.txt') });
  expect(dirty.stderr).toContain('--allow-dirty');
  // the items below .ai travel in the bundle of items
  expect(dirty.stderr).toContain('1 changed file is');
  const allowed = await submit('--source', 'git', '--allow-dirty');
  expect(allowed).toMatchObject({ code: 0, stderr: expect.stringContaining('1 changed file is') });
  expect(await submit('--isolation', 'worktree', '--isolation-result', 'merge')).toMatchObject({
    code: 2,
  });
  for (const url of ['ext::sh -c id', '--upload-pack=id', 'https://x.example/?token=secret0'])
    expect(await submit('--source-url', url, '--allow-dirty')).toMatchObject({ code: 2 });
  // credentials stay here
  const secret = await submit(
    '--source-url',
    'https://me:secret-word@x.invalid/r.git',
    '--allow-dirty',
  );
  expect(secret).toMatchObject({ code: 0, stderr: expect.stringContaining('credentials') });
  const { rows } = await lab.sql.query(
    "SELECT string_agg(convert_from(bytes, 'UTF8'), '') AS all FROM thread_files",
  );
  expect(JSON.stringify(rows)).toContain('https://x.invalid/r.git');
  expect(JSON.stringify(rows)).not.toContain('secret-word');
  // a worker that was not allowed to read repositories of its machine
  await lab.worker();
  const run = await here.rye(
    ['run', 'job', '--fleet', '--wait', '--json', '--source', 'git', '--allow-dirty'],
    { env },
  );
  expect(JSON.parse(run.stdout)).toMatchObject({
    error: { code: 'source_unavailable', hint: expect.stringContaining('--sources') },
  });
});
