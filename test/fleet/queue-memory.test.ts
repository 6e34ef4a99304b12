import { systemClock } from '../../src/kernel/app/system.ts';
import { describeFleetQueue } from '../../testing/conformance/fleet-queue.ts';
import { MemoryQueue } from './memory-queue.ts';

describeFleetQueue('in memory', async () => {
  const queue = new MemoryQueue(systemClock);
  return {
    queue,
    transaction: async (work) => await queue.transaction(work),
    elsewhere: async (options, run) => {
      const worker = await queue.work(options, run);
      return { worker, kill: async () => queue.kill(worker) };
    },
    corrupt: async (legId, row) => queue.corrupt(legId, row),
  };
});
