import { expect, it } from 'vitest';
import { defineTool } from '../../src/kernel/app/program/define-tool.ts';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
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

it('a thread in a tool is listed with the turns and the price of every answer so far', async () => {
  const lab = await libraryLab([
    calls(toolUse('shop_look', {}, 'c1')),
    calls(toolUse('shop_look', {}, 'c2')),
    reply('Done.'),
  ]);
  await lab.directive('work', ['shop/look']);
  const seen: { turns: number; spend: number; ledger: number | undefined }[] = [];
  let opened: Store | undefined;
  const rye = lab.open({
    store: ({ clock, ids }) => {
      opened = openMemoryStore({ clock, ids });
      return opened;
    },
    tools: {
      'shop/look': defineTool({
        description: 'Looks.',
        inputSchema: { type: 'object' },
        execute: async () => {
          const [thread] = await rye.threads.list();
          const [row] = (await opened?.ledger.rows({ thread_id: thread?.thread_id ?? '' })) ?? [];
          const { turns = 0, spend = 0 } = thread?.cost ?? {};
          seen.push({ turns, spend, ledger: row?.actual });
          return 'seen';
        },
      }),
    },
  });
  const outcome = await rye.run({ directiveId: 'team/work', acknowledge: ['elevated'] });
  expect(outcome.kind).toBe('completed');
  expect(seen.map(({ turns }) => turns)).toEqual([1, 2]);
  const [first, second] = seen;
  expect(first?.spend).toBeGreaterThan(0);
  expect(second?.spend).toBeCloseTo(2 * (first?.spend ?? 0), 6);
  expect(seen.map(({ ledger }) => ledger)).toEqual(
    seen.map(({ spend }) => Math.round(spend * 1e6)),
  );
});

it('a parent does not read its log for its children', async () => {
  const child = (id: string) =>
    toolUse('rye_execute', { item_type: 'directive', item_id: 'team/child', parameters: {} }, id);
  const reads = async (children: number): Promise<number> => {
    const lab = await libraryLab(({ body }) =>
      JSON.stringify(body.messages[0]).includes('Do parent.') && body.messages.length === 1
        ? calls(...Array.from({ length: children }, (_, index) => child(`c${index}`)))
        : reply('Done.'),
    );
    await lab.directive('child', [], { metadata: '<limits spend="0.001"/>' });
    await lab.directive('parent', [], {
      metadata:
        '<limits spend="5" spawns="50"/><permissions><execute><directive>team/*</directive></execute></permissions>',
    });
    let count = 0;
    const watched = new Set(['read', 'readEntries', 'verify']);
    const rye = lab.open({
      store: ({ clock, ids }) => {
        const store = openMemoryStore({ clock, ids });
        const logs = new Proxy(store.logs, {
          get: (target, key) => {
            const value: unknown = Reflect.get(target, key);
            if (typeof value !== 'function') return value;
            return (...values: unknown[]) => {
              if (watched.has(String(key)) && String(values[0]).startsWith('team/parent'))
                count += 1;
              return value.apply(target, values) as unknown;
            };
          },
        });
        return { ...store, logs, close: (how) => store.close(how) };
      },
    });
    const outcome = await rye.run({ directiveId: 'team/parent' });
    expect(outcome.thread?.children).toHaveLength(children);
    return count;
  };
  expect(await reads(9)).toBe(await reads(1));
});
