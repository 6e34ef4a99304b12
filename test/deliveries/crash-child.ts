// The owner of a thread that dies by its own hand at one point: no handler runs, nothing is flushed.
import { Owner } from './owner.ts';
import { Chance, THREAD, World } from './world.ts';

const [folder = '', point = '', time = '1', seed = '1'] = process.argv.slice(2);
const world = new World(folder);
const { deliveries } = world.store;
await world.register(THREAD, null);

let reached = 0;
const owner = new Owner(world, new Chance(Number(seed)), async (name) => {
  world.now += 7;
  if (name !== point) return;
  reached += 1;
  if (reached === Number(time)) process.kill(process.pid, 'SIGKILL');
  await Promise.resolve();
});

for (const [index, sender] of ['background', 'person', 'background', 'background'].entries()) {
  await deliveries.enqueue({
    deliveryId: `d${index}`,
    threadId: THREAD,
    class: sender === 'person' ? 'person' : 'background',
    kind: sender === 'person' ? 'steer' : 'message',
    mode: 'auto',
    source: sender,
    text: 'hello',
    requiresArtifact: index === 3,
    now: world.time,
  });
}
await owner.start();
let turn = 0;
await owner.run(() => {
  turn += 1;
  return turn < 40;
});
