import { expect, it } from 'vitest';
import { calls, reply, toolUse, type WireBody, type WireTurn } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const OVERLOADED: WireTurn = {
  status: 529,
  headers: { 'retry-after-ms': '5' },
  error: { type: 'overloaded_error', message: 'Overloaded' },
};
const START_CHILD = calls(
  toolUse('rye_execute', { item_type: 'directive', item_id: 'team/child', parameters: {} }, 'a'),
);
const isOfChild = ({ messages }: WireBody): boolean =>
  JSON.stringify(messages[0]).includes('Do child.');

it('a child waits for its provider while its parent waits for it', async () => {
  let failed = 0;
  const lab = await libraryLab(({ body }) => {
    if (!isOfChild(body)) {
      const isDone = JSON.stringify(body.messages).includes('tool_result');
      return isDone ? reply('All done.') : START_CHILD;
    }
    failed += 1;
    return failed <= 3 ? OVERLOADED : reply('Done.');
  });
  await lab.directive('child');
  await lab.directive('parent', [], {
    metadata: '<permissions><execute><directive>team/*</directive></execute></permissions>',
  });
  const waits: string[] = [];
  const outcome = await lab.open().run({
    directiveId: 'team/parent',
    onEvent: ({ event_type: type }) => {
      if (type.endsWith('retry_scheduled')) waits.push(type);
    },
  });
  expect(outcome).toMatchObject({ kind: 'completed' });
  expect(waits).toEqual(Array.from({ length: 3 }, () => 'child.retry_scheduled'));
});
