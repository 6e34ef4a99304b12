import path from 'node:path';
import Database from 'better-sqlite3';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { violations } from './oracle.ts';
import { Owner, type Point } from './owner.ts';
import { Chance, READS, SimLog, THREAD, World } from './world.ts';

/** The findings of a simulation. */
export interface SimReport {
  readonly violations: readonly string[];
  readonly actions: number;
  readonly crashes: number;
  readonly steers: number;
  readonly delivered: number;
  readonly manual: number;
  readonly refused: number;
}

/** The process dies here. Everything that is not on disk is gone. */
class Crash extends Error {}

export interface SimOptions {
  readonly seed: number;
  readonly actions: number;
  readonly folder: string;
}

/**
 * One thread, its owner, and everybody who may act in between, in an order that chance decides; any point between two
 * effects may be the last of the owner. After each action the oracle looks at the log and the tables.
 */
export async function simulate(options: SimOptions): Promise<SimReport> {
  const folder = path.join(options.folder, `seed-${options.seed}`);
  const world = new World(folder);
  try {
    return await new Simulation(world, options).run();
  } finally {
    world.store.close();
    removeFolder(folder);
  }
}

class Simulation {
  readonly #world: World;
  readonly #chance: Chance;
  readonly #options: SimOptions;
  readonly #found: string[] = [];
  #actions = 0;
  #crashes = 0;
  #children = 0;
  #isBusy = false;
  #zombie: Owner | undefined;

  constructor(world: World, options: SimOptions) {
    this.#world = world;
    this.#options = options;
    this.#chance = new Chance(options.seed);
  }

  async run(): Promise<SimReport> {
    await this.#world.register(THREAD, null);
    while (this.#actions < this.#options.actions && this.#found.length === 0) {
      await this.#life();
    }
    // the last owner leaves nothing open
    if (this.#found.length === 0) await this.#settled();
    return await this.#report();
  }

  /** One owner from its claim to its end, orderly or not. */
  async #life(): Promise<void> {
    const owner = new Owner(this.#world, this.#chance, this.#point);
    try {
      await owner.start();
      const turns = 1 + this.#chance.below(12);
      let turn = 0;
      await owner.run(() => {
        turn += 1;
        return turn <= turns && this.#found.length === 0;
      });
    } catch (error) {
      this.#crashed(owner, error);
    }
    await this.#look();
    await this.#others();
  }

  #crashed(owner: Owner, error: unknown): void {
    if (!(error instanceof Crash)) {
      const code = error instanceof RyeError ? error.code : '';
      this.#found.push(`an owner failed: ${code} ${String(error)}`);
      return;
    }
    this.#crashes += 1;
    if (error.message === 'appended' && this.#chance.happens(500)) {
      new SimLog(this.#world.folder).tear(1 + this.#chance.below(10));
    }
    if (owner.inbox && this.#chance.happens(200)) this.#zombie = owner;
  }

  /** A point between two effects. */
  readonly #point: Point = async (name) => {
    this.#actions += 1;
    this.#world.now += 7;
    if (this.#chance.happens(12)) throw new Crash(name);
    if (this.#chance.happens(60)) await this.#others(name);
  };

  async #others(where = ''): Promise<void> {
    if (this.#isBusy) return;
    this.#isBusy = true;
    try {
      this.#actions += 1;
      await this.#act(where);
      await this.#look();
    } finally {
      this.#isBusy = false;
    }
  }

  async #act(where: string): Promise<void> {
    const what = this.#chance.below(100);
    if (what < 30) await this.#send();
    else if (what < 45) await this.#childEnds();
    // an owner changes the traits of its run, but not while it publishes them
    else if (what < 60 && where !== 'updateRun:before') await this.#escalate();
    else if (what < 75) await this.#resolve();
    else if (what < 85) await this.#haunt();
    else await this.#sendAgain();
  }

  async #send(): Promise<void> {
    const isPerson = this.#chance.happens(300);
    await this.#world.store.deliveries.enqueue({
      deliveryId: this.#world.id('d'),
      threadId: THREAD,
      class: isPerson ? 'person' : 'background',
      kind: isPerson ? 'steer' : 'message',
      mode: this.#chance.pick(['auto', 'auto', 'idle', isPerson ? 'follow-up' : 'auto']),
      source: isPerson ? 'person' : 'other',
      text: 'hello',
      requiresArtifact: this.#chance.happens(100),
      now: this.#world.time,
    });
  }

  /** Enqueues the child's end in the transaction that ends it. */
  async #childEnds(): Promise<void> {
    this.#children += 1;
    const id = `sim/child-${this.#children}`;
    const { registry } = this.#world.store;
    await this.#world.register(id, THREAD);
    await registry.assign(id, null, this.#world.time);
    await registry.finish(id, {
      status: 'error',
      now: this.#world.time,
      cost: NO_COST,
      result: '',
      epoch: 0,
    });
    const waiting = await this.#world.deliveries();
    if (!waiting.some(({ source }) => source === id)) {
      this.#found.push(`the end of ${id} is no delivery`);
    }
  }

  /** The same end, told once more. */
  async #sendAgain(): Promise<void> {
    if (this.#children === 0) return;
    const id = `sim/child-${1 + this.#chance.below(this.#children)}`;
    const before = (await this.#world.deliveries()).length;
    await this.#world.store.deliveries.enqueue({
      deliveryId: this.#world.id('again'),
      threadId: THREAD,
      class: 'background',
      kind: 'child_result',
      mode: 'auto',
      source: id,
      sourceKey: `child:${id}`,
      text: '',
      requiresArtifact: false,
      now: this.#world.time,
    });
    if ((await this.#world.deliveries()).length !== before) this.#found.push(`${id} came twice`);
  }

  /** The run becomes more, or less, than a reader. */
  async #escalate(): Promise<void> {
    const file = path.join(this.#world.folder, '.ai', 'state', 'threads', 'registry.db');
    const database = new Database(file);
    const row = database
      .prepare(`SELECT run_id, epoch, kind FROM runs WHERE thread_id = ? AND status = 'running'`)
      .get(THREAD) as { run_id: string; epoch: number; kind: 'regular' } | undefined;
    database.close();
    this.#world.tools = this.#world.tools === 'reads' ? 'writes' : 'reads';
    if (!row) return;
    const key = { threadId: THREAD, epoch: row.epoch, runId: row.run_id };
    const traits = { ...READS, requires_write_access: this.#world.tools === 'writes' };
    try {
      await this.#world.store.deliveries.updateRun(key, row.kind, traits);
    } catch (error) {
      if (!isFenced(error)) throw error;
    }
  }

  /** A person looks at what is manual. */
  async #resolve(): Promise<void> {
    const waiting = await this.#world.deliveries();
    const manual = waiting.filter(({ state }) => state === 'manual');
    const one = manual[this.#chance.below(Math.max(1, manual.length))];
    if (!one) return;
    await this.#world.store.deliveries.resolve({
      threadId: THREAD,
      seq: one.seq,
      as: this.#chance.pick(['delivered', 'dropped', 'retry', 'retry']),
      newId: this.#world.id('r'),
      now: this.#world.time,
    });
  }

  /** A process that was taken for dead returns: nothing that it does may have an effect. */
  async #haunt(): Promise<void> {
    const inbox = this.#zombie?.inbox;
    const epoch = this.#zombie?.epoch;
    if (!inbox) return;
    this.#zombie = undefined;
    const record = await this.#world.store.registry.get(THREAD);
    if (record?.epoch === epoch) return;
    const before = JSON.stringify(await this.#world.deliveries());
    try {
      await this.#chance.pick<() => Promise<unknown>>([
        async () => {
          await inbox.close('completed');
        },
        async () => await inbox.next(),
        async () => await inbox.take('at_end'),
      ])();
    } catch (error) {
      if (!(error instanceof Crash) && !isFenced(error))
        this.#found.push(`an owner that had lost the thread got as far as ${String(error)}`);
    }
    if (JSON.stringify(await this.#world.deliveries()) !== before)
      this.#found.push('an owner that had lost the thread changed a delivery');
  }

  async #look(): Promise<void> {
    const log = new SimLog(this.#world.folder).read();
    const deliveries = await this.#world.deliveries();
    this.#found.push(...violations(log, deliveries, this.#world.admitted));
  }

  async #settled(): Promise<void> {
    const owner = new Owner(this.#world, this.#chance, () => Promise.resolve());
    await owner.start();
    await owner.run(() => false);
    await this.#look();
    const open = (await this.#world.deliveries())
      .flatMap(({ tries }) => tries)
      .filter(({ state }) => state === 'accept_pending' || state === 'tracking');
    if (open.length > 0) this.#found.push(`${open.length} attempts stay unresolved for ever`);
  }

  async #report(): Promise<SimReport> {
    const deliveries = await this.#world.deliveries();
    const attempts = deliveries.flatMap(({ tries }) => tries);
    return {
      violations: this.#found,
      actions: this.#actions,
      crashes: this.#crashes,
      steers: attempts.filter(({ kind, run_id }) => kind === 'turn_steer' && run_id !== null)
        .length,
      delivered: deliveries.filter(({ close_reason }) => close_reason?.startsWith('delivered'))
        .length,
      manual: deliveries.filter(({ decisions }) =>
        decisions.some(({ decision }) => decision === 'manual'),
      ).length,
      refused: attempts.filter(({ state }) => state === 'rejected').length,
    };
  }
}

function isFenced(error: unknown): boolean {
  return error instanceof RyeError && error.code === 'thread_locked';
}
