import { z } from 'zod';
import type {
  EnrolledWorker,
  FleetMade,
  FleetQueueLimits,
  FleetQueueState,
  FleetRoot,
  FleetStatus,
  FleetWorker,
} from '../../src/kernel/app/api/fleet.ts';
import { closedDocument, membersOf } from './shared.ts';

const worker = z.object(
  membersOf<FleetWorker>()({
    worker_id: z.string(),
    labels: z.array(z.string()),
    certified: z.boolean().describe('True if a root that is trusted here certified its key.'),
    version: z.string(),
    draining: z.boolean(),
    lease_seconds_left: z.number().describe('Negative once the lease has run out.'),
    threads: z.array(z.string()).describe('Threads that it runs.'),
  }),
);

const queue = z.object(
  membersOf<FleetQueueState>()({
    name: z.string(),
    queued: z.int(),
    delayed: z.int(),
    running: z.int(),
    failed: z.int(),
    oldest_at: z.string().nullable().describe('When the oldest queued leg was queued.'),
    paused: z.boolean(),
    limits: z.object(
      membersOf<FleetQueueLimits>()({
        global: z.int().nullable(),
        partition: z.int().nullable(),
        rate: z.object({ legs: z.int(), seconds: z.number() }).nullable(),
      }),
    ),
  }),
);

export const fleetDocuments = {
  'fleet-init': closedDocument('rye fleet init', 'The fleet that was made.', {
    ...membersOf<FleetMade>()({
      database: z.string().describe('URL of the store, without its password.'),
      root_key_id: z.string(),
      config_path: z.string(),
    }),
  }),
  'fleet-root': closedDocument('rye fleet root', 'The public key of the root.', {
    ...membersOf<FleetRoot>()({ key_id: z.string(), pem: z.string() }),
  }),
  'fleet-enroll': closedDocument(
    'rye fleet enroll',
    'A worker that may join. The token is a secret.',
    {
      ...membersOf<EnrolledWorker>()({
        token: z.string(),
        key_id: z.string(),
        label: z.string(),
        not_after: z.string(),
      }),
    },
  ),
  'fleet-status': closedDocument('rye fleet status', 'The workers and the queues.', {
    ...membersOf<FleetStatus>()({
      database: z.string().describe('URL of the store, without its password.'),
      lease_seconds: z.number(),
      workers: z.array(worker),
      queues: z.array(queue),
    }),
  }),
  'fleet-workers': closedDocument('rye fleet workers', 'The workers, by ID.', {
    workers: z.array(worker),
    total: z.int(),
  }),
  'fleet-queues': closedDocument('rye fleet queues', 'The queues, by name.', {
    queues: z.array(queue),
    total: z.int(),
  }),
  'fleet-queue': closedDocument('rye fleet limits|pause', 'The queue as it is now.', { queue }),
  'fleet-drain': closedDocument('rye fleet drain', 'The worker that was asked to leave.', {
    worker_id: z.string(),
  }),
};
