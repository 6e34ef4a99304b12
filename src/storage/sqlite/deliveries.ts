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
import type { LazyDatabase } from './database.ts';
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
export class SqliteDeliveries implements Deliveries {
  readonly #database: LazyDatabase;

  constructor(database: LazyDatabase) {
    this.#database = database;
  }

  async enqueue(params: EnqueueParams): Promise<Delivery> {
    return this.#database.immediate(() => enqueue(this.#database, params));
  }

  async list(threadId: string): Promise<readonly DeliveryReport[]> {
    return this.#database.immediate(() => reports(this.#database, threadId));
  }

  async isAnyWaiting(threadId: string): Promise<boolean> {
    const row = this.#database.get(
      `SELECT 1 FROM deliveries WHERE thread_id = ? AND state <> 'closed' AND state = 'queued' AND entry_id IS NULL`,
      threadId,
    );
    return row !== undefined;
  }

  async openRun(params: OpenRunParams): Promise<readonly Delivery[]> {
    return this.#database.immediate(() => openRun(this.#database, params));
  }

  async updateRun(key: RunKey, kind: RunKind, traits: RunTraits): Promise<void> {
    this.#database.immediate(() => updateRun(this.#database, { key, kind, traits }));
  }

  async publishPoint(key: RunKey, point: SteerPoint): Promise<void> {
    this.#database.immediate(() => publishPoint(this.#database, { key, point }));
  }

  async activeTurn(threadId: string): Promise<ActiveTurn | undefined> {
    return activeTurn(this.#database, threadId);
  }

  async admitPeople(params: AdmitParams): Promise<readonly Delivery[]> {
    return this.#database.immediate(() => admitPeople(this.#database, params));
  }

  async requestSteer(params: SteerParams): Promise<SteerDecision | undefined> {
    return this.#database.immediate(() => requestSteer(this.#database, params));
  }

  async admitSteer(params: SteerParams): Promise<Delivery | undefined> {
    return this.#database.immediate(() => admitSteer(this.#database, params));
  }

  async accept(key: RunKey, entryIds: readonly string[], now: string): Promise<void> {
    this.#database.immediate(() => accept(this.#database, { key, entryIds, now }));
  }

  async consume(
    key: RunKey,
    covered: { readonly entryIds: readonly string[]; readonly answerId: string },
    now: string,
  ): Promise<void> {
    this.#database.immediate(() => consume(this.#database, { key, ...covered, now }));
  }

  async consumeWaited(key: RunKey, children: readonly WaitedChild[], now: string): Promise<void> {
    this.#database.immediate(() => consumeWaited(this.#database, { key, children, now }));
  }

  async endRun(params: EndRunParams): Promise<Delivery | undefined> {
    return this.#database.immediate(() => endRun(this.#database, params));
  }

  async recover(params: RecoverParams): Promise<void> {
    this.#database.immediate(() => recover(this.#database, params));
  }

  async resolve(params: ResolveParams): Promise<Delivery> {
    return this.#database.immediate(() => resolve(this.#database, params));
  }
}
