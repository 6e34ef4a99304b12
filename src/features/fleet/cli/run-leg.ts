import process from 'node:process';
import { defineCommand } from '../../../faces/cli/command.ts';
import { workerFolders } from '../../../faces/cli/session.ts';
import { oneLine, shown } from '../../../faces/ui/visible.ts';
import type { LegLink } from '../leg.ts';
import type { LegLease, LegMessage, LegOrder, LegReply } from '../leg-control.ts';

/** Runs legs, one after the other, in a process that a worker started for them. Each line of stdin is a message. */
const runLeg = defineCommand({
  examples: [],
  run: async (call) => {
    const { io, global } = call;
    const [leg, { mayRunMore }, { EXIT_OF_LEG }, { LegLease: Lease }, { machineClock }] =
      await Promise.all([
        import('../leg.ts'),
        import('../../../kernel/app/thread-process.ts'),
        import('../leg-outcome.ts'),
        import('../leg-control.ts'),
        import('../../../kernel/app/system.ts'),
      ]);
    const ended = new AbortController();
    const orders = new Orders(io.readLines(ended.signal));
    // a service manager signals every process of a worker: the leg ends at its next safe point
    for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const)
      process.on(name, () => orders.stop());
    let link: LegLink | undefined;
    for (let count = 1; ; count += 1) {
      const order = await orders.next();
      if (order === undefined) break;
      link ??= leg.openLegLink(order.url);
      const lease = new Lease(machineClock, order.until);
      orders.begin(lease);
      const { outcome, isAtRest } = await leg.runLeg({
        order,
        link,
        lease,
        env: io.env,
        userSpacePath: workerFolders(call)[1],
        configOverrides: global.config,
        features: io.features,
        onNotice: (notice) => io.stderr.write(shown`${oneLine(notice)}\n`),
        signal: new AbortController().signal,
      });
      orders.end();
      const status = EXIT_OF_LEG[outcome];
      if (orders.isStopped || !isAtRest || !mayRunMore(count)) {
        ended.abort();
        await link.close();
        return status;
      }
      io.stdout.writeRaw(`${JSON.stringify({ status } satisfies LegReply)}\n`);
    }
    ended.abort();
    await link?.close();
    // an order that comes now was not carried out
    return EXIT_OF_LEG.again;
  },
});

/** The messages of a worker, by their order. */
class Orders {
  #lease: LegLease | undefined;
  #waiting: ((order: LegOrder | undefined) => void) | undefined;
  /** It came before it was asked for. */
  #early: LegOrder | undefined;
  #isStopped = false;

  constructor(lines: AsyncIterable<string>) {
    void this.#read(lines);
  }

  /** True once this process is to take no other leg. */
  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** Resolves to the next leg; undefined if none will come. */
  async next(): Promise<LegOrder | undefined> {
    const early = this.#early;
    this.#early = undefined;
    if (early !== undefined || this.#isStopped) return early;
    return await new Promise((resolve) => {
      this.#waiting = resolve;
    });
  }

  begin(lease: LegLease): void {
    this.#lease = lease;
    if (this.#isStopped) lease.receive({ kind: 'drain' });
  }

  end(): void {
    this.#lease = undefined;
  }

  /** Ends the leg that runs at its next safe point, and takes no other. */
  stop(): void {
    this.#isStopped = true;
    this.#lease?.receive({ kind: 'drain' });
    this.#waiting?.(undefined);
  }

  async #read(lines: AsyncIterable<string>): Promise<void> {
    for await (const line of lines) {
      const message = JSON.parse(line) as LegMessage | LegOrder;
      if ('kind' in message) this.#lease?.receive(message);
      else if (this.#waiting) {
        this.#waiting(message);
        this.#waiting = undefined;
      } else this.#early = message;
    }
    // the worker is gone: another one takes the thread over
    if (this.#lease) process.kill(-process.pid, 'SIGKILL');
    this.stop();
  }
}

export { runLeg as '__run-leg' };
