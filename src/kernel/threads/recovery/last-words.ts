import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { isRecord, parseJson } from '../../core/json.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import type { Usage } from '../../core/usage.ts';
import { isPiece } from '../../log/checkpoint.ts';
import { isKnown } from '../../log/tree.ts';
import type { LogStore } from '../../storage/store.ts';
import type { Process, Sources, Stored } from '../ports.ts';
import { beatMs, type Death } from '../run/liveness.ts';
import { unbookedPart } from './lost-usage.ts';

type Event = LogEvent | UnknownEvent;

/** A thread that lost its owner, and what is known about its death. */
export interface Silence {
  readonly found: ThreadRecord;
  readonly death: Death;
  /** The time that a witness noted, in milliseconds since 1970. */
  readonly diedMs: number | undefined;
}

/** Signs of life that an owner may miss without being stopped. */
const MISSED_BEATS = 2;
const LONGEST_BEAT_SECONDS = 60;

/**
 * Returns the latest time at which a dead owner may have had a connection, in milliseconds since 1970. The system closes the
 * connections of a process when it dies: a witness notes the time. Without one, a process that is gone was alive for a few
 * missed signs of life at most. Infinity if nothing closed them for certain: the process may only be stopped, or is on another
 * machine, or the machine lost power.
 */
export function timeOfDeath(
  { store, clock, bootedMs }: Pick<Stored, 'store'> & Pick<Process, 'clock' | 'bootedMs'>,
  { found, death, diedMs }: Silence,
  events: readonly Event[],
): number {
  const owner = store.owners.ofRecord(found);
  // the worker of a fleet is dead once its lease is, wherever it is
  const isGone = owner !== undefined && store.owners.state(owner) === 'gone';
  if (death !== 'gone' || !isGone) return Number.POSITIVE_INFINITY;
  if (diedMs !== undefined) return diedMs;
  const sign = Math.max(msOf(lastOwn(events)?.timestamp), msOf(found.heartbeat_at));
  if (bootedMs() > sign) return Number.POSITIVE_INFINITY;
  return Math.min(clock.now(), sign + MISSED_BEATS * beatMs(LONGEST_BEAT_SECONDS));
}

/** Returns the last event that the dead owner wrote: recovery writes after what it takes off. */
function lastOwn(events: readonly Event[]): Event | undefined {
  const from = events.length - unbookedPart(events).length;
  const taken = events.findIndex(
    (event, index) => index >= from && event.event_type === 'log_quarantined',
  );
  return taken === -1 ? events.at(-1) : events[taken - 1];
}

function msOf(timestamp: string | null | undefined): number {
  return Date.parse(timestamp ?? '') || 0;
}

/** Returns the rates of the providers of a plan. What can't be read has no bound. */
export async function ratesOf(
  { models }: Pick<Sources, 'models'>,
  { model, fallbacks }: Pick<ThreadPlan, 'model' | 'fallbacks'>,
): Promise<(provider: string) => number> {
  const rates = new Map<string, number>();
  for (const { provider } of [model, ...fallbacks]) {
    const rate = models.outputRate({ provider });
    rates.set(provider, await rate.catch(() => Number.POSITIVE_INFINITY));
  }
  return (provider) => rates.get(provider) ?? Number.POSITIVE_INFINITY;
}

/** Maximum time for the question to a provider: without an answer, the bound counts. */
const SETTLE_MS = 3000;

/** Asks the provider of the last answer what it counted, if the log has its id; the answer may be one that ended. */
export async function settledAnswer(
  { models, clock }: Pick<Sources, 'models'> & Pick<Process, 'clock'>,
  plan: ThreadPlan,
  events: readonly Event[],
): Promise<ReadonlyMap<string, Usage>> {
  const unbooked = unbookedPart(events);
  const started = unbooked.findLast((event) => isKnown(event, 'answer_started'));
  const { response_id: id } = started?.payload ?? {};
  const request = unbooked
    .map((event) =>
      isKnown(event, 'turn_started') ||
      (isKnown(event, 'request_started') && event.payload.purpose === 'retry')
        ? event
        : undefined,
    )
    .findLast((event) => event !== undefined)?.payload.request;
  const model = [plan.model, ...plan.fallbacks].find(
    (one) => one.provider === request?.provider && one.id === request.model,
  );
  if (id === undefined || !model) return new Map();
  const over = new AbortController();
  try {
    const asked = models.open(model, plan).settle?.(id, over.signal);
    const usage = await Promise.race([asked, clock.sleep(SETTLE_MS, over.signal)]);
    return new Map(usage ? [[id, usage]] : []);
  } catch {
    return new Map(); // no key, no connection, or the provider has no record yet
  } finally {
    over.abort();
  }
}

/** Unsigned bytes that are read. A crash leaves a second of an answer. */
const MAX_UNSIGNED_BYTES = 16 * 1024 * 1024;

/**
 * Returns the events of a log with the pieces of an answer that no signature covered, where recovery took them off. They
 * only bound what a provider may have written: nothing else in them counts.
 */
export async function heardLog(
  logs: Pick<LogStore, 'bytes'>,
  threadId: string,
  events: readonly Event[],
): Promise<readonly Event[]> {
  const heard: Event[] = [];
  const from = events.length - unbookedPart(events).length;
  for (const [index, event] of events.entries()) {
    const isTaken = index >= from && isKnown(event, 'log_quarantined');
    if (isTaken && event.payload.bytes <= MAX_UNSIGNED_BYTES) {
      heard.push(...(await piecesIn(logs, threadId, event.payload.file)));
    }
    heard.push(event);
  }
  return heard;
}

async function piecesIn(
  logs: Pick<LogStore, 'bytes'>,
  threadId: string,
  file: string,
): Promise<readonly LogEvent[]> {
  const chunks: Buffer[] = [];
  // a store may reuse a chunk
  for await (const chunk of logs.bytes(threadId, { file })) chunks.push(Buffer.from(chunk));
  const lines = Buffer.concat(chunks).toString('utf8').split('\n');
  return lines.flatMap((line) => pieceIn(parseJson(line)));
}

function pieceIn(value: unknown): readonly LogEvent[] {
  if (!isRecord(value) || !isRecord(value['payload'])) return [];
  const { event_type: type, timestamp, payload } = value;
  if (typeof timestamp !== 'string' || typeof type !== 'string') return [];
  const text = payload[type === 'toolcall_delta' ? 'json' : 'text'];
  const event = value as unknown as LogEvent;
  return isPiece(event) && typeof text === 'string' ? [event] : [];
}
