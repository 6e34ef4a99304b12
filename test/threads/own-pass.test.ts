import { expect, it } from 'vitest';
import { ownPass } from '../../src/threads/run/own-pass.ts';

it('gives each caller a separate pass of the event loop, in order', async () => {
  let pass = 0;
  let isOver = false;
  const count = (): void => {
    pass += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const passes = await Promise.all(
    Array.from({ length: 5 }, async () => {
      await ownPass();
      return pass;
    }),
  );
  isOver = true;
  expect(new Set(passes).size).toBe(5);
  expect(passes).toEqual(passes.toSorted((one, other) => one - other));
});
