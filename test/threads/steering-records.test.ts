import { expect, it } from 'vitest';
import { reply } from '../helpers/wire-server.ts';
import { type Desk, desk, LOOK } from './steering-desk.ts';

const ON = 'steer: { active_turn: enabled, min_interval_seconds: 0 }\n';

/** A run that two messages of another thread reach, one after the other; `at` sees each request. */
async function steered(at: (here: Desk) => Promise<void> = async () => undefined): Promise<Desk> {
  const here = await desk(
    [
      async ({ fromThread }) => {
        for (const word of ['alpha', 'beta']) await fromThread(word);
        return LOOK;
      },
      async () => {
        await at(here);
        return LOOK;
      },
      reply('First.'),
      reply('Second.'),
    ],
    { coordination: ON },
  );
  expect(await here.run()).toMatchObject({ status: 'completed' });
  return here;
}

it('each attempt has a unique id and a marker, which the message carries to the model', async () => {
  const here = await steered();
  const tries = (await here.deliveries()).flatMap((delivery) => delivery.tries);
  expect(tries.map(({ kind }) => kind)).toEqual(['turn_steer', 'turn_start']);
  expect(new Set(tries.map((one) => one.attempt_id)).size).toBe(2);
  expect(new Set(tries.map(({ marker }) => marker)).size).toBe(2);
  const heard = here.lastHeard();
  expect(heard[1]).toContain(tries[0]?.marker);
  expect(heard[3]).toContain(tries[1]?.marker);
});

it('an attempt is on record, accepted and not delivered, when the model is sent the message', async () => {
  let underWay: unknown;
  const here = await steered(async ({ deliveries }) => {
    const [first, second] = await deliveries();
    underWay = [first?.state, first?.tries[0]?.state, first?.answer_id, second?.tries.length];
  });
  expect(underWay).toEqual(['queued', 'tracking', null, 0]);
  const [first] = await here.deliveries();
  expect(first).toMatchObject({ state: 'closed', close_reason: 'delivered' });
});

it('decisions about a message are only added', async () => {
  let before: readonly unknown[] = [];
  const here = await steered(async ({ deliveries }) => {
    before = (await deliveries())[0]?.decisions ?? [];
  });
  const [first] = await here.deliveries();
  expect(before.length).toBeGreaterThan(2);
  expect(first?.decisions.slice(0, before.length)).toEqual(before);
  expect(first?.decisions.length).toBeGreaterThan(before.length);
});
