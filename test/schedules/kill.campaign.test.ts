import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import process from 'node:process';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { bundle } from '../helpers/bundle.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { loopLab } from './loop-lab.ts';

// the build may take most of the time of a test on a busy machine
beforeAll(async () => {
  await cliPackage();
}, 300_000);

const CHILD = await bundle(path.resolve(import.meta.dirname, 'loop-child.ts'), undefined, {
  opensProjects: true,
});

/** Deaths of the loop: after this call of the registry; then the number of effects of the firing. */
const POINTS = [
  // the thread has an ID and nothing else: it never runs
  ['register', 1, 0],
  // it is queued: the next process that looks starts it
  ['assign', 1, 1],
  // it is taken by a process that is gone
  ['takeLaunch', 1, 0],
  // it runs, and nothing is recorded
  ['assign', 2, 1],
] as const;

it.each(POINTS)(
  'a loop killed after call %s %d fires no time twice',
  async (point, times, effects) => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    await here.add({ missed: 'all', run: { directiveId: 'team/mark' } });
    const program = path.join(await cliPackage(), 'bin', 'rye.js');
    const args = [here.project, here.home, program, '2027-03-01T03:00:00Z', point, String(times)];
    const dying = spawn(process.execPath, [CHILD, ...args], {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    onTestFinished(() => {
      dying.kill('SIGKILL');
    });
    const [, signal] = (await once(dying, 'exit')) as [number | null, string | null];
    expect(signal).toBe('SIGKILL');
    const id = 'schedule/nightly/20270301T030000Z';
    expect(await here.threads()).toEqual([id]);

    here.clock.jump('2027-03-01T03:30:00Z');
    const loop = await here.serve();
    expect(loop.events).toEqual([{ event: 'serving', schedules: 1 }]);
    expect(await here.desk.schedules.list()).toMatchObject([{ last: { thread_id: id } }]);
    const ended = async (threadId: string): Promise<void> =>
      await here.until(`the end of ${threadId}`, async () => {
        // a recovery would start it too
        if (effects === 0) await here.rye.recovery.recover();
        const record = await here.store.registry.get(threadId);
        return record?.status === 'completed' || record?.status === 'error';
      });
    // the next time waits for the thread, and has it started if it is queued
    await here.clock.reach('2027-03-01T04:00:00Z');
    await ended(id);
    await here.clock.reach('2027-03-01T04:00:05Z');
    const next = 'schedule/nightly/20270301T040000Z';
    await ended(next);
    await loop.stop();
    expect(await here.threads()).toEqual([id, next]);
    expect(here.marks()).toBe(effects + 1);
  },
);
