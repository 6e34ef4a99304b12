import { expect, it } from 'vitest';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const INPUTS =
  '<inputs><input name="file">F.</input><input name="key" secret="true">K.</input></inputs>';
const CHILDREN = '<permissions><execute><directive>team/*</directive></execute></permissions>';

it('the cost of a thread has its own share and the total with its children, wherever it is read', async () => {
  const start = (id: string, child: string) =>
    toolUse(
      'rye_execute',
      {
        item_type: 'directive',
        item_id: child,
        parameters: child === 'team/child' ? { file: 'a.ts', key: 'sesame' } : {},
      },
      id,
    );
  const usage = { input_tokens: 100, output_tokens: 20 };
  // the parent starts a child, and this a grandchild
  const lab = await libraryLab([
    { ...calls(start('a', 'team/child')), usage },
    { ...calls(start('b', 'team/grandchild')), usage },
    { ...reply('Deep.'), usage },
    { ...reply('Done.'), usage },
    { ...reply('All done.'), usage },
  ]);
  await lab.directive('grandchild');
  await lab.directive('child', [], { metadata: CHILDREN, outputs: INPUTS });
  await lab.directive('parent', [], { metadata: CHILDREN });
  const rye = lab.open();
  const outcome = await rye.run({ directiveId: 'team/parent' });
  if (outcome.kind !== 'completed') throw new Error(JSON.stringify(outcome));
  const { thread_id: id, cost } = outcome.thread ?? { thread_id: '', cost: undefined };
  expect(cost?.own).toEqual({ spend: cost?.spend, tokens: 240, turns: 2 });
  expect(cost?.total).toMatchObject({ tokens: 600, turns: 5 });
  expect(cost?.total.spend).toBeCloseTo(((cost?.spend ?? 0) / 2) * 5, 6);
  const shares = { own: cost?.own, total: cost?.total };
  const { thread, children } = await rye.threads.show(id);
  expect(thread.cost).toMatchObject(shares);
  expect(children[0]?.cost).toMatchObject({ own: { turns: 2 }, total: { turns: 3 } });
  const listed = (await rye.threads.list()).find(({ thread_id }) => thread_id === id);
  expect(listed?.cost).toMatchObject(shares);
  const [session] = await rye.threads.list({ sessions: true, directive: 'team/parent' });
  expect(session?.cost).toMatchObject(shares);
  expect([thread.label, children[0]?.label]).toEqual([undefined, 'child a.ts ***']);
  const [tree] = await rye.children.tree(id);
  expect(tree?.children[0]?.thread.label).toBe('child a.ts ***');
  expect(tree?.thread.cost).toMatchObject(shares);
  expect(tree?.subtree_spend).toBe(cost?.total.spend);
});
