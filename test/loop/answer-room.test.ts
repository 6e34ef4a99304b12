import { expect, it } from 'vitest';
import { answers, planOf, play } from './scripted.ts';

it('a directive that wants short answers needs the money for those alone', async () => {
  const { limits } = planOf();
  const poor = (max_tokens: number, spend = 0.001) => ({
    plan: { behavior: { max_tokens }, limits: { ...limits, spend } },
    turns: [answers('Done.')],
  });
  const { outcome, requests } = await play(poor(20));
  expect([outcome.kind, requests[0]?.max_tokens]).toEqual(['completed', 20]);
  // 20 tokens for 200 micro-dollars, and the input
  const { outcome: refused } = await play(poor(20, 0.0001));
  const { needed } = (refused.kind === 'limit' && refused.error.details) || {};
  expect(needed).toBeGreaterThan(0.0002);
  expect(needed).toBeLessThan(0.0003);
  // any other answer has room for 256 tokens
  expect((await play(poor(300))).outcome).toMatchObject({ kind: 'limit', name: 'spend' });
});
