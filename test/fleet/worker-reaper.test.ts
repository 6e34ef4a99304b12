import { expect, it } from 'vitest';
import { BEAT_MS, WorkerReaper } from '../../src/features/fleet/worker-reaper.ts';
import type { WorkerRow } from '../../src/kernel/storage/worker-leases.ts';

const SILENT: WorkerRow = {
  worker_id: 'w',
  beat: 7,
  labels: [],
  version: '1',
  is_draining: false,
  is_expired: true,
  seconds_left: -1,
};

/** A reaper whose database answers after so many milliseconds. */
function reaper() {
  let now = 0;
  const removed: string[] = [];
  const watch = new WorkerReaper({
    clock: { monotonic: () => now, sleep: async () => undefined },
    leases: {
      list: async () => {
        now += answerMs;
        return removed.includes('w') ? [] : [SILENT];
      },
      removeSilent: async ({ worker_id: id }) => removed.push(id) > 0,
    },
  });
  let answerMs = 0;
  const look = async (afterMs: number, ms = 0): Promise<readonly string[]> => {
    now += afterMs;
    answerMs = ms;
    return await watch.look();
  };
  return look;
}

it('a silent worker is removed after two beats', async () => {
  const look = reaper();
  expect(await look(0)).toEqual([]);
  expect(await look(BEAT_MS)).toEqual([]);
  expect(await look(BEAT_MS)).toEqual(['w']);
});

it('an answer that took longer than a beat proves no silence: the worker may have spoken since', async () => {
  const look = reaper();
  expect(await look(0)).toEqual([]);
  expect(await look(BEAT_MS)).toEqual([]);
  expect(await look(BEAT_MS, BEAT_MS + 1)).toEqual([]);
  expect(await look(BEAT_MS)).toEqual([]);
  expect(await look(BEAT_MS)).toEqual(['w']);
});
