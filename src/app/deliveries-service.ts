import { isoTime } from '../core/clock.ts';
import type { Delivery, DeliveryReport } from '../core/delivery.ts';
import type { SentDelivery } from '../threads/family/deliver.ts';
import type { DeliveriesService, SendOptions } from './deliveries-types.ts';
import type { Foundation } from './foundation.ts';

/** Messages to threads; what sends them is loaded when the first is sent. */
export class LazyDeliveries implements DeliveriesService {
  readonly #base: Foundation;

  constructor(base: Foundation) {
    this.#base = base;
  }

  async send(
    threadId: string,
    message: string,
    { mode = 'auto', from }: SendOptions = {},
  ): Promise<SentDelivery> {
    const { sendDelivery } = await import('../threads/family/deliver.ts');
    const { threadEnv } = await import('./thread-env.ts');
    const env = threadEnv(this.#base, { allowUnsigned: false });
    return await sendDelivery(env, { threadId, message, mode, from });
  }

  async list(threadId: string): Promise<readonly DeliveryReport[]> {
    return await this.#base.store.deliveries.list(threadId);
  }

  async resolve(
    threadId: string,
    seq: number,
    as: 'delivered' | 'dropped' | 'retry',
  ): Promise<Delivery> {
    const { clock, ids } = this.#base;
    const { settleDelivery } = await import('../threads/family/deliver.ts');
    const { threadEnv } = await import('./thread-env.ts');
    const newId = ids.uuid();
    const request = { threadId, seq, as, newId, now: isoTime(clock.now()) };
    return await settleDelivery(threadEnv(this.#base, { allowUnsigned: false }), request);
  }
}
