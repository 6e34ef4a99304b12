import type { DeliveryFacts, WaitedChild } from '../core/delivery.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import { type Message, type StopReason, textOf } from '../core/message.ts';
import { beginsRun } from './runs.ts';
import { isKnown } from './tree.ts';

/** The `custom_type` of entries that carry a delivery. */
export const DELIVERY_ENTRY = 'delivery';

/** A cut or filtered answer is no answer: it covers nothing. */
export function isCommitted(reason: StopReason): boolean {
  return reason !== 'aborted' && reason !== 'content_filtered';
}

/** True for the events that the loop writes before it sends a request. */
export function isRequest({ event_type: type }: LogEvent | UnknownEvent): boolean {
  return type === 'turn_started' || type === 'request_started';
}

/** Returns what a log proves about the deliveries of its thread, in one pass: see {@link DeliveryFacts}. */
export function deliveryFacts(events: Iterable<LogEvent | UnknownEvent>): DeliveryFacts {
  const fold = new FactsFold();
  for (const event of events) fold.take(event);
  return fold;
}

class FactsFold implements DeliveryFacts {
  readonly entries = new Set<string>();
  readonly requested = new Set<string>();
  readonly answers = new Map<string, string>();
  readonly waitedFor: WaitedChild[] = [];
  finished: DeliveryFacts['finished'];
  #uncovered: string[] = [];
  #hasFailedRun = false;
  /** Children whose end is in the log, while no result names them. */
  #ended: readonly WaitedChild[] = [];

  take(event: LogEvent | UnknownEvent): void {
    if (isKnown(event, 'message')) this.#message(event.payload.message, event.id ?? '');
    else if (isKnown(event, 'custom_message')) this.#injected(event);
    else if (isRequest(event)) for (const entry of this.#uncovered) this.requested.add(entry);
    else if (isKnown(event, 'child_thread_finished')) {
      const { child_thread_id: threadId, child_run: run = 1 } = event.payload;
      this.#ended = [...this.#ended, { threadId, run }];
    } else if (isKnown(event, 'delivery')) {
      this.#hasFailedRun ||= event.payload['decision'] === 'run_failed';
    } else if (isKnown(event, 'thread_finished')) {
      const isDone = event.payload.status === 'completed' && !this.#hasFailedRun;
      this.finished = isDone ? 'completed' : 'other';
    } else if (beginsRun(event)) this.finished = undefined;
  }

  #injected({ id, payload }: LogEvent & { readonly event_type: 'custom_message' }): void {
    if (payload.custom_type !== DELIVERY_ENTRY || id === undefined) return;
    this.entries.add(id);
    this.#uncovered.push(id);
  }

  #message(message: Message, id: string): void {
    if (message.role === 'assistant' && isCommitted(message.stop_reason)) {
      for (const entry of this.#uncovered) this.answers.set(entry, id);
      this.#uncovered = [];
    }
    if (message.role !== 'tool_result' || this.#ended.length === 0) return;
    const isNamed = ({ threadId }: WaitedChild): boolean => names(message, threadId);
    this.waitedFor.push(...this.#ended.filter(isNamed));
    this.#ended = this.#ended.filter((child) => !isNamed(child));
  }
}

/** A result that names the child, and is none that a recovery made up. */
function names(message: Message, childId: string): boolean {
  return (
    message.role === 'tool_result' &&
    message.data?.['recovered'] === undefined &&
    textOf(message.content).includes(childId)
  );
}
