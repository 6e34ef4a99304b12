import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { CallContext, HandlerMap, ResultContext } from '../../src/kernel/hooks/handlers.ts';
import { toolUse } from '../helpers/wire-server.ts';
import { made, payloads, toolOf } from './made-calls.ts';

const price = (input: object, id: string) => toolUse('shop_price', input, id);
const COUNTED = {
  type: 'object',
  properties: { count: { type: 'integer' } },
  required: ['count'],
} as const;

describe('a gate of the program', () => {
  it('refuses a call, which does not run, and the model reads the reason', async () => {
    let ran = 0;
    const { results, events } = await made([[price({}, 'a')]], {
      tools: { 'shop/price': toolOf(() => (ran += 1)) },
      handlers: { tool_gate: () => ({ block: 'not on Sundays' }) },
    });
    expect(results).toEqual({ a: 'Blocked: not on Sundays' });
    expect([ran, payloads(events, 'tool_call_start')]).toEqual([0, []]);
  });

  it('that refuses wins over results, of itself and of gates before and after it', async () => {
    const { results } = await made([[price({}, 'a')]], {
      tools: { 'shop/price': toolOf(() => 'ran') },
      handlers: {
        tool_gate: [
          () => ({ result: 'before' }),
          () => ({ block: 'no', result: 'its own' }),
          () => ({ result: 'after' }),
        ],
      },
    });
    expect(results).toEqual({ a: 'Blocked: no' });
  });

  it('may give the result: the tool does not run, and the result is transformed and settled', async () => {
    let ran = 0;
    const { results, events } = await made([[price({}, 'a')]], {
      tools: { 'shop/price': toolOf(() => (ran += 1)) },
      handlers: {
        tool_gate: () => ({ result: 'known' }),
        tool_transform: ({ content }) => ({ result: `${JSON.stringify(content)}!` }),
      },
    });
    expect(results).toEqual({ a: '[{"type":"text","text":"known"}]!' });
    expect(ran).toBe(0);
    expect(payloads(events, 'tool_settled')).toMatchObject([
      { call_id: 'a', outcome: 'substituted' },
    ]);
  });

  it('judges a call of an unknown tool, before anything answers for it', async () => {
    const asked: string[] = [];
    const { results } = await made([[toolUse('nope', { x: 1 }, 'a')]], {
      handlers: {
        tool_gate: ({ tool }) => {
          asked.push(`gate ${tool}`);
          return { block: 'not here' };
        },
        tool_unknown: () => {
          asked.push('unknown');
          return { result: 'It moved.' };
        },
      },
    });
    expect(results).toEqual({ a: 'Blocked: not here' });
    expect(asked).toEqual(['gate nope']);
  });

  it('is asked before the arguments are validated, and a call that does not fit never starts', async () => {
    const order: string[] = [];
    const { results } = await made([[price({ count: 'many' }, 'a')], [price({ count: 2 }, 'b')]], {
      tools: { 'shop/price': toolOf(() => 'ran', COUNTED) },
      handlers: {
        tool_gate: ({ call_id }) => void order.push(`gate ${call_id}`),
        tool_call_start: ({ payload }) => void order.push(`start ${payload.call_id}`),
        tool_settled: ({ payload }) => void order.push(`${payload.outcome} ${payload.call_id}`),
      },
    });
    expect(order).toEqual(['gate a', 'invalid a', 'gate b', 'start b', 'ok b']);
    expect(results['a']).toContain('Validation error: ');
  });

  it('knows the call, the turn and the names, as results and events of the call do', async () => {
    const known: unknown[] = [];
    const note = (at: string, { call_id, turn, name, tool }: ResultContext | CallContext): void =>
      void known.push([at, call_id, turn, name, tool]);
    const { events } = await made([[price({}, 'a')], [price({}, 'b')]], {
      tools: { 'shop/price': toolOf(() => 'ran') },
      handlers: {
        tool_gate: (call) => note('gate', call),
        tool_transform: (call) => note('result', call),
      },
    });
    expect(known).toEqual([
      ['gate', 'a', 1, 'shop_price', 'shop/price'],
      ['result', 'a', 1, 'shop_price', 'shop/price'],
      ['gate', 'b', 2, 'shop_price', 'shop/price'],
      ['result', 'b', 2, 'shop_price', 'shop/price'],
    ]);
    expect(payloads(events, 'tool_settled').map(({ call_id }) => call_id)).toEqual(['a', 'b']);
  });

  it('sees the counts of the calls before its batch', async () => {
    const counts: unknown[] = [];
    await made([[price({}, 'a'), price({}, 'b')], [price({}, 'c')]], {
      tools: { 'shop/price': toolOf(() => 'ran') },
      handlers: { tool_gate: ({ run_tool_counts }) => void counts.push({ ...run_tool_counts }) },
    });
    expect(counts).toEqual([{}, {}, { 'shop/price': 2 }]);
  });

  it('that throws refuses the call; an observer that throws changes nothing', async () => {
    const broken = (): never => {
      throw new Error('broken');
    };
    const { results } = await made([[price({ n: 1 }, 'a'), price({ n: 2 }, 'b')]], {
      tools: { 'shop/price': toolOf(() => 'ran') },
      handlers: {
        tool_gate: ({ call_id }) => (call_id === 'a' ? broken() : undefined),
        tool_settled: broken,
        event: broken,
      },
    });
    expect(results['a']).toContain('Blocked: ');
    expect(results['b']).toBe('ran');
  });

  it('of a tool of an MCP server is the gate of every tool, and names it by its id', async () => {
    const seen: string[] = [];
    const server = path.resolve('node_modules/@modelcontextprotocol/server-memory/dist/index.js');
    const handlers: HandlerMap = {
      tool_gate: ({ tool, name }) => {
        seen.push(`${name} is ${tool}`);
        return { block: 'not today' };
      },
    };
    const { results } = await made(
      [[toolUse('mcp_memory_read_graph', {}, 'a')]],
      { grants: ['mcp/memory/read_graph'], acknowledge: ['elevated'], handlers },
      { mcpServers: { memory: { command: process.execPath, args: [server] } } },
    );
    expect(seen).toEqual(['mcp_memory_read_graph is mcp/memory/read_graph']);
    expect(results).toEqual({ a: 'Blocked: not today' });
  });
});

describe('a call of an unknown tool', () => {
  const unknown = [[toolUse('nope', {}, 'a')]];

  it('is answered by tool_unknown, which may keep tool_error from being asked', async () => {
    const asked: string[] = [];
    const tool_error = ({ error }: { error: { message: string } }) =>
      void asked.push(error.message);
    const plain = await made(unknown, { handlers: { tool_error } });
    expect(plain.results['a']).toMatch(/^Unknown tool: nope\./);
    expect(asked).toEqual([plain.results['a']]);
    const quiet = await made(unknown, {
      handlers: { tool_error, tool_unknown: () => ({ result: 'It moved.', suppress_error: true }) },
    });
    expect(quiet.results).toEqual({ a: 'It moved.' });
    expect(asked).toHaveLength(1);
    const other = await made(unknown, {
      handlers: { tool_error: () => ({ result: 'Use the other.' }) },
    });
    expect(other.results).toEqual({ a: 'Use the other.' });
  });
});

describe('arguments', () => {
  const all = {
    type: 'object',
    properties: {
      flag: { type: 'boolean' },
      count: { type: 'number' },
      list: { type: 'array' },
      name: { type: 'string' },
      deep: { type: 'object', properties: { count: { type: 'number' } } },
    },
  } as const;

  it('are coerced to booleans, numbers, JSON and text, at the top level only', async () => {
    const got: unknown[] = [];
    const tools = { 'shop/price': toolOf((input) => (got.push(input), 'ran'), all) };
    const given = { flag: 'yes', count: '4.5', list: '[1,2]', name: 7 };
    const { results, events } = await made(
      [[price(given, 'a'), price({ deep: { count: '1' } }, 'b')]],
      { tools },
    );
    expect(got).toEqual([{ flag: true, count: 4.5, list: [1, 2], name: '7' }]);
    expect(results['b']).toContain('Validation error: ');
    const settled = payloads(events, 'tool_settled');
    expect(settled.find(({ call_id }) => call_id === 'a')?.coerced).toHaveLength(4);
    expect(settled.find(({ call_id }) => call_id === 'b')?.outcome).toBe('invalid');
  });

  it.each([
    ['missing', {}],
    ['null', { count: null }],
  ])('are refused if a required member is %s', async (_, input) => {
    let ran = 0;
    const { results } = await made([[price(input, 'a')]], {
      tools: { 'shop/price': toolOf(() => (ran += 1), COUNTED) },
    });
    expect(results['a']).toMatch(/^Validation error: .*count/s);
    expect(ran).toBe(0);
  });

  it('that were refused or changed are told in the event of the call, with the reason', async () => {
    const settled: unknown[] = [];
    await made([[price({ count: 'many' }, 'a'), price({ count: '2' }, 'b')]], {
      tools: { 'shop/price': toolOf(() => 'ran', COUNTED) },
      handlers: {
        tool_settled: ({ payload: { outcome, reason, coerced } }) =>
          void settled.push([outcome, reason, coerced]),
      },
    });
    expect(settled).toEqual([
      ['invalid', expect.stringContaining('count') as string, undefined],
      ['ok', undefined, [expect.stringContaining('count') as string]],
    ]);
  });
});
