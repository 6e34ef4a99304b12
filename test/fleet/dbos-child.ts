// A worker of the fleet in another process: the runs of its legs are up to the process that started it.
import process from 'node:process';
import { DbosQueue } from '../../src/features/fleet/dbos/queue.ts';
import { systemClock } from '../../src/kernel/app/system.ts';
import type { Worker, WorkOptions } from '../../src/kernel/storage/fleet-queue.ts';

export type ToChild =
  | { readonly type: 'work'; readonly url: string; readonly options: WorkOptions }
  | { readonly type: 'ended'; readonly legId: string; readonly error: string | null }
  | { readonly type: 'drain'; readonly graceMs: number };

const waiting = new Map<string, (error: string | null) => void>();
let worker: Worker | undefined;

async function work(url: string, options: WorkOptions): Promise<void> {
  const queue = new DbosQueue({ url, clock: systemClock });
  worker = await queue.work(options, async (leg, signal) => {
    signal.addEventListener('abort', () => {
      process.send?.({ type: 'stop', legId: leg.legId, reason: String(signal.reason) });
    });
    const error = await new Promise<string | null>((resolve) => {
      waiting.set(leg.legId, resolve);
      process.send?.({ type: 'run', leg });
    });
    if (error !== null) throw new Error(error);
  });
  process.send?.({ type: 'ready' });
}

async function handle(message: ToChild): Promise<void> {
  if (message.type === 'work') await work(message.url, message.options);
  else if (message.type === 'ended') waiting.get(message.legId)?.(message.error);
  else {
    await worker?.drain(message.graceMs);
    process.disconnect();
  }
}

process.on('message', (message) => {
  void handle(message as ToChild);
});
process.on('disconnect', () => process.exit());
