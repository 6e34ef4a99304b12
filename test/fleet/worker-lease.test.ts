import { expect, it } from 'vitest';
import { WorkerLease } from '../../src/features/fleet/worker-lease.ts';

/** A lease of ten seconds whose database answers after `answerMs`. */
function leaseOf(answerMs: number) {
  let now = 1000;
  const answered = async <T>(value: T): Promise<T> => {
    now += answerMs;
    return value;
  };
  const lease = new WorkerLease({
    workerId: 'w',
    leaseMs: 10_000,
    leases: {
      add: async () => await answered(undefined),
      renew: async () => await answered({ is_watching: false, is_draining: false }),
      remove: async () => await answered(undefined),
    },
    clock: { monotonic: () => now, sleep: async () => undefined },
  } as unknown as ConstructorParameters<typeof WorkerLease>[0]);
  return { lease, pass: (ms: number) => (now += ms) };
}

it('a lease counts from before it was asked for, so that no other worker begins earlier', async () => {
  const { lease, pass } = leaseOf(4000);
  await lease.take();
  expect(lease.mayStart).toBe(true);
  pass(6001);
  expect(lease.mayStart).toBe(false);
  await lease.renew();
  expect(lease.mayStart).toBe(true);
  pass(6001);
  expect(lease.mayStart).toBe(false);
});
