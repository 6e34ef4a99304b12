import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, type TestContext } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, type WireServer } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { marksIn, marksModel } from './marks.ts';
import { copyOf, expectLegal, openWorld, startNode } from './world.ts';

let server: WireServer;
let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;

beforeAll(async () => {
  await cliPackage();
  server = await startWireServer(marksModel);
  prepared = await temporaryWorkspace({ fixture: 'faults' });
  await prepared.rye(['sign', 'config', 'agent/coordination']);
});

afterAll(async () => {
  prepared.remove();
  await server.close();
});

interface Fault {
  /** End of the path of the file that can't be written. */
  readonly name: string;
  readonly code: string;
  /** Writes that still succeed. */
  readonly after: number;
}

/** Runs `helper` as thread `t` with a broken disk, in a separate process. */
async function runWith(fault: Fault, { onTestFinished }: TestContext) {
  const world = copyOf(prepared, server.url);
  const rye = openWorld(world);
  onTestFinished(() => {
    rye.close();
    removeFolder(path.dirname(world.project));
  });
  const broken = path.resolve(import.meta.dirname, 'broken-disk.mjs');
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const args = ['--import', broken, program, 'run', 'helper', '--thread-id', 't', '--json'];
  const { done } = startNode(world, args, { RYE_TEST_DISK: JSON.stringify(fault) });
  const { code, stdout, stderr } = await done;
  return { world, rye, code, stderr, result: JSON.parse(stdout) as Record<string, unknown> };
}

describe('a disk that can be written no more', () => {
  it.concurrent.for([
    { name: 'transcript.jsonl', code: 'ENOSPC', after: 6 },
    { name: 'transcript.jsonl', code: 'EIO', after: 9 },
  ])(
    '$code on the log ends the thread, in order and resumable',
    { timeout: 300_000 },
    async (fault: Fault, context) => {
      const { world, rye, code, result } = await runWith(fault, context);
      expect(code).toBe(1);
      expect(result).toMatchObject({
        success: false,
        status: 'error',
        error: { code: 'log_write_failed', message: expect.stringContaining(fault.code) },
      });
      expect((await rye.threads.show('t')).thread).toMatchObject({
        status: 'error',
        error: { code: 'log_write_failed' },
      });
      expect(await rye.threads.list({ active: true })).toEqual([]);
      expect((await rye.threads.verify('t')).checks.filter(({ ok }) => !ok)).toEqual([]);
      const before = marksIn(world.project).get('mark-h') ?? 0;
      expect(await rye.recovery.resume({ threadId: 't' })).toMatchObject({ success: true });
      expect(marksIn(world.project).get('mark-h') ?? 0).toBeLessThanOrEqual(1);
      expect(marksIn(world.project).get('mark-h') ?? 0).toBeGreaterThanOrEqual(before);
    },
  );

  it.concurrent.for([
    { name: 'registry.db', code: 'SQLITE_FULL', after: 4 },
    { name: 'budget_ledger.db', code: 'SQLITE_IOERR_WRITE', after: 2 },
  ])(
    '$code on $name ends the thread; what could not be noted is made up for later',
    { timeout: 300_000 },
    async (fault: Fault, context) => {
      const { world, rye, code, stderr, result } = await runWith(fault, context);
      expect(code).toBe(1);
      expect(result).toMatchObject({ success: false, error: { code: 'storage_failed' } });
      expect(stderr).toContain(fault.name);
      expect((await rye.recovery.recover()).failures).toEqual([]);
      await expectLegal(world, rye);
      const { thread } = await rye.threads.show('t');
      expect(thread.status).toBe('error');
      expect(await rye.recovery.resume({ threadId: 't' })).toMatchObject({ success: true });
      expect(marksIn(world.project).get('mark-h') ?? 0).toBeLessThanOrEqual(1);
      await expectLegal(world, rye);
    },
  );

  it.concurrent.for([
    { name: 'thread.json', code: 'EIO', after: 1 },
    { name: 'thread.json', code: 'ENOSPC', after: 1 },
  ])(
    '$code on the last $name makes a success an error',
    { timeout: 300_000 },
    async (fault: Fault, context) => {
      const { world, rye, code, result } = await runWith(fault, context);
      expect([code, result]).toMatchObject([
        1,
        {
          success: false,
          status: 'error',
          error: { message: expect.stringContaining(fault.code) },
        },
      ]);
      expect((await rye.recovery.recover()).failures).toEqual([]);
      expect((await rye.threads.show('t')).thread.status).toBe('error');
      await expectLegal(world, rye);
      expect(await rye.recovery.resume({ threadId: 't' })).toMatchObject({ success: true });
    },
  );

  it.concurrent('an export that can’t be written is a notice: the thread has completed all the same', async (context) => {
    const fault = { name: 't.md', code: 'EIO', after: 1 };
    const { world, rye, code, stderr, result } = await runWith(fault, context);
    expect(stderr).toContain('exporting the knowledge entry failed');
    expect([code, result['success'], result['status']]).toEqual([0, true, 'completed']);
    expect((await rye.threads.show('t')).thread.status).toBe('completed');
    await expectLegal(world, rye);
  });
});
