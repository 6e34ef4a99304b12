import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

it.each([
  ['at once', undefined],
  ['after a while', async () => await new Promise<void>((resolve) => setImmediate(resolve))],
])(
  'openRye runs, lists, steers and verifies threads on a memory store that is durable %s',
  async (_when, onSync) => {
    const lab = await libraryLab(async ({ index }) => {
      if (index > 0) return reply('Done.');
      await run.steer('Look twice.');
      return calls(toolUse('rye_file_system_ls', {}, 'a'));
    });
    await lab.directive('work', ['rye/file-system/ls']);
    const rye = lab.open({
      store: ({ clock, ids }) => openMemoryStore({ clock, ids, ...(onSync ? { onSync } : {}) }),
    });
    const run = rye.start({ directiveId: 'team/work' });
    const outcome = await run.outcome;
    expect('error' in outcome ? outcome.error : undefined).toBeUndefined();
    expect(outcome).toMatchObject({ kind: 'completed' });
    expect(JSON.stringify(lab.server.requests[1]?.body?.messages)).toContain('Look twice.');
    const threads = await rye.threads.list({});
    expect(threads).toMatchObject([{ directive: 'team/work', status: 'completed' }]);
    const threadId = threads[0]?.thread_id ?? '';
    const types: string[] = [];
    for await (const { event_type } of rye.threads.logs(threadId)) types.push(event_type);
    expect(types).toContain('tool_call_start');
    expect(types.at(-1)).toBe('checkpoint');
    expect(await rye.threads.verify(threadId)).toMatchObject({ ok: true });
    expect((await rye.threads.show(threadId)).paths.transcript).toBe(`memory:${threadId}`);
    const folder = path.join(lab.project, '.ai', 'state', 'threads');
    expect(existsSync(path.join(folder, 'registry.db'))).toBe(false);
    expect(
      readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
        /transcript|lease|ledger/.test(name),
      ),
    ).toEqual([]);
  },
);

it('the end of a thread indexes its own export and looks at no other', async () => {
  const lab = await libraryLab([reply('Done.')]);
  await lab.directive('work');
  const exports = path.join(lab.project, '.ai/knowledge/agent/threads/team/work');
  mkdirSync(exports, { recursive: true });
  writeFileSync(path.join(exports, 'earlier.md'), 'a quokka of an earlier thread\n');
  const looks: string[] = [];
  const rye = lab.open({
    store: ({ clock, ids }) => {
      const store = openMemoryStore({ clock, ids });
      const { index } = store;
      const watched: typeof index = {
        fingerprints: async (scope, isWanted) => {
          looks.push('fingerprints');
          return await index.fingerprints(scope, isWanted);
        },
        folders: async () => {
          looks.push('folders');
          return await index.folders();
        },
        update: async (changed, removed) => {
          looks.push(`update of ${changed.length}`);
          await index.update(changed, removed);
        },
        updateFolders: async (changed, gone) => await index.updateFolders(changed, gone),
        search: async (query, isOver) => await index.search(query, isOver),
      };
      return { ...store, index: watched };
    },
  });
  const { threadId } = await rye.run({ directiveId: 'team/work' });
  expect(looks).toEqual(['update of 1']);
  const { results } = await rye.items.search('knowledge', 'quokka');
  expect(results).toHaveLength(1);
  expect(JSON.stringify(await rye.items.search('knowledge', 'Done'))).toContain(threadId ?? '');
});
