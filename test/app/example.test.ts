import { expect, it } from 'vitest';
import {
  completedOrThrow,
  defineDirective,
  defineTool,
  openMemoryStore,
  type ProviderKind,
} from '../../src/index.ts';
import { mockModel } from '../../testing/index.ts';
import { libraryLab } from './library-lab.ts';

const price = defineTool({
  description: 'Returns the price of an item.',
  inputSchema: {
    type: 'object',
    properties: { item: { type: 'string' }, count: { type: 'integer' } },
    required: ['item'],
  },
  outputSchema: { type: 'object', properties: { cents: { type: 'integer' } }, required: ['cents'] },
  traits: { reads_only: true, network: false, risk: 'safe' },
  execute: ({ item, count = 1 }) => ({ cents: item.length * 100 * count }),
});

/** Returns what it was asked about, as a program's own model would. */
const clerk: ProviderKind = {
  traits: { embedded: true, replayable: false, needsTools: false },
  open: ({ config }) => ({
    name: config.name,
    async *stream({ model }) {
      const call = { call_id: 'call-1', name: 'directive_return', input: { ok: true } } as const;
      yield { type: 'start', model };
      yield { type: 'toolcall_start', ...call };
      yield { type: 'toolcall_end', call_id: call.call_id };
      yield { type: 'finish', reason: 'tool_calls', content: [{ type: 'tool_call', ...call }] };
    },
  }),
};

const check = defineDirective({
  id: 'team/check',
  description: 'Checks a total.',
  instructions: 'Is {input:cents} plausible?',
  inputs: { cents: { type: 'integer', required: true } },
  outputs: { ok: { type: 'boolean', required: true } },
  model: { provider: 'clerk' },
});

it('a program runs its own directives with its own tools, provider, store and subscriber', async () => {
  const model = mockModel([
    { calls: [{ tool: 'shop/price', input: { item: 'tea', count: 2 } }] },
    {
      calls: [
        {
          tool: 'rye/execute',
          input: { item_type: 'directive', item_id: check.id, parameters: { cents: 600 } },
        },
      ],
    },
    { calls: [{ tool: 'directive_return', input: { total: 600 } }] },
  ]);
  const seen: string[] = [];
  const rye = (await libraryLab()).open({
    store: openMemoryStore,
    providers: { mock: model.kind, clerk },
    tools: { 'shop/price': price },
    subscribers: [({ event_type }) => void seen.push(event_type)],
    preset: { directives: [check] },
  });
  const order = await rye.defineDirective({
    id: 'team/order',
    description: 'Orders something.',
    instructions: 'Order {input:count} of {input:item}.',
    inputs: { item: { required: true }, count: { type: 'integer', default: 1 } },
    outputs: { total: { type: 'integer', required: true }, note: { type: 'string' } },
    permissions: { execute: { tool: 'shop/price', directive: check.id } },
    limits: { turns: 6, spawns: 1 },
  });

  const run = rye.start({ directive: order, inputs: { item: 'tea', count: 2 }, provider: 'mock' });
  const calls: string[] = [];
  const answers: number[] = [];
  for await (const event of run) {
    if (event.event_type === 'tool_call_start') calls.push(event.payload.tool);
    if (event.event_type === 'child.cost') answers.push(event.payload.total.turns);
  }
  const { outputs } = completedOrThrow(await run.outcome);
  const total: number = outputs.total;

  expect(total).toBe(600);
  expect(outputs.note?.length).toBeUndefined();
  expect(calls).toEqual(['shop/price', 'rye/execute']);
  expect(answers).toEqual([1]);
  expect(seen).toContain('child.thread_finished');
  const threads = await rye.threads.list();
  expect(threads.map(({ directive, status }) => `${directive} ${status}`)).toEqual([
    'team/check completed',
    'team/order completed',
  ]);
});
