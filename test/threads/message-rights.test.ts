import { expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { desk } from './steering-desk.ts';

it('a thread may write to its parent and to those below it, and to no other', async () => {
  const { rye, store } = await desk([]);
  const family = {
    root: null,
    child: 'root',
    sibling: 'root',
    grandchild: 'child',
    stranger: null,
  };
  for (const [threadId, parentId] of Object.entries(family)) {
    const now = new Date().toISOString();
    const facts = { directive: 'team/watch', model: 'm', now, owner: null };
    await store.registry.register({ ...facts, threadId, parentId });
  }
  const write = async (from: string, to: string): Promise<string> => {
    try {
      await rye.deliveries.send(to, 'Hello.', { from });
      return `${from} → ${to}`;
    } catch (error) {
      return `${from} → ${to}: ${error instanceof RyeError ? error.code : String(error)}`;
    }
  };
  expect([
    await write('child', 'root'),
    await write('root', 'grandchild'),
    await write('child', 'sibling'),
    await write('grandchild', 'root'),
    await write('child', 'stranger'),
    await write('stranger', 'child'),
  ]).toEqual([
    'child → root',
    'root → grandchild',
    'child → sibling: not_descendant',
    'grandchild → root: not_descendant',
    'child → stranger: not_descendant',
    'stranger → child: not_descendant',
  ]);
  expect(await rye.deliveries.list('sibling')).toEqual([]);
});
