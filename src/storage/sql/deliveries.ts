import type {
  ActiveTurn,
  Delivery,
  DeliveryReport,
  RunKind,
  RunTraits,
  WaitedChild,
} from '../../core/delivery.ts';
import type { SteerDecision } from '../../policy/steer.ts';
import type {
  AdmitParams,
  Deliveries,
  EndRunParams,
  EnqueueParams,
  OpenRunParams,
  RecoverParams,
  ResolveParams,
  RunKey,
  SteerParams,
  SteerPoint,
} from '../deliveries.ts';
import { one, type SqlDatabase, type Work } from '../sql-work.ts';
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
export class SqlDeliveries implements Deliveries {
  readonly #database: SqlDatabase;

  constructor(database: SqlDatabase) {
    this.#database = database;
  }

  async enqueue(params: EnqueueParams): Promise<Delivery> {
    return await this.#database.write(() => enqueue(params));
  }

  async list(threadId: string): Promise<readonly DeliveryReport[]> {
    return await this.#database.write(() => reports(threadId));
  }

  async isAnyWaiting(threadId: string): Promise<boolean> {
    return await this.#database.read(() => isAnyWaiting(threadId));
  }

  async openRun(params: OpenRunParams): Promise<readonly Delivery[]> {
    return await this.#database.write(() => openRun(params));
  }

  async updateRun(key: RunKey, kind: RunKind, traits: RunTraits): Promise<void> {
    await this.#database.write(() => updateRun({ key, kind, traits }));
  }

  async publishPoint(key: RunKey, point: SteerPoint): Promise<void> {
    await this.#database.write(() => publishPoint({ key, point }));
  }

  async activeTurn(threadId: string): Promise<ActiveTurn | undefined> {
    return await this.#database.read(() => activeTurn(threadId));
  }

  async admitPeople(params: AdmitParams): Promise<readonly Delivery[]> {
    return await this.#database.write(() => admitPeople(params));
  }

  async requestSteer(params: SteerParams): Promise<SteerDecision | undefined> {
    return await this.#database.write(() => requestSteer(params));
  }

  async admitSteer(params: SteerParams): Promise<Delivery | undefined> {
    return await this.#database.write(() => admitSteer(params));
  }

  async accept(key: RunKey, entryIds: readonly string[], now: string): Promise<void> {
    await this.#database.write(() => accept({ key, entryIds, now }));
  }

  async consume(
    key: RunKey,
    covered: { readonly entryIds: readonly string[]; readonly answerId: string },
    now: string,
  ): Promise<void> {
    await this.#database.write(() => consume({ key, ...covered, now }));
  }

  async consumeWaited(key: RunKey, children: readonly WaitedChild[], now: string): Promise<void> {
    await this.#database.write(() => consumeWaited({ key, children, now }));
  }

  async endRun(params: EndRunParams): Promise<Delivery | undefined> {
    return await this.#database.write(() => endRun(params));
  }

  async recover(params: RecoverParams): Promise<void> {
    await this.#database.write(() => recover(params));
  }

  async resolve(params: ResolveParams): Promise<Delivery> {
    return await this.#database.write(() => resolve(params));
  }
}

function* isAnyWaiting(threadId: string): Work<boolean> {
  const row = yield* one(
    `SELECT 1 FROM deliveries WHERE thread_id = ? AND state <> 'closed' AND state = 'queued' AND entry_id IS NULL`,
    threadId,
  );
  return row !== undefined;
}
