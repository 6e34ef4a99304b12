import { describe, expect, it } from 'vitest';
import { reply } from '../helpers/wire-server.ts';
import { type Desk, decisions, desk, LOOK, runUntilTaken, THREAD } from './steering-desk.ts';

const ON = 'steer: { active_turn: enabled, min_interval_seconds: 0 }\n';

/** A thread that was cancelled after a message had come in, before any request carried it. */
async function leftUnanswered(): Promise<Desk> {
  const here = await desk([
    async ({ rye }) => {
      await rye.deliveries.send(THREAD, 'Hear me.');
      return LOOK;
    },
    reply('Later.'),
  ]);
  expect(await runUntilTaken(here)).toMatchObject({ status: 'cancelled' });
  expect(await here.one()).toMatchObject({ state: 'queued', answer_id: null });
  return here;
}

async function entryOf({ one, store }: Desk): Promise<{ own: string; before: string }> {
  const own = (await one()).entry_id ?? '';
  const entry = (await store.logs.read(THREAD)).events.find(({ id }) => id === own);
  return { own, before: entry?.parent_id ?? '' };
}

describe('a branch', () => {
  it('leaves an unanswered message to a person', async () => {
    const here = await leftUnanswered();
    const { before } = await entryOf(here);
    await here.rye.trees.branch(THREAD, { at: before });
    await here.rye.recovery.resume({ threadId: THREAD, message: 'Go on.' });
    expect(here.lastHeard()[1]).not.toContain('Hear me.');
    expect(await here.one()).toMatchObject({
      state: 'manual',
      manual_reason: 'its branch was left',
    });
  });

  it('below an unanswered message carries it on, and the next answer covers it', async () => {
    const here = await leftUnanswered();
    const { own } = await entryOf(here);
    await here.rye.trees.branch(THREAD, { at: own });
    await here.rye.recovery.resume({ threadId: THREAD, message: 'Go on.' });
    expect(JSON.stringify(here.server.requests[1]?.body.messages)).toContain('Hear me.');
    expect(await here.one()).toMatchObject({ state: 'closed', close_reason: 'delivered' });
  });

  it('does not undo what was delivered', async () => {
    const here = await desk([
      async ({ rye }) => {
        await rye.deliveries.send(THREAD, 'Hear me.');
        return LOOK;
      },
      reply('Heard.'),
      reply('Later.'),
    ]);
    await here.run();
    const { before } = await entryOf(here);
    await here.rye.trees.branch(THREAD, { at: before });
    await here.rye.recovery.resume({ threadId: THREAD, message: 'Go on.' });
    expect(await here.one()).toMatchObject({ state: 'closed', close_reason: 'delivered' });
  });
});

describe('a stream rule that cuts the answer', () => {
  it('leaves the attempt open: the answer that replaces the cut one covers the message', async () => {
    const here = await desk(
      [
        async ({ fromThread }) => {
          await fromThread('news');
          return LOOK;
        },
        reply('Do git push --force now.'),
        reply('With the news.'),
      ],
      {
        coordination: ON,
        rules: { forceful: "---\ncondition: 'push --force'\n---\nNever force.\n" },
      },
    );
    expect(await here.run()).toMatchObject({ status: 'completed', result: 'With the news.' });
    const events = await here.events();
    expect(events.some(({ event_type: type }) => type === 'rule_injection')).toBe(true);
    const delivery = await here.one();
    expect(delivery.tries).toMatchObject([{ kind: 'turn_steer', state: 'delivered' }]);
    expect(delivery).toMatchObject({ state: 'closed', close_reason: 'delivered', attempts: 1 });
    expect(decisions(delivery).filter((one) => one === 'consume')).toHaveLength(1);
    const covering = events.find(({ id }) => id === delivery.answer_id);
    expect(JSON.stringify(covering?.payload)).toContain('With the news.');
  });
});
