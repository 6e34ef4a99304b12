import { type ErrorInfo, RyeError, toRyeError } from '../../core/errors.ts';
import type { EventDraft, LogEvent, RequestEstimate, UnknownEvent } from '../../core/events.ts';
import type { PlannedModel, ThreadPlan } from '../../core/plan.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import {
  addUsage,
  type Cost,
  type MicroUsd,
  NO_COST,
  NO_USAGE,
  priceMicroUsd,
  toMicroUsd,
  toUsd,
  type Usage,
} from '../../core/usage.ts';
import { foldContext } from '../../log/context.ts';
import { beginsRun } from '../../log/runs.ts';
import { messageBytes } from '../../log/summary-prompt.ts';
import { buildTree, isKnown } from '../../log/tree.ts';
import { likelyTokensOf } from '../../loop/meters.ts';
import type { ProviderTraits } from '../../providers/provider.ts';
import type { LogWriter } from '../../storage/store.ts';
import type { Process, Stored, ThreadFiles } from '../ports.ts';
import { writerOptions } from '../run/start.ts';
import { headerOf, type ThreadDocument } from '../thread-document.ts';
import { rollbackHint, tamperedError, verifyAgainstHead } from '../verified-log.ts';

/** A thread that was taken over from a dead process. */
interface DeadOwner {
  readonly record: ThreadRecord;
  readonly document: ThreadDocument;
  readonly plan: ThreadPlan;
}

/** Returns the stored plan if it is the one whose hash was signed; another one is as good as none. */
export async function usablePlan(
  files: Pick<ThreadFiles, 'readPlan'>,
  document: Parameters<ThreadFiles['readPlan']>[0],
): Promise<ThreadPlan | undefined> {
  try {
    return await files.readPlan(document);
  } catch (error) {
    if (error instanceof RyeError && LOST_PLAN.has(error.code)) return undefined;
    throw error;
  }
}

const LOST_PLAN: ReadonlySet<string> = new Set(['file_not_found', 'thread_tampered']);

/** The log of a thread whose process died. */
export interface DeadLog {
  /** Absent if the log is not what was signed: nothing is added to it, and `failure` tells why. */
  readonly writer?: LogWriter;
  readonly failure?: ErrorInfo;
  readonly events: readonly (LogEvent | UnknownEvent)[];
  /** Bytes that no signature covered, for the recovery report. */
  readonly unverified?: { readonly unverified_bytes: number };
}

/** Opens the log of a dead thread for its end. What no signature covers is moved out of it first. */
export async function openDeadLog(env: Stored & Process, dead: DeadOwner): Promise<DeadLog> {
  const { record, document } = dead;
  const { logs } = env.store;
  const threadId = record.thread_id;
  const options = writerOptions(env, dead);
  const { verifier } = env;
  try {
    const expected = document.transcript;
    const verdict = await verifyAgainstHead(env.store, threadId, { verifier, expected });
    if (!verdict.ok && !verdict.unsigned)
      return { failure: tamperedError(threadId, verdict).toJSON(), events: [] };
    const rollback = await env.heads.rollbackOf(document);
    if (rollback !== undefined) {
      const hint = rollbackHint(threadId);
      return { failure: { code: 'thread_rolled_back', message: rollback, hint }, events: [] };
    }
    const writer = await logs.reopen(threadId, {
      ...options,
      verifier,
      header: headerOf(document),
    });
    const { events } = await logs.read(threadId, { end: writer.head.bytes });
    const end = verdict.verified_bytes;
    const moved = (await logs.quarantined(threadId)).findLast(({ offset }) => offset === end);
    const unverified = moved && { unverified_bytes: moved.bytes };
    return { writer, events, ...(unverified ? { unverified } : {}) };
  } catch (error) {
    const failure = toRyeError(error, 'storage_failed');
    // it died between its thread.json and its log
    if (failure.code === 'thread_not_found')
      return { writer: await logs.create(headerOf(document), options), events: [] };
    if (failure.code === 'thread_locked') throw failure;
    return { failure: failure.toJSON(), events: [] };
  }
}

type Event = LogEvent | UnknownEvent;

/** Returns the event of the end that a log records, unless another run began since. */
export function recordedEnd(
  events: readonly Event[],
): Extract<LogEvent, { readonly event_type: 'thread_finished' }> | undefined {
  const end = events.findLast((event) => isKnown(event, 'thread_finished'));
  const continues = events.some((event) => beginsRun(event) && event.seq > (end?.seq ?? 0));
  return continues ? undefined : end;
}

/** Returns the cost that a log has booked last: after a turn, at the end of a run, or by an edit since. */
export function bookedCost(events: readonly Event[]): Cost {
  const last = events.findLast(
    (event) => isKnown(event, 'cost') || isKnown(event, 'thread_finished'),
  );
  if (last && isKnown(last, 'cost')) return last.payload.total;
  return last && isKnown(last, 'thread_finished') ? last.payload.cost : NO_COST;
}

/** The usage of a process since its last `cost` event, as far as its log shows it. */
export interface LostUsage {
  /** The turn that it was in. */
  readonly turn: number;
  /** The usage of the calls in the log, as the provider counted it. */
  readonly answered: Used;
  /**
   * The usage of the open calls. Nothing proves what the provider bills for them, so each counts as its upper bound.
   */
  readonly open: Used;
}

interface Used {
  readonly usage: Usage;
  readonly price: MicroUsd;
}

const NOTHING: Used = { usage: NO_USAGE, price: 0 };

/**
 * Returns the usage that a crashed process has to pay for and had not booked; undefined if nothing is missing. A call
 * that was announced and has no end in the log counts with everything that it reserved: its whole answer may have
 * arrived without a byte of it on disk, and a thread that is killed and resumed must reach its limit.
 */
export function lostUsage(
  events: readonly Event[],
  plan: ThreadPlan,
  { embedded }: ProviderTraits,
): LostUsage | undefined {
  if (embedded) return undefined;
  const unbooked = events.slice(events.findLastIndex(isBooked) + 1);
  // answers before the first turn are copies that another thread has paid for
  const first = unbooked.findIndex(isAsked);
  const since = first === -1 ? [] : unbooked.slice(first);
  const ended = since.flatMap((event) => endedCall(event, events, plan));
  const opened = openCalls(since).map((call) =>
    call === 'unknown' ? heardOf(since, events, plan) : reservedFor(call, plan),
  );
  if (ended.length === 0 && opened.length === 0) return undefined;
  return {
    turn: events.findLast((event) => isKnown(event, 'turn_started'))?.payload.turn ?? 0,
    answered: ended.reduce(add, NOTHING),
    open: opened.reduce(add, NOTHING),
  };
}

/** Adds the lost usage to the booked cost. The ledger may know the ended calls already, never the open ones. */
export function withLost(booked: Cost, reported: MicroUsd, lost: LostUsage | undefined): Cost {
  const { usage, price } = lost?.answered ?? NOTHING;
  const open = lost?.open ?? NOTHING;
  const known = Math.max(toMicroUsd(booked.spend) + price, reported);
  return {
    ...booked,
    ...addUsage(addUsage(booked, usage), open.usage),
    spend: toUsd(known + open.price),
  };
}

/** Returns the event that books lost usage, so that no later run charges for it twice. */
export function costOfLost({ turn, answered, open }: LostUsage, total: Cost): EventDraft {
  const usage = addUsage(answered.usage, open.usage);
  const estimated = open.price === 0 ? {} : { estimated_usd: toUsd(open.price) };
  return { event_type: 'cost', payload: { turn, usage, total, ...estimated } };
}

/** Returns the usage of an ended call from its answer or, without an answer, from the record of its failure. */
function endedCall(event: Event, events: readonly Event[], plan: ThreadPlan): readonly Used[] {
  if (isKnown(event, 'message')) {
    const { message } = event.payload;
    return message.role === 'assistant' ? [used(message.usage, modelOf(plan, message))] : [];
  }
  if (isKnown(event, 'error_classified') && event.payload.usage) {
    return [used(event.payload.usage, modelInForce(events, plan))];
  }
  return [];
}

/**
 * The calls without an end. Those for an answer follow one another; one for a summary stays open until it is booked.
 * `unknown` is a call of a log that does not tell what it might cost.
 */
function openCalls(since: readonly Event[]): readonly (RequestEstimate | 'unknown')[] {
  const summaries: RequestEstimate[] = [];
  let open: RequestEstimate | 'unknown' | undefined;
  for (const event of since) {
    if (isKnown(event, 'turn_started')) open = event.payload.request ?? 'unknown';
    else if (isKnown(event, 'request_started')) {
      const { purpose, request } = event.payload;
      if (purpose === 'summary') summaries.push(request);
      else open = request;
    } else if (isKnown(event, 'error_classified')) {
      // logs that announce no second call continue with one
      if (open !== 'unknown') open = undefined;
    } else if (isAnswer(event)) open = undefined;
    else if (open === undefined && isDelta(event) && !knowsRequests(since)) open = 'unknown';
  }
  return open === undefined ? summaries : [...summaries, open];
}

function knowsRequests(since: readonly Event[]): boolean {
  return since.some((event) => isKnown(event, 'turn_started') && event.payload.request);
}

function reservedFor(request: RequestEstimate, plan: ThreadPlan): Used {
  const usage = {
    ...NO_USAGE,
    input_tokens: request.input_tokens,
    output_tokens: request.max_tokens,
  };
  const { price } = used(usage, modelOf(plan, request));
  return { usage, price: Math.max(price, toMicroUsd(request.reserved_usd ?? 0)) };
}

/** Everything before such an event is paid for. */
function isBooked(event: Event): boolean {
  return isKnown(event, 'cost') || isKnown(event, 'thread_started') || beginsRun(event);
}

function isAsked(event: Event): boolean {
  return isKnown(event, 'turn_started') || isKnown(event, 'request_started');
}

function isAnswer(event: Event): boolean {
  return isKnown(event, 'message') && event.payload.message.role === 'assistant';
}

function isDelta(event: Event): boolean {
  return deltaBytes(event) > 0;
}

function deltaBytes(event: Event): number {
  if (isKnown(event, 'toolcall_delta')) return Buffer.byteLength(event.payload.json);
  return isKnown(event, 'token_delta') || isKnown(event, 'thinking_delta')
    ? Buffer.byteLength(event.payload.text)
    : 0;
}

/** An estimate, for logs that do not tell what a call might cost: the context that was asked, and what was heard. */
function heardOf(since: readonly Event[], events: readonly Event[], plan: ThreadPlan): Used {
  const { messages, system, tools } = foldContext(buildTree(events));
  const asked = messages.reduce(
    (sum, message) => sum + messageBytes(message),
    Buffer.byteLength(system) + Buffer.byteLength(JSON.stringify(tools)),
  );
  const isBoundary = (event: Event): boolean => isAsked(event) || isAnswer(event);
  const heard = since.slice(since.findLastIndex(isBoundary) + 1);
  const usage = {
    ...NO_USAGE,
    input_tokens: likelyTokensOf(asked),
    output_tokens: likelyTokensOf(heard.reduce((sum, event) => sum + deltaBytes(event), 0)),
  };
  return used(usage, modelInForce(events, plan));
}

function modelInForce(events: readonly Event[], plan: ThreadPlan): PlannedModel {
  const change = events.findLast((event) => isKnown(event, 'model_change'));
  return change ? modelOf(plan, change.payload) : plan.model;
}

function modelOf(
  { model, fallbacks }: ThreadPlan,
  { provider, model: id }: { readonly provider: string; readonly model: string },
): PlannedModel {
  return fallbacks.find((one) => one.provider === provider && one.id === id) ?? model;
}

function used(usage: Usage, { pricing }: PlannedModel): Used {
  return { usage, price: pricing ? priceMicroUsd(usage, pricing) : 0 };
}

function add(left: Used, right: Used): Used {
  return { usage: addUsage(left.usage, right.usage), price: left.price + right.price };
}
