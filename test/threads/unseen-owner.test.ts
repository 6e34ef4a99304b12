import { mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { lockSchedules } from '../../src/features/schedules/schedule-locks.ts';
import { lockChat } from '../../src/kernel/app/chat-lock.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { reply } from '../helpers/wire-server.ts';

/** Leaves the lease that a process on a host of another name has held, silent for these seconds. */
function leaveLease(path: string, epoch: number, seconds: number): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, JSON.stringify({ pid: 5, process_start: 'x', host: 'box-1', epoch }));
  const time = systemClock.now() / 1000 - seconds;
  utimesSync(path, time, time);
}

/** A project with a thread that has ended, whose process died on a host of another name before it let the log go. */
async function killedAtItsEnd(): Promise<{
  readonly lab: Lab;
  readonly id: string;
  readonly leave: (seconds: number) => void;
}> {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  await lab.model(() => reply('Done.'));
  lab.signed('directives/work.md', directive('work'));
  const { thread_id: id } = await lab.run('work');
  const path = join(lab.project, '.ai/state/threads', id, 'lease.json');
  return { lab, id, leave: (seconds) => leaveLease(path, 1, seconds) };
}

it('a thread that ended on a host that is gone continues here', async () => {
  const { lab, id, leave } = await killedAtItsEnd();
  leave(0);
  await expect(lab.rye().recovery.repair()).rejects.toMatchObject({ code: 'thread_locked' });
  leave(70);
  expect((await lab.rye().recovery.repair()).failures).toEqual([]);
  leave(70);
  const request = { threadId: id, message: 'Continue.' };
  expect(await lab.rye().recovery.resume(request)).toMatchObject({ status: 'completed' });
  expect(await lab.rye().threads.verify(id)).toMatchObject({ ok: true });
});

it('a thread that ended on a host that is gone can be titled and archived here', async () => {
  const { lab, id, leave } = await killedAtItsEnd();
  leave(70);
  await lab.rye().trees.title(id, 'a title');
  leave(70);
  const { archived, failures } = await lab.rye().recovery.collect({ olderThanMs: 0 });
  expect([archived.length, failures]).toEqual([1, []]);
});

it('the locks of a host that is gone end with its signs of life', async () => {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  const store = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
  onTestFinished(() => store.close());
  const state = join(lab.project, '.ai/state');
  const locks = {
    'schedules/.serve': () => lockSchedules(lab.project, 'serve'),
    'schedules/.edit': () => lockSchedules(lab.project, 'edit'),
    'chats/a': () => lockChat(lab.project, 'a'),
    threads: () => store.maintenance?.holdRepair(),
  };
  for (const [folder, lock] of Object.entries(locks)) {
    const path = join(state, folder, 'lease.json');
    leaveLease(path, 1, 0);
    expect(lock, folder).toThrow(
      expect.objectContaining({ hint: expect.stringContaining('try again a minute later') }),
    );
    leaveLease(path, 1, 70);
    lock()?.release();
  }
});
