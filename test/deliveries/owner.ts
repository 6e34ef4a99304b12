import type { EventDraft, LogEvent } from '../../src/kernel/core/events.ts';
import type { AssistantMessage, StopReason } from '../../src/kernel/core/message.ts';
import { NO_COST, NO_USAGE } from '../../src/kernel/core/usage.ts';
import { deliveryFacts } from '../../src/kernel/log/delivery-facts.ts';
import type { Deliveries } from '../../src/kernel/storage/deliveries.ts';
import type { OpenTools, ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { ThreadInbox } from '../../src/kernel/threads/run/inbox.ts';
import type { StartedThread } from '../../src/kernel/threads/run/start.ts';
import { type Chance, SimLog, THREAD, type World } from './world.ts';

/** Called at a point between two effects: others act, or the process dies (a throw). */
export type Point = (name: string) => Promise<void>;

type End = 'completed' | 'failed' | 'interrupted';

/** A process that owns the thread: the real inbox, and a loop that acts at random. */
export class Owner {
  readonly #world: World;
  readonly #chance: Chance;
  readonly #point: Point;
  readonly #log: SimLog;
  /** True to take the thread from a living owner too. */
  readonly #takes: 'any' | 'dead';
  #inbox: ThreadInbox | undefined;
  #epoch = 0;
  #calls = 0;

  constructor(world: World, chance: Chance, point: Point, takes: 'any' | 'dead' = 'any') {
    this.#takes = takes;
    this.#world = world;
    this.#chance = chance;
    this.#point = point;
    this.#log = new SimLog(world.folder);
  }

  get epoch(): number {
    return this.#epoch;
  }

  get inbox(): ThreadInbox | undefined {
    return this.#inbox;
  }

  /** Takes the thread over from its previous owner, finalizes that owner's run, and opens a new one. */
  async start(): Promise<void> {
    const { registry, deliveries, owners } = this.#world.store;
    const held = this.#takes === 'any' ? await registry.get(THREAD) : undefined;
    const record = await registry.claim(
      THREAD,
      owners.self(),
      this.#world.time,
      held?.heartbeat_at,
    );
    this.#epoch = record.epoch;
    await this.#point('claimed');
    this.#log.repair();
    const facts = deliveryFacts(this.#log.read());
    const isOver = facts.finished;
    await deliveries.recover({
      threadId: THREAD,
      epoch: this.#epoch,
      facts,
      now: this.#world.time,
    });
    await this.#point('recovered');
    if (isOver === undefined && this.#log.read().length > 0) await this.#note('run ended: lost');
    if (this.#log.read().length > 0) {
      await this.#write([
        { event_type: 'thread_continued', payload: { previous_thread_id: THREAD } },
      ]);
    }
    const started = {
      threadId: THREAD,
      record,
      plan: { hooks: [], capabilities: [] },
      document: {},
    } as unknown as StartedThread;
    const inbox = new ThreadInbox({
      env: this.#env(),
      started,
      tools: this.#tools(),
      rules: { enabled: true, minIntervalMs: 0, proofMs: 1_000_000 },
      observe: () => Promise.resolve([]),
      syncLog: async () => undefined,
    });
    const entries = [...deliveryFacts(this.#log.read()).entries];
    // now and then the thread continues from before the last entry
    const carried = this.#chance.happens(50) ? entries.slice(0, -1) : entries;
    await inbox.open(new Set(carried), []);
    await this.#point('opened');
    this.#inbox = inbox;
  }

  /** Turns until the thread is done, or has no more steps. */
  async run(steps: () => boolean): Promise<void> {
    while (steps()) {
      const end = await this.#turn();
      if (end === undefined) continue;
      await this.#finish(end);
      return;
    }
    await this.#finish('interrupted');
  }

  async #turn(): Promise<End | undefined> {
    const inbox = this.#required();
    await this.#write(await inbox.take('before_turn'));
    const what = this.#chance.below(100);
    if (what < 45) return await this.#toolTurn();
    if (what < 60) {
      await this.#answer('aborted');
      return undefined;
    }
    if (what < 63) return 'failed';
    if (what < 66) return 'interrupted';
    await this.#answer('end');
    const taken = await inbox.take('at_end');
    if (taken.length > 0) {
      await this.#write(taken);
      return undefined;
    }
    const next = await inbox.next();
    if (next.length === 0) return 'completed';
    await this.#write(next);
    return undefined;
  }

  async #toolTurn(): Promise<undefined> {
    const ids = Array.from({ length: 1 + this.#chance.below(3) }, () => this.#callId());
    await this.#answer('tool_calls', ids);
    for (const [index, id] of ids.entries()) {
      await this.#write([
        {
          event_type: 'tool_call_start',
          payload: { call_id: id, tool: 't', name: 't', input: {}, turn: 1 },
        },
      ]);
      // the loop never asks in the middle of a batch; if it did, no steer may be admitted
      if (index > 0 && this.#chance.happens(300)) await this.#probe();
      await this.#write([
        {
          event_type: 'tool_settled',
          payload: { call_id: id, tool: 't', outcome: 'ok', duration_ms: 0, output_bytes: 0 },
        },
        {
          event_type: 'message',
          payload: {
            message: { role: 'tool_result', call_id: id, name: 't', content: [], outcome: 'ok' },
          },
        },
      ]);
    }
    return undefined;
  }

  /** Asks out of turn, and for machines only: people would be let in. */
  async #probe(): Promise<void> {
    const waiting = await this.#world.deliveries();
    const isPersonWaiting = waiting.some(
      ({ class: sender, state, entry_id }) =>
        sender === 'person' && state === 'queued' && entry_id === null,
    );
    if (!isPersonWaiting) await this.#write(await this.#required().take('before_turn'));
  }

  async #finish(end: End): Promise<void> {
    await this.#note(`run ended: ${end}`);
    await this.#write([
      {
        event_type: 'thread_finished',
        payload: {
          status: end === 'completed' ? 'completed' : 'error',
          result: '',
          cost: NO_COST,
        },
      },
    ]);
    await this.#required().close(end);
    await this.#point('closed');
    await this.#world.store.registry.finish(THREAD, {
      status: 'suspended',
      now: this.#world.time,
      cost: NO_COST,
      result: '',
      epoch: this.#epoch,
    });
  }

  async #answer(reason: StopReason, calls: readonly string[] = []): Promise<void> {
    const message: AssistantMessage = {
      role: 'assistant',
      content: calls.map((id) => ({ type: 'tool_call', call_id: id, name: 't', input: {} })),
      provider: 'sim',
      model: 'm',
      stop_reason: reason,
      usage: NO_USAGE,
    };
    await this.#write([{ event_type: 'turn_started', payload: { turn: 1 } }]);
    await this.#write([{ event_type: 'message', payload: { message } }]);
  }

  async #note(text: string): Promise<void> {
    await this.#write([{ event_type: 'note', payload: { text } }]);
  }

  /** Writes as a running thread does: to the log first, then the inbox sees what is there. */
  async #write(drafts: readonly EventDraft[]): Promise<void> {
    if (drafts.length === 0) return;
    await this.#point('append');
    const events: readonly LogEvent[] = this.#log.append(drafts);
    await this.#point('appended');
    await this.#inbox?.written(events);
  }

  #callId(): string {
    this.#calls += 1;
    return `call-${this.#epoch}-${this.#calls}`;
  }

  #required(): ThreadInbox {
    if (!this.#inbox) throw new Error('the run is not open');
    return this.#inbox;
  }

  #env(): ThreadEnv {
    const { store } = this.#world;
    return {
      store: { ...store, deliveries: this.#watched(store.deliveries) },
      ids: { entryId: () => this.#world.id('e'), uuid: () => this.#world.id('u') },
      clock: { now: () => this.#world.now },
      files: { writeArtifact: () => Promise.resolve('artifact') },
    } as unknown as ThreadEnv;
  }

  /** The store with a point before and after each transaction. */
  #watched(deliveries: Deliveries): Deliveries {
    const watched: Partial<Record<keyof Deliveries, unknown>> = {};
    for (const name of METHODS) {
      watched[name] = async (...given: readonly unknown[]): Promise<unknown> => {
        await this.#point(`${name}:before`);
        const work = deliveries[name].bind(deliveries) as (
          ...all: readonly unknown[]
        ) => Promise<unknown>;
        const isEnd = name === 'endRun' && (given[0] as { next?: object }).next !== undefined;
        const result = await work(...given);
        if (name === 'admitSteer' && result !== undefined) this.#admitted(result);
        // nothing else in the log shows that one run ended and another began
        if (isEnd && result !== undefined) this.#log.append([ENDED]);
        await this.#point(`${name}:after`);
        return result;
      };
    }
    return watched as unknown as Deliveries;
  }

  #admitted(delivery: unknown): void {
    const { entry_id: marker } = delivery as { entry_id: string };
    this.#world.admitted.push({ marker, tools: this.#world.tools });
  }

  #tools(): OpenTools {
    const writer = { id: 'w', traits: { reads_only: false, network: false } };
    const reader = { id: 'r', traits: { reads_only: true, network: false } };
    const offered = () => (this.#world.tools === 'reads' ? [reader] : [reader, writer]);
    return {
      definitions: () => ({
        version: offered().length,
        tools: offered().map(({ id }) => ({ name: id })),
      }),
      set: {
        resolve: (name: string) =>
          Promise.resolve({
            kind: 'resolved',
            call: { tool: offered().find(({ id }) => id === name) ?? reader },
          }),
      },
    } as unknown as OpenTools;
  }
}

const ENDED: EventDraft = { event_type: 'note', payload: { text: 'run ended: completed' } };

const METHODS = [
  'enqueue',
  'list',
  'isAnyWaiting',
  'openRun',
  'updateRun',
  'publishPoint',
  'activeTurn',
  'admitPeople',
  'requestSteer',
  'admitSteer',
  'accept',
  'consume',
  'consumeWaited',
  'endRun',
  'recover',
  'resolve',
] as const satisfies readonly (keyof Deliveries)[];
