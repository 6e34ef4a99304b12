// One of several processes on one thread: it owns the thread if no other does, and else writes to it.
import { RyeError } from '../../src/kernel/core/errors.ts';
import { Owner } from './owner.ts';
import { Chance, THREAD, World } from './world.ts';

const [folder = '', seed = '1', lives = '40'] = process.argv.slice(2);
const world = new World(folder);
world.now = Date.now();
const chance = new Chance(Number(seed));
const { deliveries } = world.store;
const pause = async (): Promise<void> => {
  world.now = Date.now();
  await new Promise(setImmediate);
};

async function own(): Promise<void> {
  const owner = new Owner(world, chance, pause, 'dead');
  await owner.start();
  const turns = 2 + chance.below(10);
  let turn = 0;
  await owner.run(() => {
    turn += 1;
    return turn <= turns;
  });
}

async function write(): Promise<void> {
  const isPerson = chance.happens(300);
  await deliveries.enqueue({
    deliveryId: world.id('d'),
    threadId: THREAD,
    class: isPerson ? 'person' : 'background',
    kind: isPerson ? 'steer' : 'message',
    mode: 'auto',
    source: isPerson ? 'person' : 'other',
    text: 'hello',
    requiresArtifact: false,
    now: world.time,
  });
  const manual = (await world.deliveries()).find(({ state }) => state === 'manual');
  if (!manual || !chance.happens(500)) return;
  await deliveries.resolve({
    threadId: THREAD,
    seq: manual.seq,
    as: chance.pick<'delivered' | 'dropped' | 'retry'>(['delivered', 'dropped', 'retry']),
    newId: world.id('r'),
    now: world.time,
  });
}

/** Another process has the thread, or resolved the delivery first. */
function isRace(error: unknown): boolean {
  return (
    error instanceof RyeError &&
    (error.code === 'thread_locked' || error.code === 'illegal_transition')
  );
}

for (let life = 0; life < Number(lives); life += 1) {
  for (const work of [write, own]) {
    try {
      await work();
    } catch (error) {
      if (!isRace(error)) throw error;
    }
    await pause();
  }
}
world.store.close();
