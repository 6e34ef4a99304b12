import type { Conversation, QueuedMessage } from './conversation.ts';

interface Queued {
  /** Absent until the thread has started. */
  readonly delivery?: QueuedMessage;
  readonly text: string;
}

/** The messages that wait for the thread of a conversation, in their order. */
export class MessageQueue {
  readonly #conversation: Conversation;
  #items: readonly Queued[] = [];
  /** Messages that the thread got before it was known that they wait. */
  readonly #early = new Set<string>();

  constructor(conversation: Conversation) {
    this.#conversation = conversation;
  }

  /** Takes the messages that wait in the thread already. */
  fill(waiting: readonly QueuedMessage[]): void {
    this.#items = waiting.map((delivery) => ({ delivery, text: delivery.text }));
  }

  get texts(): readonly string[] {
    return this.#items.map(({ text }) => text);
  }

  /** Queues a message for the running answer. Throws if the thread refuses it. */
  async add(text: string): Promise<void> {
    if (this.#conversation.threadId === undefined) {
      this.#items = [...this.#items, { text }];
      return;
    }
    const { delivery } = await this.#conversation.steer(text);
    const { delivery_id: id, seq } = delivery;
    if (this.#early.delete(id)) return;
    this.#items = [...this.#items, { delivery: { id, seq, text }, text }];
  }

  /** Sends what was typed before the thread had started. */
  async sendEarly(): Promise<void> {
    const early = this.#items.filter(({ delivery }) => !delivery);
    this.#items = this.#items.filter(({ delivery }) => delivery);
    for (const { text } of early) await this.add(text);
  }

  /** Forgets a message that the thread has got. */
  delivered(id: string): void {
    if (!this.#items.some(({ delivery }) => delivery?.id === id)) this.#early.add(id);
    this.#items = this.#items.filter(({ delivery }) => delivery?.id !== id);
  }

  /** Takes back the messages that the thread has not got. */
  async takeBack(): Promise<readonly string[]> {
    const items = this.#items;
    this.#items = [];
    const back: string[] = [];
    for (const { delivery, text } of items) {
      if (!delivery || (await this.#conversation.withdraw(delivery))) back.push(text);
    }
    return back;
  }

  /** Returns the messages that still wait in the thread, and those that it never got. */
  async left(): Promise<{ readonly waiting: readonly string[]; readonly lost: readonly string[] }> {
    const waiting = await this.#conversation.queued();
    const lost = this.#items.filter(({ delivery }) => !delivery);
    return { waiting: waiting.map(({ text }) => text), lost: lost.map(({ text }) => text) };
  }

  clear(): void {
    this.#items = [];
  }
}
