import { isoTime } from '../../core/clock.ts';
import {
  type ChildEnd,
  DELIVERY_MODES,
  type Delivery,
  type DeliveryMode,
  INLINE_BYTES,
  type RunEnd,
  type RunTraits,
  type WaitedChild,
} from '../../core/delivery.ts';
import type { EventDraft, LogEvent } from '../../core/events.ts';
import type { Message } from '../../core/message.ts';
import { DELIVERY_ENTRY, isCommitted, isRequest } from '../../log/delivery-facts.ts';
import { isReturnName } from '../../loop/outputs.ts';
import type { InboxPort, PolicyGate, SafePoint } from '../../loop/ports.ts';
import { meet } from '../../policy/capability.ts';
import { type DeclaredTool, runTraits, type SteerRules } from '../../policy/steer.ts';
import type { RunKey, SteerParams, SteerPoint } from '../../storage/store.ts';
import type { Tool } from '../../tools/tool.ts';
import { deliveryBody, renderDelivery } from '../family/delivery-log.ts';
import type { OpenTools, Process, Stored } from '../ports.ts';
import type { ProgramEntries } from './program-entries.ts';
import type { StartedThread } from './start.ts';

/** Fires the `delivery` hooks and returns their drafts. */
export type ObserveDelivery = (context: {
  readonly thread_id: string;
  readonly kind: string;
  readonly delivery_id: string;
}) => Promise<readonly EventDraft[]>;

export interface InboxOptions {
  readonly env: Stored & Process;
  readonly started: StartedThread;
  readonly tools: OpenTools;
  readonly rules: SteerRules;
  readonly observe: ObserveDelivery;
  /** Makes the log durable: nothing may count as done that a lost log would undo. */
  readonly syncLog: () => Promise<void>;
  /** Absent: no program gives entries to the thread. */
  readonly entries?: ProgramEntries;
  /** The number of requests that wait for a person now. */
  readonly pendingApprovals?: () => number;
}

const EXECUTE_ID = 'rye/execute';
const SEARCH_ID = 'tool_search';
/** Delivery modes of people that are accepted mid-run. */
const UNDER_WAY: readonly DeliveryMode[] = ['auto', 'active'];

/**
 * The inbox of a running thread. What it hands out is reserved in the registry first, written to the log by the loop, and
 * accepted once it is there; an answer covers it, and the end of the run decides whether that was a delivery.
 */
export class ThreadInbox implements InboxPort {
  readonly #options: InboxOptions;
  #runId: string;
  /** Entries that were handed out and are not in the log yet, with the delivery that each carries. */
  readonly #reserved = new Map<string, Delivery>();
  /** Entries in the conversation that no answer has covered. */
  #uncovered: string[] = [];
  /** Entries that a request of this run carried or may have carried. */
  readonly #requested = new Set<string>();
  readonly #learned: WaitedChild[] = [];
  readonly #fromHooks: EventDraft[] = [];
  #isAfterBatch = false;
  readonly #openCalls = new Set<string>();
  /** The point that was published last, and for which run. */
  #published: { readonly runId: string; readonly point: SteerPoint } | undefined;
  /** Tools that were offered when a steer came in: until the run ends no other may be used, and none that does more than read. */
  #latch: ReadonlySet<string> | undefined;
  #traits: RunTraits | undefined;
  #isOpen = false;

  constructor(options: InboxOptions) {
    this.#options = options;
    this.#runId = options.env.ids.uuid();
  }

  /** Opens the run of a conversation that begins with these entries, and takes over what waited for the threads before it. */
  async open(entryIds: ReadonlySet<string>, from: readonly string[]): Promise<void> {
    const traits = await this.#currentTraits();
    const point = this.#point(this.#options.env.clock.now(), 'before_turn');
    const carried = await this.#store.openRun({
      ...this.#key,
      traits,
      carried: entryIds,
      from,
      point,
      now: this.#now,
    });
    this.#isOpen = true;
    this.#traits = traits;
    this.#published = { runId: this.#runId, point };
    this.#uncovered = carried.flatMap(({ entry_id: id }) => (id === null ? [] : [id]));
  }

  async isWaiting(): Promise<boolean> {
    return this.#fromHooks.length > 0 || (await this.#store.isAnyWaiting(this.#key.threadId));
  }

  async take(point: SafePoint): Promise<readonly EventDraft[]> {
    await this.#settleLearned();
    await this.#publishPoint(point);
    const entries = await this.rest();
    const ready = [...this.#fromHooks.splice(0), ...entries];
    if (!(await this.#store.isAnyWaiting(this.#key.threadId))) return ready;
    const admit = { key: this.#key, newEntryId: this.#newEntryId, now: this.#now };
    const steers = await this.#store.admitPeople({ ...admit, modes: UNDER_WAY });
    // each follow-up gets its own answer before the next one
    const people =
      steers.length > 0 || point !== 'at_end'
        ? steers
        : await this.#store.admitPeople({ ...admit, modes: DELIVERY_MODES, atMost: 1 });
    // people first: messages of threads wait for the next point
    if (people.length > 0 || point === 'at_end') return [...ready, ...(await this.#drafts(people))];
    const steer = await this.#steer();
    return [...ready, ...(await this.#drafts(steer ? [steer] : []))];
  }

  async isSteered(): Promise<boolean> {
    const { threadId } = this.#key;
    if (!(await this.#store.isAnyWaiting(threadId))) return false;
    return (await this.#store.list(threadId)).some(
      (one) =>
        one.class === 'person' &&
        one.thread_id === threadId &&
        one.state === 'queued' &&
        one.entry_id === null &&
        UNDER_WAY.includes(one.mode),
    );
  }

  /** Returns the entries of programs that came after the last safe point. */
  async rest(): Promise<readonly EventDraft[]> {
    return (await this.#options.entries?.take()) ?? [];
  }

  async context(): Promise<readonly Message[]> {
    return (await this.#options.entries?.context()) ?? [];
  }

  async next(): Promise<readonly EventDraft[]> {
    await this.#settleLearned();
    if (!(await this.#store.isAnyWaiting(this.#key.threadId))) return [];
    await this.#options.syncLog();
    const { env } = this.#options;
    const runId = env.ids.uuid();
    const traits = await this.#currentTraits();
    const delivery = await this.#store.endRun({
      key: this.#key,
      end: 'completed',
      requested: this.#requested,
      next: {
        runId,
        attemptId: env.ids.uuid(),
        entryId: this.#newEntryId(),
        traits,
        onlyIfWaiting: true,
      },
      now: this.#now,
    });
    if (!delivery) return [];
    this.#begin(runId, traits);
    return await this.#drafts([delivery]);
  }

  async fail(): Promise<readonly EventDraft[]> {
    const runId = this.#runId;
    await this.#end('failed');
    return [{ event_type: 'delivery', payload: { decision: 'run_failed', run_id: runId } }];
  }

  /** Ends the thread's last run. */
  async close(end: RunEnd): Promise<void> {
    await this.#settleLearned();
    await this.#end(end);
  }

  /** The thread has waited for this child: its result is a tool result, not a delivery. */
  learned(child: WaitedChild): void {
    this.#learned.push(child);
  }

  /** Refuses, after a steer, every tool that the proof did not cover. */
  readonly gate: PolicyGate = ({ tool }) => {
    const latch = this.#latch;
    if (!latch) return undefined;
    const { reads_only: readsOnly, network } = tool.traits;
    if (latch.has(tool.id) && readsOnly && !network) return undefined;
    return `${tool.id} is not available: this run received a message while it was active, so until it ends it may only use read-only tools that were offered then.`;
  };

  /** Sees what is in the log now. */
  async written(events: readonly LogEvent[]): Promise<void> {
    await this.#options.entries?.written(events);
    const accepted: Delivery[] = [];
    for (const event of events) {
      if (event.event_type === 'custom_message') {
        const delivery = this.#reserved.get(event.id ?? '');
        if (delivery) accepted.push(delivery);
      } else if (event.event_type === 'message') await this.#seen(event);
      else if (isRequest(event)) for (const id of this.#uncovered) this.#requested.add(id);
      else if (event.event_type === 'tool_call_start') this.#openCalls.add(event.payload.call_id);
      else if (event.event_type === 'tool_settled') this.#openCalls.delete(event.payload.call_id);
    }
    if (accepted.length > 0) await this.#accept(accepted);
  }

  async #accept(deliveries: readonly Delivery[]): Promise<void> {
    const entryIds = deliveries.flatMap(({ entry_id: id }) => (id === null ? [] : [id]));
    await this.#store.accept(this.#key, entryIds, this.#now);
    this.#uncovered.push(...entryIds);
    for (const id of entryIds) this.#reserved.delete(id);
    for (const { kind, delivery_id } of deliveries) {
      const context = { thread_id: this.#key.threadId, kind, delivery_id };
      this.#fromHooks.push(...(await this.#options.observe(context)));
    }
  }

  async #seen({ id, payload: { message } }: LogEvent & { event_type: 'message' }): Promise<void> {
    this.#isAfterBatch = message.role === 'tool_result';
    if (message.role !== 'assistant' || !isCommitted(message.stop_reason)) return;
    if (id === undefined || this.#uncovered.length === 0) return;
    const entryIds = this.#uncovered;
    this.#uncovered = [];
    await this.#store.consume(this.#key, { entryIds, answerId: id }, this.#now);
  }

  /** The head of the queue, where the proof allows it to go into this run. */
  async #steer(): Promise<Delivery | undefined> {
    await this.#publish();
    await this.#store.requestSteer(this.#steerParams());
    const admitted = await this.#store.admitSteer(this.#steerParams());
    if (admitted) {
      const ids = (await this.#offered()).flatMap((tool) => tool?.id ?? []);
      // finding more tools would widen what the proof was given for
      this.#latch = new Set(ids.filter((id) => id !== SEARCH_ID));
    }
    return admitted;
  }

  #point(nowMs: number, at: SafePoint): SteerPoint {
    return {
      observed_at: nowMs,
      valid_until: nowMs + this.#options.rules.proofMs,
      answer_boundary_passed: at === 'at_end',
      after_tool_batch: this.#isAfterBatch,
      pending_approvals: this.#options.pendingApprovals?.() ?? 0,
      open_tool_calls: this.#openCalls.size,
    };
  }

  /** People see the point: one with the same facts that stays valid for long enough is not written again. */
  async #publishPoint(at: SafePoint): Promise<void> {
    const { env, rules } = this.#options;
    const point = this.#point(env.clock.now(), at);
    const { runId, point: told } = this.#published ?? {};
    const validMs = told && runId === this.#runId ? told.valid_until - point.observed_at : 0;
    const isValid = validMs > rules.proofMs / 2 && validMs <= rules.proofMs;
    if (isValid && isSamePoint(told, point)) return;
    await this.#store.publishPoint(this.#key, point);
    this.#published = { runId: this.#runId, point };
  }

  #steerParams(): SteerParams {
    const { env, rules } = this.#options;
    const nowMs = env.clock.now();
    return {
      key: this.#key,
      point: this.#point(nowMs, 'before_turn'),
      rules,
      now: isoTime(nowMs),
      nowMs,
      ids: { attempt: () => env.ids.uuid(), entry: this.#newEntryId },
    };
  }

  /** Publishes the traits of the run if they changed. */
  async #publish(): Promise<void> {
    const traits = await this.#currentTraits();
    if (JSON.stringify(traits) === JSON.stringify(this.#traits)) return;
    this.#traits = traits;
    await this.#store.updateRun(this.#key, 'regular', traits);
  }

  async #drafts(deliveries: readonly Delivery[]): Promise<readonly EventDraft[]> {
    const drafts: EventDraft[] = [];
    for (const delivery of deliveries) {
      const { entry_id: marker, kind, source, delivery_id } = delivery;
      if (marker === null) continue;
      this.#reserved.set(marker, delivery);
      const facts = { delivery_id, kind, source };
      drafts.push(
        { event_type: 'delivery', payload: { decision: 'allow', marker, ...facts } },
        {
          event_type: 'custom_message',
          payload: {
            custom_type: DELIVERY_ENTRY,
            content: await this.#textOf(delivery, marker),
            display: true,
            details: facts,
          },
          durable: true,
          id: marker,
        },
      );
    }
    return drafts;
  }

  async #textOf(delivery: Delivery, marker: string): Promise<string> {
    const { env } = this.#options;
    const body = deliveryBody(delivery, await this.#childOf(delivery));
    const isLong = Buffer.byteLength(body) > INLINE_BYTES;
    const artifact = isLong
      ? await env.files.writeArtifact(this.#key.threadId, `delivery-${delivery.seq}`, body)
      : undefined;
    return renderDelivery({ delivery, marker, body, artifact });
  }

  async #childOf({ kind, source, child_run: run = 1 }: Delivery): Promise<ChildEnd | undefined> {
    if (kind !== 'child_result') return undefined;
    const record = await this.#options.env.store.registry.endOf(source, run);
    if (!record) return undefined;
    const { thread_id, directive, status, result, outputs, error, cost } = record;
    return {
      thread_id,
      directive,
      status,
      result: result ?? '',
      outputs,
      error,
      spend: cost.spend,
    };
  }

  /** By now the results of waiting are in the log. */
  async #settleLearned(): Promise<void> {
    if (this.#learned.length === 0 || !this.#isOpen) return;
    const children = this.#learned.splice(0);
    await this.#store.consumeWaited(this.#key, children, this.#now);
  }

  async #end(end: RunEnd): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#latch = undefined;
    const requested = this.#requested;
    await this.#store.endRun({ key: this.#key, end, requested, now: this.#now });
  }

  #begin(runId: string, traits: RunTraits): void {
    this.#runId = runId;
    this.#traits = traits;
    this.#latch = undefined;
  }

  async #currentTraits(): Promise<RunTraits> {
    const { capabilities, hooks } = this.#options.started.plan;
    const startsThreads = capabilities.some(
      (one) => meet(one, 'rye.execute.directive.*').length > 0,
    );
    const declared = (await this.#offered()).map((tool): DeclaredTool => {
      if (!tool) return undefined;
      const { reads_only: readsOnly, network } = tool.traits;
      // what it may execute but directives are tools that are offered themselves
      if (tool.id === EXECUTE_ID && !startsThreads) return { readsOnly: true, network: false };
      return { readsOnly, network };
    });
    return runTraits(declared, hooks, (this.#options.started.plan.asks ?? []).length > 0);
  }

  /** The tools that the model is offered now; undefined for one that can't be told. */
  async #offered(): Promise<readonly (Tool | undefined)[]> {
    const { tools } = this.#options;
    const found: (Tool | undefined)[] = [];
    for (const { name } of tools.definitions().tools) {
      // returning ends the run and is no tool
      if (isReturnName(name)) continue;
      const resolution = await tools.set.resolve(name, {});
      found.push(resolution.kind === 'resolved' ? resolution.call.tool : undefined);
    }
    return found;
  }

  readonly #newEntryId = (): string => this.#options.env.ids.entryId();

  get #store() {
    return this.#options.env.store.deliveries;
  }

  get #key(): RunKey {
    const { threadId, record } = this.#options.started;
    return { threadId, epoch: record.epoch, runId: this.#runId };
  }

  get #now(): string {
    return isoTime(this.#options.env.clock.now());
  }
}

/** True if two points differ in nothing but their time. */
function isSamePoint(one: SteerPoint | undefined, other: SteerPoint): boolean {
  if (!one) return false;
  const { observed_at: at, valid_until: until } = one;
  return JSON.stringify({ ...other, observed_at: at, valid_until: until }) === JSON.stringify(one);
}
