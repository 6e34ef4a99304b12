import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { isoTime } from '../../src/kernel/core/clock.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { ownerOf } from '../../src/kernel/storage/owners.ts';
import { beatMs, deathOf, silentOnes } from '../../src/kernel/threads/run/liveness.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

const STALE_SECONDS = 60;
const NOON = Date.parse('2026-02-17T12:00:00Z');
const HOUR = 3_600_000;

/** A thread on another host, known only by its heartbeats; `beats` holds their times. */
async function watched(beats: boolean) {
  const project = mkdtempSync(path.join(tmpdir(), 'rye-owner-'));
  const store = openStore({ projectPath: project, clock: systemClock, ids: systemIds });
  onTestFinished(() => {
    store.close();
    removeFolder(project);
  });
  const wall = { now: NOON };
  const monotonic = { now: 0 };
  const clock = {
    now: () => wall.now,
    monotonic: () => monotonic.now,
    sleep: async (ms: number) => {
      wall.now += ms;
      monotonic.now += ms;
      const isDue = monotonic.now % beatMs(STALE_SECONDS) < ms;
      if (beats && isDue) await store.registry.heartbeat('t', 1, isoTime(wall.now));
    },
  };
  const owner = ownerOf({ pid: 7, process_start: 'then', host: 'elsewhere' });
  const row = { threadId: 't', directive: 'd', parentId: null, model: 'm', owner };
  await store.registry.register({ ...row, now: isoTime(NOON) });
  await store.registry.claim('t', owner, isoTime(NOON));
  const self = store.owners.self();
  const env = { store, clock, owner: self };
  const judge = async () => {
    const record = await store.registry.get('t');
    if (!record) throw new Error('the thread is gone');
    const death = deathOf(env, record, STALE_SECONDS);
    return { death, silent: (await silentOnes(env, [record], STALE_SECONDS)).length === 1 };
  };
  return { store, wall, monotonic, judge, self };
}

test.each([
  ['forward', HOUR],
  ['back', -HOUR],
])('a wall clock that is set %s makes no living owner look dead', async (_how, jump) => {
  const { wall, judge } = await watched(true);
  wall.now += jump;
  expect(await judge()).toEqual({ death: 'stale', silent: false });
});

test.each([
  ['long ago', HOUR],
  ['before the clock was set back', -HOUR],
])(
  'an owner that gave its last sign of life %s is watched, then taken for dead',
  async (_when, jump) => {
    const { wall, monotonic, judge, store, self } = await watched(false);
    wall.now += jump;
    expect(await judge()).toEqual({ death: 'stale', silent: true });
    expect(monotonic.now).toBeGreaterThanOrEqual(2 * beatMs(STALE_SECONDS));
    // what was seen is what is taken over: a sign of life in between keeps the thread with its owner
    const seen = isoTime(NOON);
    await store.registry.heartbeat('t', 1, isoTime(wall.now));
    await expect(store.registry.claim('t', self, isoTime(wall.now), seen)).rejects.toMatchObject({
      code: 'thread_locked',
    });
  },
);

test('a fresh sign of life is believed', async () => {
  const { judge } = await watched(true);
  expect((await judge()).death).toBeUndefined();
});
