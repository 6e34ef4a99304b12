import { expect, it } from 'vitest';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import { ownPass } from '../../src/kernel/threads/run/own-pass.ts';
import { libraryLab } from '../app/library-lab.ts';
import { reply } from '../helpers/wire-server.ts';

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

it('takes the answers of threads that come together one by one', async () => {
  const count = 6;
  let answerAll = (): void => {};
  const everyone = new Promise<void>((resolve) => {
    answerAll = resolve;
  });
  const lab = await libraryLab(async ({ index }) => {
    if (index === count - 1) answerAll();
    await everyone;
    return reply('Done.');
  });
  await lab.directive('work');
  const rye = lab.open({ store: ({ clock, ids }) => openMemoryStore({ clock, ids }) });
  let pass = 0;
  let isOver = false;
  const next = (): void => {
    pass += 1;
    if (!isOver) setImmediate(next);
  };
  setImmediate(next);
  const passes: number[] = [];
  const results = await Promise.all(
    Array.from({ length: count }, async () =>
      rye.threads.execute({
        directiveId: 'team/work',
        onEvent: ({ event_type: type, payload }) => {
          // the task of the user is in the log before any answer
          if (type === 'message' && JSON.stringify(payload).includes('Done.')) passes.push(pass);
        },
      }),
    ),
  );
  isOver = true;
  expect(results.map(({ status }) => status)).toEqual(results.map(() => 'completed'));
  expect(passes).toHaveLength(count);
  expect(new Set(passes).size).toBe(count);
});
