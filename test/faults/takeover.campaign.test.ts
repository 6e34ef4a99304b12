import { existsSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, type WireServer, type WireTurn } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { marksIn, marksModel } from './marks.ts';
import { copyOf, expectLegal, openWorld, type RunningCli, startCli, type World } from './world.ts';

const RUN = ['run', 'work', '--thread-id', 't', '--json'] as const;
const WAIT = { timeout: 60_000, interval: 20 } as const;

let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;

beforeAll(async () => {
  await cliPackage();
  prepared = await temporaryWorkspace({ fixture: 'faults' });
  await prepared.rye(['sign', 'config', 'agent/coordination']);
});

afterAll(() => prepared.remove());

/** A gate that the test opens. */
function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

function worldAt(server: WireServer): World {
  const world = copyOf(prepared, server.url);
  onTestFinished(async () => {
    removeFolder(path.dirname(world.project));
    await server.close();
  });
  return world;
}

const logOf = ({ project }: World, id = 't'): string =>
  path.join(project, '.ai', 'state', 'threads', id, 'transcript.jsonl');

const textOf = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');

/** A model that stops in the middle of its `nth` answer (from 0). */
function halting(nth: number, until: Promise<void>) {
  let asked = 0;
  return (request: Parameters<typeof marksModel>[0]): WireTurn => {
    const turn = marksModel(request);
    asked += 1;
    if (asked !== nth + 1 || typeof turn === 'string' || !('steps' in turn)) return turn;
    const [first, ...rest] = turn.steps;
    const half = first ? [first] : [];
    return { ...turn, steps: [...half, { kind: 'wait', until }, ...rest] };
  };
}

async function stopIfRunning({ child }: RunningCli): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
}

describe('an owner that was stopped', () => {
  it('can write nothing any more when it wakes up after another took its thread over', async () => {
    const held = gate();
    const server = await startWireServer(halting(1, held.opened));
    const world = worldAt(server);
    const running = await startCli(world, RUN);
    onTestFinished(async () => {
      held.open();
      await stopIfRunning(running);
    });
    await expect
      .poll(() => textOf(logOf(world)).match(/token_delta/g)?.length ?? 0, WAIT)
      .toBeGreaterThanOrEqual(2);
    const rye = openWorld(world);
    onTestFinished(() => rye.close());
    await expect(rye.recovery.recover({ threadId: 't' })).rejects.toMatchObject({
      code: 'thread_locked',
    });
    running.child.kill('SIGSTOP');
    await expect
      .poll(async () => (await rye.recovery.recover()).recovered, WAIT)
      .toMatchObject([{ thread_id: 't', status: 'error', action: 'failed' }]);
    await expectLegal(world, rye);
    const folder = path.dirname(logOf(world));
    const before = ['transcript.jsonl', 'thread.json'].map((name) =>
      textOf(path.join(folder, name)),
    );

    held.open();
    running.child.kill('SIGCONT');
    const { code, stdout } = await running.done;
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ success: false, error: { code: 'thread_locked' } });
    expect(
      ['transcript.jsonl', 'thread.json'].map((name) => textOf(path.join(folder, name))),
    ).toEqual(before);
    await expectLegal(world, rye);
    // what it had asked for did not happen either
    expect([...marksIn(world.project).keys()]).toEqual(['mark-a']);
    expect(await rye.recovery.resume({ threadId: 't' })).toMatchObject({ success: true });
    await expectLegal(world, rye);
  });
});

describe('two processes that resume one thread', () => {
  it.each(['crashed', 'completed'] as const)(
    // Requirement: single-resumer
    '%s: one gets it, the other is refused',
    async (how) => {
      const held = gate();
      const server = await startWireServer(async (request) => {
        const text = JSON.stringify(request.body.messages);
        if (!text.includes('continue now')) return marksModel(request);
        // the winner is still at it when the other one comes
        await held.opened;
        return { steps: [{ kind: 'text', chunks: ['Done again.'] }] };
      });
      const world = worldAt(server);
      const first = await startCli(world, RUN);
      if (how === 'crashed') {
        await expect.poll(() => textOf(logOf(world)).includes('"cost"'), WAIT).toBe(true);
        first.child.kill('SIGKILL');
      }
      await first.done;
      const args = ['threads', 'resume', 't', '--message', 'continue now', '--json'];
      const both = await Promise.all([startCli(world, args), startCli(world, args)]);
      const loser = await Promise.race(
        both.map(async ({ done }, index) => ({ index, ...(await done) })),
      );
      expect(JSON.parse(loser.stdout)).toMatchObject({
        success: false,
        error: { code: 'thread_locked', hint: expect.any(String) },
      });
      expect(loser.code).toBe(1);
      held.open();
      const winner = await both[1 - loser.index]?.done;
      expect(JSON.parse(winner?.stdout ?? '')).toMatchObject({
        success: true,
        result: 'Done again.',
      });
      const rye = openWorld(world);
      onTestFinished(() => rye.close());
      expect((await rye.threads.show('t')).chain).toHaveLength(1);
      const document = path.join(path.dirname(logOf(world)), 'thread.json');
      expect(JSON.parse(textOf(document)).runs).toMatchObject([{ run: 1 }, { run: 2 }]);
      await expectLegal(world, rye);
    },
    180_000,
  );
});

describe('an interrupted answer', () => {
  it.each(['SIGINT', 'SIGTERM'] as const)(
    '%s leaves a finalized, cancelled thread',
    async (signal) => {
      const held = gate();
      const server = await startWireServer(halting(1, held.opened));
      const world = worldAt(server);
      const running = await startCli(world, RUN);
      onTestFinished(async () => {
        held.open();
        await stopIfRunning(running);
      });
      await expect
        .poll(() => textOf(logOf(world)).match(/token_delta/g)?.length ?? 0, WAIT)
        .toBeGreaterThanOrEqual(2);
      running.child.kill(signal);
      const { code, stdout } = await running.done;
      expect(code).toBe(130);
      expect(JSON.parse(stdout)).toMatchObject({
        status: 'cancelled',
        error: { code: 'cancelled' },
      });
      const rye = openWorld(world);
      onTestFinished(() => rye.close());
      expect(await rye.threads.list()).toMatchObject([{ thread_id: 't', status: 'cancelled' }]);
      await expectLegal(world, rye);
      held.open();
      expect(await rye.recovery.resume({ threadId: 't' })).toMatchObject({ success: true });
      expect(statSync(logOf(world)).size).toBeGreaterThan(0);
      await expectLegal(world, rye);
    },
    180_000,
  );
});
