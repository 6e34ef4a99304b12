import { expect, it } from 'vitest';
import type { ItemSummary } from '../../src/kernel/app/api/items.ts';
import { libraryLab } from './library-lab.ts';

it('tools that are a part of rye are listed and shown like others, but have no file', async () => {
  const rye = (await libraryLab()).open();
  const names = (items: readonly ItemSummary[]): readonly string[] =>
    items.filter(({ signature }) => signature === 'builtin').map(({ id }) => id);
  const all = await rye.items.list('tool');
  expect(names(all)).toEqual(expect.arrayContaining(['rye/bash', 'rye/file-system/read']));
  expect(all.map(({ id }) => id)).toContain('rye/core/greet');
  expect(names(await rye.items.list('tool', { space: 'project' }))).toEqual([]);
  expect(names(await rye.items.list('directive'))).toEqual([]);

  const glob = await rye.items.fetch('tool', 'rye/file-system/glob');
  expect(glob).toMatchObject({ space: 'system', path: null, signature: 'builtin' });
  expect(glob.metadata['traits']).toMatchObject({ reads_only: true });
  expect(JSON.parse(glob.content)).toMatchObject({ type: 'object', required: ['pattern'] });
  await expect(rye.items.fetch('tool', 'rye/bash', { copyTo: 'project' })).rejects.toMatchObject({
    code: 'usage',
  });
});
