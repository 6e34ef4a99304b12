import { expect, it } from 'vitest';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import { libraryLab } from '../app/library-lab.ts';
import { reply } from '../helpers/wire-server.ts';

it('thread.json names no end of a log whose last bytes could not be kept', async () => {
  let isFull = false;
  const onSync = async (): Promise<void> => {
    if (isFull) throw new Error('the disk is full');
  };
  const lab = await libraryLab(() => {
    isFull = true;
    return reply('Done.');
  });
  await lab.directive('work');
  const rye = lab.open({ store: ({ clock, ids }) => openMemoryStore({ clock, ids, onSync }) });
  const behavior = { nudge: false };
  const outcome = await rye.run({ directiveId: 'team/work', threadId: 'job', behavior });
  expect(outcome.kind).toBe('failed');
  const { document } = await rye.threads.show('job');
  expect(document?.status).toBe('error');
  expect(document).not.toHaveProperty('transcript');
});
