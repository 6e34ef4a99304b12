import type { DeliveryReport } from '../../src/kernel/core/delivery.ts';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import type { Admitted } from './world.ts';

/** An entry of a delivery as the log has it. */
interface Injected {
  readonly at: number;
  readonly id: string;
  readonly deliveryId: unknown;
}

/**
 * Checks the invariants of every moment from the log and the tables alone; one sentence for each violation. `completed`
 * are the runs that the tables call so: a process that is killed right after the transaction that ends a run and begins
 * the next cannot record it in its log any more.
 */
export function violations(
  events: readonly LogEvent[],
  deliveries: readonly DeliveryReport[],
  admitted: readonly Admitted[],
  completed: ReadonlySet<string> = new Set(),
): readonly string[] {
  const injected = events.flatMap((event, at): Injected[] => {
    if (event.event_type !== 'custom_message' || event.payload.custom_type !== 'delivery')
      return [];
    const deliveryId = event.payload.details?.['delivery_id'];
    return [{ at, id: event.id ?? '', deliveryId }];
  });
  return [
    ...injectedOnce(injected),
    ...inOrder(injected, deliveries),
    ...oneAttempt(deliveries),
    ...deliveries.flatMap((delivery) => deliveredOnly(delivery, events, completed)),
    ...deliveries.flatMap((delivery) => manualOnceSent(delivery, events)),
    ...steers(injected, { events, deliveries, admitted }),
  ];
}

function injectedOnce(injected: readonly Injected[]): readonly string[] {
  const seen = new Set<unknown>();
  return injected.flatMap(({ id, deliveryId }) => {
    if (seen.has(deliveryId)) return [`entry ${id} is the second of its delivery`];
    seen.add(deliveryId);
    return [];
  });
}

function inOrder(
  injected: readonly Injected[],
  deliveries: readonly DeliveryReport[],
): readonly string[] {
  const byId = new Map<unknown, DeliveryReport>(
    deliveries.map((delivery) => [delivery.delivery_id, delivery]),
  );
  let last = 0;
  return injected.flatMap(({ id, deliveryId }) => {
    const delivery = byId.get(deliveryId);
    if (!delivery) return [`entry ${id} is in the log, its delivery is not in the tables`];
    if (delivery.class !== 'background') return [];
    const isLate = delivery.seq < last;
    last = delivery.seq;
    return isLate ? [`delivery ${delivery.seq} overtook an earlier one`] : [];
  });
}

function oneAttempt(deliveries: readonly DeliveryReport[]): readonly string[] {
  const open = deliveries
    .flatMap(({ tries }) => tries)
    .filter(({ state }) => state === 'accept_pending' || state === 'tracking');
  return open.length > 1 ? [`${open.length} attempts are unresolved`] : [];
}

/** Closed as delivered only if the log has the entry, after it the named answer, and after that an end. */
function deliveredOnly(
  delivery: DeliveryReport,
  events: readonly LogEvent[],
  completed: ReadonlySet<string>,
): readonly string[] {
  if (delivery.close_reason !== 'delivered' && delivery.close_reason !== 'delivered_absorbed')
    return [];
  const entry = events.findIndex(({ id }) => id !== undefined && id === delivery.entry_id);
  const answer = events.findIndex(({ id }) => id !== undefined && id === delivery.answer_id);
  const event = events[answer];
  const isAnswer =
    event?.event_type === 'message' &&
    event.payload.message.role === 'assistant' &&
    event.payload.message.stop_reason !== 'aborted';
  if (entry === -1 || answer < entry || !isAnswer)
    return [`delivery ${delivery.seq} counts as delivered without an answer`];
  const run = delivery.decisions.findLast(({ decision }) => decision === 'deliver')?.run_id ?? '';
  for (const later of events.slice(answer)) {
    if (later.event_type !== 'note' || !later.payload.text.startsWith('run ended')) continue;
    const isProven =
      later.payload.text === 'run ended: completed' ||
      (later.payload.text === 'run ended: lost' && completed.has(run));
    return isProven
      ? []
      : [`delivery ${delivery.seq} counts as delivered by a run that ended otherwise`];
  }
  return [`delivery ${delivery.seq} counts as delivered before its run had ended`];
}

/** Queued after the end of a run only if no request of that run came after its entry. */
function manualOnceSent(
  { seq, state, entry_id: entry }: DeliveryReport,
  events: readonly LogEvent[],
): readonly string[] {
  if (state !== 'queued' || entry === null) return [];
  const at = events.findIndex(({ id }) => id === entry);
  const rest = at === -1 ? [] : events.slice(at);
  const request = rest.findIndex(({ event_type: type }) => type === 'turn_started');
  // the note about an end comes before the tables have it: a later life proves that they do
  const isOver = rest.slice(request).some(({ event_type: type }) => type === 'thread_continued');
  return request !== -1 && isOver ? [`delivery ${seq} was sent and is queued again`] : [];
}

interface Facts {
  readonly events: readonly LogEvent[];
  readonly deliveries: readonly DeliveryReport[];
  readonly admitted: readonly Admitted[];
}

/** A steer follows a whole batch of results, and enters only a run that does no more than read. */
function steers(
  injected: readonly Injected[],
  { events, deliveries, admitted }: Facts,
): readonly string[] {
  const markers = new Set(
    deliveries.flatMap(({ tries }) =>
      tries.flatMap(({ kind, marker }) => (kind === 'turn_steer' ? [marker] : [])),
    ),
  );
  return injected.flatMap(({ at, id }) => {
    if (!markers.has(id)) return [];
    const problems: string[] = [];
    if (!isAfterBatch(events.slice(0, at))) problems.push(`steer ${id} does not follow a batch`);
    const when = admitted.find(({ marker }) => marker === id);
    if (when && when.tools !== 'reads') problems.push(`steer ${id} went into a run that writes`);
    return problems;
  });
}

function isAfterBatch(before: readonly LogEvent[]): boolean {
  const open = new Set<string>();
  let last = '';
  for (const event of before) {
    if (event.event_type !== 'message') continue;
    const { message } = event.payload;
    last = message.role;
    if (message.role === 'assistant') {
      open.clear();
      for (const block of message.content) if (block.type === 'tool_call') open.add(block.call_id);
    }
    if (message.role === 'tool_result') open.delete(message.call_id);
  }
  return last === 'tool_result' && open.size === 0;
}
