import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { defineTool } from '../../src/kernel/app/program/define-tool.ts';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import type { Store, TurnProgress } from '../../src/kernel/storage/store.ts';
import { libraryLab } from '../app/library-lab.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

/** A store that calls `see` before a method of its registry. */
function watched(store: Store, see: (method: string, args: readonly unknown[]) => void): Store {
  const registry = new Proxy(store.registry, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      return (...args: readonly unknown[]) => {
        see(String(name), args);
        return Reflect.apply(value, target, args);
      };
    },
  });
  return { ...store, registry };
}

it('no tool runs and no end is told before a slow disk has the log', async () => {
  let pending = 0;
  let syncs = 0;
  const onSync = async (): Promise<void> => {
    syncs += 1;
    pending += 1;
    for (let pass = 0; pass < 3000; pass += 1) await new Promise((done) => setImmediate(done));
    pending -= 1;
  };
  const seen: (readonly [string, number])[] = [];
  const lab = await libraryLab([calls(toolUse('shop_buy', {}, 'c1')), reply('Done.')]);
  await lab.directive('work', ['shop/buy']);
  const rye = lab.open({
    store: ({ clock, ids }) =>
      watched(openMemoryStore({ clock, ids, onSync }), (method) => {
        if (method === 'finish' || method === 'endRun') seen.push([method, pending]);
      }),
    tools: {
      'shop/buy': defineTool({
        description: 'Buys.',
        inputSchema: { type: 'object' },
        execute: async () => {
          seen.push(['buy', pending]);
          return 'bought';
        },
      }),
    },
  });
  const outcome = await rye.run({ directiveId: 'team/work', acknowledge: ['elevated'] });
  expect(outcome.kind).toBe('completed');
  expect(syncs).toBeGreaterThan(2);
  expect(seen.map(([what]) => what)).toEqual(expect.arrayContaining(['buy', 'finish']));
  expect(seen.filter(([, waiting]) => waiting > 0)).toEqual([]);
});

it('the registry is told the cost of a turn once the disk has it', async () => {
  const onSync = async (): Promise<void> => {
    for (let pass = 0; pass < 300; pass += 1) await new Promise((done) => setImmediate(done));
  };
  const told: { readonly turns: number; readonly seq: number }[] = [];
  const lab = await libraryLab([
    ...[1, 2, 3].map((at) => calls(toolUse('shop_look', { at }, `c${at}`))),
    reply('Done.'),
  ]);
  await lab.directive('work', ['shop/look']);
  const rye = lab.open({
    store: ({ clock, ids }) =>
      watched(openMemoryStore({ clock, ids, onSync }), (method, [, , , progress]) => {
        if (method !== 'heartbeat') return;
        const { cost, head } = (progress ?? {}) as TurnProgress;
        if (cost && head) told.push({ turns: cost.turns, seq: head.seq });
      }),
    tools: {
      'shop/look': defineTool({
        description: 'Looks.',
        inputSchema: { type: 'object' },
        traits: { reads_only: true, network: false, risk: 'safe' },
        execute: async () => 'seen',
      }),
    },
  });
  const booked = new Map<number, number>();
  const run = rye.run({
    directiveId: 'team/work',
    onEvent: ({ event_type: type, seq, payload }) => {
      if (type === 'cost') booked.set((payload as { total: { turns: number } }).total.turns, seq);
    },
  });
  expect((await run).kind).toBe('completed');
  expect(told.length).toBeGreaterThan(1);
  expect(told.filter(({ turns, seq }) => seq < (booked.get(turns) ?? 0))).toEqual([]);
});

it('no tool of a hook runs before a slow disk has the log', async () => {
  let pending = 0;
  const onSync = async (): Promise<void> => {
    pending += 1;
    for (let pass = 0; pass < 3000; pass += 1) await new Promise((done) => setImmediate(done));
    pending -= 1;
  };
  const lab = await libraryLab([calls(toolUse('rye_file_system_ls', {}, 'c1')), reply('Done.')]);
  const action = { primary: 'execute', item_type: 'tool', item_id: 'shop/buy', params: {} };
  const hooks = [{ id: 'buys', event: 'after_step', action }];
  mkdirSync(path.join(lab.project, '.ai/config/agent'), { recursive: true });
  writeFileSync(path.join(lab.project, '.ai/config/agent/hooks.yaml'), JSON.stringify({ hooks }));
  await lab.open().items.sign('config', 'agent/hooks');
  await lab.directive('work', ['shop/buy', 'rye/file-system/ls']);
  const bought: number[] = [];
  const rye = lab.open({
    store: ({ clock, ids }) => openMemoryStore({ clock, ids, onSync }),
    tools: {
      'shop/buy': defineTool({
        description: 'Buys.',
        inputSchema: { type: 'object' },
        execute: async () => {
          bought.push(pending);
          return 'bought';
        },
      }),
    },
  });
  const behavior = { nudge: false };
  await rye.run({ directiveId: 'team/work', acknowledge: ['elevated'], behavior });
  expect(bought).toEqual([0]);
});
