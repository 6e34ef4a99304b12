import { expect, it } from 'vitest';
import { text } from '../helpers/wire-server.ts';
import { execute, undoDesk } from './undo-desk.ts';

it('a thread that is made from a child has no parent, and runs on a budget that is its own', async () => {
  const desk = await undoDesk();
  const id = await desk.run([execute('child')], [text('Child done.')], [text('Done.')]);
  const rye = desk.lab.rye();
  const child = (await rye.threads.list({})).find(({ parent_id: parent }) => parent === id);
  const from = child?.thread_id ?? '';
  const { leaf_id: at } = await rye.trees.view(from);
  const made = await rye.trees.extract(from, { at: at ?? '' });
  expect([made.parent_id, made.status]).toEqual([null, 'suspended']);
  await desk.resume(made.thread_id, 'Go on.', [text('More.')]);
  const { thread } = await rye.threads.show(made.thread_id);
  expect(thread).toMatchObject({ parent_id: null, result: 'More.' });
});
