import { assertOutsideTools } from '../../kernel/app/ancestry.ts';
import type {
  FleetQueueLimits,
  FleetQueueState,
  FleetService,
  FleetStatus,
  FleetWorker,
} from '../../kernel/app/api/fleet.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { QueueLimits, QueueState } from '../../kernel/storage/fleet-queue.ts';
import type { FleetThreads } from '../../kernel/storage/fleet-threads.ts';
import { withoutSecrets } from '../../kernel/storage/store-url.ts';
import type { WorkerRow } from '../../kernel/storage/worker-leases.ts';
import { connectFleet, type FleetConnection } from './connection.ts';
import { enrollWorker, initFleet, rootOf, storeOf } from './init.ts';
import { openWorkerLeases } from './postgres/open-postgres.ts';
import { submitThread } from './submit.ts';
import { tryFleet } from './try.ts';
import { LEASE_MS } from './worker.ts';
import { isCertified, plainLabels } from './worker-proof.ts';

/** The fleet of a project's store, for people who make it, use it and look after it. */
export function fleetService(workspace: Workspace): FleetService {
  const using = async <T>(
    work: (connection: FleetConnection, url: string) => Promise<T>,
  ): Promise<T> => {
    const url = await storeOf(workspace);
    const { clock, ids } = workspace;
    const connection = connectFleet({ url, clock, ids });
    try {
      return await work(connection, url);
    } finally {
      await connection.close();
    }
  };
  const asPerson = async <T>(act: () => Promise<T>): Promise<T> => {
    assertOutsideTools(workspace.options.env, 'change keys');
    return await act();
  };
  const change = async (
    name: string,
    changed: (limits: QueueLimits) => QueueLimits,
  ): Promise<FleetQueueState> =>
    await using(async ({ queue }) => {
      const before = (await queue.queues()).find((one) => one.name === name);
      await queue.limit(name, changed(before?.limits ?? NO_LIMITS));
      const after = (await queue.queues()).find((one) => one.name === name);
      if (!after) throw new RyeError('item_not_found', `unknown queue ${name}`);
      return stateOf(after);
    });
  return {
    init: async (options) => await asPerson(async () => await initFleet(workspace, options)),
    root: async () => await rootOf(workspace),
    enroll: async (options) => await asPerson(async () => await enrollWorker(workspace, options)),
    try: async () => await tryFleet(() => workspace.reopened()),
    submit: async (request, options = {}) => await submitThread(workspace, request, options),
    status: async () =>
      await using(async ({ queue, threads }, url): Promise<FleetStatus> => {
        const leases = openWorkerLeases(url);
        try {
          const workers = await shownWorkers(workspace, await leases.list(), threads);
          const queues = (await queue.queues()).map(stateOf);
          const lease_seconds = LEASE_MS / 1000;
          return { database: withoutSecrets(url), lease_seconds, workers, queues };
        } finally {
          leases.close();
        }
      }),
    drain: async (workerId) => {
      const url = await storeOf(workspace);
      const leases = openWorkerLeases(url);
      try {
        if (await leases.askToDrain(workerId)) return;
      } finally {
        leases.close();
      }
      throw new RyeError('item_not_found', `no worker of the fleet has the ID ${workerId}`, {
        hint: 'List them: rye fleet workers',
      });
    },
    limit: async (name, limits) => await change(name, (before) => ({ ...before, ...limits })),
    pause: async (name) => await change(name, ({ rate }) => ({ global: 0, partition: null, rate })),
    unpause: async (name) => await change(name, (before) => ({ ...before, global: null })),
  };
}

const NO_LIMITS: QueueLimits = { global: null, partition: null, rate: null };

async function shownWorkers(
  { store, keyring, clock }: Workspace,
  rows: readonly WorkerRow[],
  threads: FleetThreads,
): Promise<readonly FleetWorker[]> {
  const known = {
    certificates: await threads.certificates(),
    keys: keyring,
    now: clock.now(),
  };
  const active = await store.registry.list({ active: true });
  return rows.map((row) => ({
    worker_id: row.worker_id,
    labels: plainLabels(row),
    certified: isCertified(row, known),
    version: row.version,
    draining: row.is_draining,
    lease_seconds_left: row.seconds_left,
    threads: active.filter(({ worker }) => worker === row.worker_id).map(({ thread_id: id }) => id),
  }));
}

function stateOf({ oldestAt, limits, ...counts }: QueueState): FleetQueueState {
  const shown: FleetQueueLimits = limits;
  return { ...counts, oldest_at: oldestAt, paused: limits.global === 0, limits: shown };
}
