import { readFileSync, writeFileSync } from 'node:fs';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { threadEnv } from '../../src/kernel/app/thread-env.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { waitThreads } from '../../src/kernel/threads/family/wait.ts';
import type { ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { crashed, THREADS } from './crash-desk.ts';
import type { UndoDesk } from './undo-desk.ts';

/** Waits as another process does; `change` sets up its ports. */
async function waitFor(
  { lab }: UndoDesk,
  id: string,
  change: (env: ThreadEnv) => Partial<ThreadEnv> = () => ({}),
) {
  const { project: projectPath, home: userSpacePath, env } = lab;
  const base = new Workspace({ features: FEATURES, projectPath, userSpacePath, env });
  onTestFinished(() => base.close());
  const made = await threadEnv(base, { allowUnsigned: false });
  const notices: string[] = [];
  const onNotice = (notice: string): void => void notices.push(notice);
  const request = { threadIds: [id], mode: 'all', signal: AbortSignal.timeout(60_000) } as const;
  const report = await waitThreads({ ...made, onNotice, ...change(made) }, request);
  return { report, notices };
}

it('ends for a crashed thread whose record was changed, with the reason', async () => {
  const { desk, id } = await crashed();
  const record = desk.lab.path(`${THREADS}/${id}/thread.json`);
  writeFileSync(record, readFileSync(record, 'utf8').replace('"work"', '"other"'));
  const { report, notices } = await waitFor(desk, id);
  expect(report).toMatchObject({ success: false, timed_out: false });
  expect(report.threads).toMatchObject([
    {
      thread_id: id,
      status: 'error',
      done: true,
      error: { code: 'thread_crashed', message: expect.stringContaining('could not be recovered') },
    },
  ]);
  expect(notices.filter((notice) => notice.includes('could not be recovered'))).toHaveLength(1);
});

it('tries again after a failure that passes, and tells it once', async () => {
  const { desk, id } = await crashed();
  let failures = 2;
  const { report, notices } = await waitFor(desk, id, ({ store: { ledger } }) => {
    const fence = ledger.fence.bind(ledger);
    const failing: typeof fence = async (...fenced) => {
      failures -= 1;
      if (failures >= 0) throw new Error('the disk is full');
      await fence(...fenced);
    };
    Object.assign(ledger, { fence: failing });
    return {};
  });
  expect(report.threads).toMatchObject([{ done: true, error: { code: 'thread_crashed' } }]);
  expect(notices.filter((notice) => notice.includes('the disk is full'))).toHaveLength(1);
  expect((await desk.lab.rye().threads.show(id)).thread.status).toBe('error');
});

it('ends for a thread of a host that is gone, once it is silent', async () => {
  const { desk, id } = await crashed();
  desk.lab.signed('config/agent/coordination.yaml', 'recovery: { stale_seconds: 1 }\n');
  const database = new Database(desk.lab.path(`${THREADS}/registry.db`));
  const update = "UPDATE threads SET host = 'box-1', process_start = 'x', heartbeat_at = ?";
  database.prepare(update).run('2026-01-01T00:00:00.000Z');
  database.close();
  const { report } = await waitFor(desk, id);
  expect(report.threads).toMatchObject([{ done: true, error: { code: 'thread_crashed' } }]);
});
