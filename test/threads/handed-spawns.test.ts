import { expect, it } from 'vitest';
import { text } from '../helpers/wire-server.ts';
import { execute, undoDesk } from './undo-desk.ts';

it('the successor of a thread that was handed off may start the children that its limit has left', async () => {
  const { lab, turns } = await undoDesk();
  lab.signed(
    'config/agent/coordination.yaml',
    'continuation: { mode: handoff, trigger_threshold: 0.00001 }\n',
  );
  turns.push([execute('child')], [text('Child done.')], [text('Done.')]);
  const { thread_id: id, continuation_thread_id: next = '' } = await lab.run('work');
  const spawnsOf = async (threadId: string): Promise<number | undefined> =>
    (await lab.rye().threads.show(threadId)).document?.limits.spawns;
  expect([await spawnsOf(id), await spawnsOf(next)]).toEqual([20, 19]);
});
