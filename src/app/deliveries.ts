import { isoTime } from '../core/clock.ts';
import type { Delivery } from '../core/delivery.ts';
import { type SentDelivery, sendDelivery, settleDelivery } from '../threads/family/deliver.ts';
import type { ThreadEnv } from '../threads/ports.ts';
import type { DeliveriesService, SendOptions } from './api/threads.ts';
import { threadEnv } from './thread-env.ts';
import type { Workspace } from './workspace.ts';

/** Sends messages to threads and settles them. */
export class Deliveries implements Omit<DeliveriesService, 'list'> {
  readonly #workspace: Workspace;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  async send(
    threadId: string,
    message: string,
    { mode = 'auto', from }: SendOptions = {},
  ): Promise<SentDelivery> {
    return await sendDelivery(await this.#env(), { threadId, message, mode, from });
  }

  async resolve(
    threadId: string,
    seq: number,
    as: 'delivered' | 'dropped' | 'retry',
  ): Promise<Delivery> {
    const { clock, ids } = this.#workspace;
    const request = { threadId, seq, as, newId: ids.uuid(), now: isoTime(clock.now()) };
    return await settleDelivery(await this.#env(), request);
  }

  async #env(): Promise<ThreadEnv> {
    return await threadEnv(this.#workspace, { allowUnsigned: false });
  }
}
