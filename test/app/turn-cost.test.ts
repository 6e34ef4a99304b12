import { expect, it } from 'vitest';
import { openMemoryStore } from '../../src/storage/memory-store.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

/** Counts the syncs and the signatures of a thread whose model calls a tool `turns` times. */
async function costOf(tool: string, turns: number): Promise<{ syncs: number; signatures: number }> {
  let syncs = 0;
  const lab = await libraryLab(({ index }) =>
    index < turns
      ? calls(
          toolUse(tool.replaceAll(/[/-]/g, '_'), { path: `f${index}`, content: 'x' }, `c${index}`),
        )
      : reply('Done.'),
  );
  await lab.directive('work', [tool]);
  const onSync = async (): Promise<void> => {
    syncs += 1;
    await new Promise<void>((resolve) => setImmediate(resolve));
  };
  const rye = lab.open({ store: ({ clock, ids }) => openMemoryStore({ clock, ids, onSync }) });
  const { threadId } = await rye.run({ directiveId: 'team/work' });
  if (threadId === null) throw new Error('it did not start');
  let signatures = 0;
  for await (const { event_type: type } of rye.threads.logs(threadId))
    if (type === 'checkpoint') signatures += 1;
  expect(await rye.threads.verify(threadId)).toMatchObject({ ok: true });
  return { syncs, signatures };
}

it.each([
  ['that only reads', 'rye/file-system/ls', 1, 2],
  // its start, the change of the file, and the next turn
  ['that changes a file', 'rye/file-system/write', 3, 5],
])('a turn with a call %s', async (_, tool, syncs, signatures) => {
  const [few, many] = [await costOf(tool, 2), await costOf(tool, 12)];
  expect((many.syncs - few.syncs) / 10).toBe(syncs);
  expect((many.signatures - few.signatures) / 10).toBeLessThanOrEqual(signatures);
});
