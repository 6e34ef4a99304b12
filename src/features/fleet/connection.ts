import type { Clock } from '../../kernel/core/clock.ts';
import { isoTime } from '../../kernel/core/clock.ts';
import type { IdSource } from '../../kernel/core/ids.ts';
import type { FleetQueue } from '../../kernel/storage/fleet-queue.ts';
import type { EnqueueLeg, FleetPlace, FleetThreads } from '../../kernel/storage/fleet-threads.ts';
import type { Fleet } from '../../kernel/threads/fleet-port.ts';
import type { KeyLookup } from '../../kernel/trust/keys.ts';
import { DbosQueue } from './dbos/queue.ts';
import { openPool } from './pool-key.ts';
import { openFleetThreads, type PostgresDatabase } from './postgres/open-postgres.ts';
import { sealSecrets } from './sealed-secrets.ts';

export interface FleetOptions {
  readonly url: string;
  readonly clock: Clock;
  readonly ids: IdSource;
  /** Receives what closes the connections; absent: the caller does. */
  readonly onClose?: (end: () => void) => void;
  /** Connections that outlive this one. Default: its own. */
  readonly database?: PostgresDatabase;
}

/** The fleet of a store: its threads and its queue. */
export interface FleetConnection {
  readonly threads: FleetThreads;
  readonly queue: FleetQueue;
  readonly fleet: Fleet;
  /** Queues the first leg of a thread, which starts not before a time (ISO 8601, UTC). */
  start(threadId: string, place: FleetPlace, notBefore?: string): Promise<void>;
  /** Queues another leg of a thread, which starts not before a time (ISO 8601, UTC). */
  resumeAt(threadId: string, notBefore: string): Promise<void>;
  /** Returns what keeps secret inputs for the workers, sealed to the key that a root of a fleet certified. */
  sealing(keys: KeyLookup): NonNullable<Fleet['seal']>;
  readonly close: () => Promise<void>;
}

/** Connects to a fleet. Nothing is connected before its first use. */
export function connectFleet({
  url,
  clock,
  ids,
  onClose,
  database,
}: FleetOptions): FleetConnection {
  const threads = openFleetThreads(url, database);
  const queue = new DbosQueue({ url, clock, ...(database ? { database } : {}) });
  const close = async (): Promise<void> => {
    threads.close();
    await queue.close();
  };
  onClose?.(() => void close().catch(() => undefined));
  const leg = (threadId: string, number: string, notBefore: string | null): EnqueueLeg => {
    return async (transaction, { queue: name, priority, partition }) =>
      await queue.enqueueLeg(transaction, {
        legId: `${threadId}#${number}`,
        threadId,
        queue: name,
        priority,
        notBefore,
        partition,
        payload: {},
      });
  };
  const start: FleetConnection['start'] = async (threadId, place, notBefore) =>
    await threads.start(
      threadId,
      place,
      isoTime(clock.now()),
      leg(threadId, '1', notBefore ?? null),
    );
  return {
    threads,
    queue,
    start,
    resumeAt: async (threadId, notBefore) => {
      await threads.resume(threadId, leg(threadId, ids.uuid().slice(0, 13), notBefore));
    },
    sealing:
      (keys) =>
      async ({ threadId, place, names, secrets }) => {
        const pool = openPool(await threads.pools(), keys);
        const sealed = sealSecrets(secrets, pool, { threadId, fleet: place, names });
        await threads.putSealed(threadId, sealed);
      },
    fleet: {
      start,
      resume: async (threadId) =>
        await threads.resume(threadId, leg(threadId, ids.uuid().slice(0, 13), null)),
    },
    close,
  };
}
