// A worker of the queue whose legs do nothing: it costs what the engine costs. Started by `fleet-scale.mjs`, which it tells
// its processor time and how long legs waited.
import process from 'node:process';
import { tsImport } from 'tsx/esm/api';

const { DbosQueue } = await tsImport('../../src/features/fleet/dbos/queue.ts', import.meta.url);
const { systemClock } = await tsImport('../../src/kernel/app/system.ts', import.meta.url);

const [, , url, workerId, slots] = process.argv;
const waits = [];
const queue = new DbosQueue({ url, clock: systemClock });
const work = { workerId, queues: ['default'], slots: Number(slots) };
const worker = await queue.work(work, async ({ payload }) => {
  waits.push(Number(process.hrtime.bigint() / 1000n) / 1000 - payload.at);
});
const before = process.cpuUsage();
process.send({ type: 'ready' });
process.on('message', () => {
  const { user, system } = process.cpuUsage(before);
  process.send({ type: 'told', cpuMs: (user + system) / 1000, waits });
  void worker
    .drain(1000)
    .then(async () => await queue.close())
    .finally(() => process.disconnect());
});
