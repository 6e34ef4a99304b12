import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { DeliveryFacts, DeliveryReport } from '../../src/kernel/core/delivery.ts';
import { deliveryFacts } from '../../src/kernel/log/delivery-facts.ts';
import { UNSEEN } from '../../src/kernel/policy/steer.ts';
import { bundle } from '../helpers/bundle.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { violations } from './oracle.ts';
import { Owner } from './owner.ts';
import { Chance, SimLog, THREAD, World } from './world.ts';

const CHILD = await bundle(path.resolve(import.meta.dirname, 'crash-child.ts'));

/** Each transition, with the moment before it and the moment after it. */
const POINTS = [
  'claimed',
  'recovered',
  'openRun:before',
  'openRun:after',
  'admitPeople:before',
  'admitPeople:after',
  'requestSteer:before',
  'requestSteer:after',
  'admitSteer:before',
  'admitSteer:after',
  'append',
  'appended',
  'accept:before',
  'accept:after',
  'consume:before',
  'consume:after',
  'endRun:before',
  'endRun:after',
  'closed',
] as const;

/** These are reached once in a life. */
const ONCE: ReadonlySet<string> = new Set([
  'claimed',
  'recovered',
  'openRun:before',
  'openRun:after',
  'closed',
]);

function timesOf(point: string): readonly number[] {
  return ONCE.has(point) ? [1] : [1, 2];
}

async function killedAt(
  folder: string,
  point: string,
  time: number,
): Promise<NodeJS.Signals | null> {
  const args = [CHILD, folder, point, String(time), '4'];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  await once(child, 'exit');
  return child.signalCode;
}

/** The state that the crash matrix asks for, from the log alone. */
function expected(delivery: DeliveryReport, facts: DeliveryFacts): string {
  const { entry_id: entry, state } = delivery;
  if (state === 'closed') return 'closed';
  // only what no request carried is proven unseen
  if (entry === null || !facts.requested.has(entry)) return 'queued';
  return facts.finished === 'completed' && facts.answers.has(entry) ? 'closed' : 'manual';
}

describe('SIGKILL', () => {
  it.each(POINTS.flatMap((point) => timesOf(point).map((time) => [point, time] as const)))(
    'at %s, the %i. time: the log decides, nothing is lost, sent twice or left open',
    async (point, time) => {
      const folder = mkdtempSync(path.join(tmpdir(), 'rye-crash-'));
      onTestFinished(() => removeFolder(folder));
      expect(await killedAt(folder, point, time)).toBe('SIGKILL');
      const world = new World(folder);
      onTestFinished(() => world.store.close());
      const facts = deliveryFacts(new SimLog(folder).read());
      expect(await world.deliveries()).toHaveLength(4);

      let recovered: readonly DeliveryReport[] = [];
      const owner = new Owner(world, new Chance(9), async (name) => {
        if (name === 'recovered') recovered = await world.deliveries();
      });
      await owner.start();
      expect(recovered.map(({ state }) => state)).toEqual(
        recovered.map((delivery) => expected(delivery, facts)),
      );
      for (const { tries, attempts, entry_id: entry } of recovered) {
        expect(tries.filter(({ state }) => /pending|tracking/.test(state))).toEqual([]);
        // only what the model may have seen counts as an attempt
        const seen = tries.filter(({ run_id: run, reason }) => run !== null && reason !== UNSEEN);
        expect(attempts).toBe(seen.length);
        expect(entry === null || facts.entries.has(entry)).toBe(true);
      }
      let turns = 0;
      await owner.run(() => {
        turns += 1;
        return turns < 60;
      });
      const log = new SimLog(folder).read();
      const after = await world.deliveries();
      expect(violations(log, after, [])).toEqual([]);
      const open = after.filter(({ state, entry_id: id }) => state === 'queued' && id === null);
      const end = log.findLast(({ event_type }) => event_type === 'thread_finished');
      // what still waits does so because the thread did not come to an orderly end
      expect(open.length === 0 || JSON.stringify(end).includes('"status":"error"')).toBe(true);
      expect((await world.store.registry.get(THREAD))?.status).toBe('suspended');
    },
    60_000,
  );
});
