import type { Deliveries } from '../deliveries.ts';
import { bind, one, reading, type SqlDatabase, type Work, writing } from '../sql-work.ts';
import {
  accept,
  activeTurn,
  admitPeople,
  admitSteer,
  publishPoint,
  requestSteer,
} from './delivery-attempts.ts';
import { enqueue, reports, resolve } from './delivery-queue.ts';
import { consume, consumeWaited, endRun, openRun, recover, updateRun } from './delivery-runs.ts';

/** Deliveries in the registry's database, so that a thread's end and what follows from it are one transaction. */
export function sqlDeliveries(database: SqlDatabase): Deliveries {
  return bind<Deliveries>(database, {
    enqueue: writing(enqueue),
    list: writing(reports),
    isAnyWaiting: reading(isAnyWaiting),
    openRun: writing(openRun),
    updateRun: writing((key, kind, traits) => updateRun({ key, kind, traits })),
    publishPoint: writing((key, point) => publishPoint({ key, point })),
    activeTurn: reading(activeTurn),
    admitPeople: writing(admitPeople),
    requestSteer: writing(requestSteer),
    admitSteer: writing(admitSteer),
    accept: writing((key, entryIds, now) => accept({ key, entryIds, now })),
    consume: writing((key, covered, now) => consume({ key, ...covered, now })),
    consumeWaited: writing((key, children, now) => consumeWaited({ key, children, now })),
    endRun: writing(endRun),
    recover: writing(recover),
    resolve: writing(resolve),
  });
}

function* isAnyWaiting(threadId: string): Work<boolean> {
  const row = yield* one(
    `SELECT 1 FROM deliveries WHERE thread_id = ? AND state <> 'closed' AND state = 'queued' AND entry_id IS NULL`,
    threadId,
  );
  return row !== undefined;
}
