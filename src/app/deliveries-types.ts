import type { Delivery, DeliveryMode, DeliveryReport } from '../core/delivery.ts';
import type { SentDelivery } from '../threads/family/deliver.ts';

export type { SentDelivery } from '../threads/family/deliver.ts';

export interface SendOptions {
  readonly mode?: DeliveryMode;
  /** The thread that sends: its words are data to the addressee. Absent: a person sends. */
  readonly from?: string;
}

/** Messages to threads. */
export interface DeliveriesService {
  /** Leaves a message for a thread; it waits while the thread does not run. */
  send(threadId: string, message: string, options?: SendOptions): Promise<SentDelivery>;
  /** What a thread has or was sent, with every try and every decision. */
  list(threadId: string): Promise<readonly DeliveryReport[]>;
  /**
   * Settles a delivery as a person decides, whatever its state, unless it is closed or in a run that is not over. A crashed
   * thread is recovered first. A retry is a new delivery, which is returned.
   */
  resolve(threadId: string, seq: number, as: 'delivered' | 'dropped' | 'retry'): Promise<Delivery>;
}
