import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { contentBytes } from '../../src/index.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';
import { made, payloads, resultsOf, toolOf } from './made-calls.ts';

const price = (input: object, id: string) => toolUse('shop_price', input, id);
const file = (tool: string, input: object, id: string) =>
  toolUse(`rye_file_system_${tool}`, { path: 'a.txt', ...input }, id);

describe('the results of a batch', () => {
  it('keep the order of the calls, which run side by side; one failure stops no sibling', async () => {
    const ended: unknown[] = [];
    let release = (): void => undefined;
    const last = new Promise<void>((resolve) => {
      release = resolve;
    });
    const tools = {
      'shop/price': toolOf(async ({ n }) => {
        if (n === 1) await last;
        if (n === 3) release();
        ended.push(n);
        if (n === 2) throw new Error('sold out');
        return `price ${JSON.stringify(n)}`;
      }),
    };
    const { results } = await made(
      [[price({ n: 1 }, 'a'), price({ n: 2 }, 'b'), price({ n: 3 }, 'c')]],
      { tools },
    );
    expect(Object.entries(results)).toEqual([
      ['a', 'price 1'],
      ['b', expect.stringContaining('sold out')],
      ['c', 'price 3'],
    ]);
    expect(ended.at(-1)).toBe(1);
  });

  it('after an abort: the running tool is told by its signal, and each call has a result', async () => {
    const lab = await libraryLab([calls(price({}, 'a'), price({}, 'b'))]);
    await lab.directive('work', ['shop/price']);
    let told = 0;
    const answered: string[] = [];
    const run = lab.open().start({
      directiveId: 'team/work',
      handlers: {
        message: ({ payload: { message } }) => {
          if (message.role === 'tool_result') answered.push(message.call_id);
        },
      },
      tools: {
        'shop/price': toolOf(async (_input, { signal }) => {
          const stopped = new Promise((resolve) => {
            signal.addEventListener('abort', resolve, { once: true });
          });
          run.abort('enough');
          await stopped;
          told += 1;
          throw new Error('stopped');
        }),
      },
    });
    expect(await run.outcome).toMatchObject({ kind: 'aborted', reason: 'enough' });
    expect(told).toBeGreaterThan(0);
    expect(answered).toEqual(['a', 'b']);
  });
});

describe('a result', () => {
  it('of a tool that failed is given by tool_error, and then transformed', async () => {
    const { results } = await made([[price({}, 'a')]], {
      tools: { 'shop/price': toolOf(() => Promise.reject(new Error('boom'))) },
      handlers: {
        tool_error: ({ error }) => ({ result: `${error.message}, so ask again` }),
        tool_transform: ({ content }) => ({ result: `${JSON.stringify(content)}!` }),
      },
    });
    expect(results).toEqual({ a: '[{"type":"text","text":"boom, so ask again"}]!' });
  });

  it('is changed with its mark of an error by tool_transform, which knows the size before', async () => {
    const sizes: number[] = [];
    const { results, events } = await made([[price({}, 'a')]], {
      tools: { 'shop/price': toolOf(() => 'ééé') },
      handlers: {
        tool_transform: ({ output_bytes: bytes }) => {
          sizes.push(bytes);
          return { result: 'no', is_error: true };
        },
      },
    });
    expect(results).toEqual({ a: 'no' });
    expect(sizes).toEqual([6]);
    expect(payloads(events, 'tool_settled')).toMatchObject([{ outcome: 'error' }]);
  });

  it('has in its event the size after the change', async () => {
    const { events } = await made([[price({}, 'a'), price({}, 'b')]], {
      tools: { 'shop/price': toolOf(() => 'ééé') },
      handlers: {
        tool_transform: ({ call_id }) => (call_id === 'a' ? { result: 'four' } : undefined),
      },
    });
    const sizes = payloads(events, 'tool_settled').map(({ call_id, output_bytes: bytes }) => [
      call_id,
      bytes,
    ]);
    expect(sizes).toEqual([
      ['a', 4],
      ['b', 6],
    ]);
  });

  it('with an image goes to the model as an image, and its size is what contentBytes counts', async () => {
    const data = 'iVBORw0KGgo=';
    const content = [
      { type: 'text', text: 'A map: é' },
      { type: 'image', media_type: 'image/png', data },
    ] as const;
    const { requests, events } = await made([[price({}, 'a')]], {
      tools: { 'shop/price': toolOf(() => Promise.resolve({ content, is_error: false })) },
    });
    const last = JSON.stringify(requests.at(-1)?.body.messages.at(-1));
    expect(last).toContain(
      `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"${data}"}}`,
    );
    expect(contentBytes(content)).toBe(9 + data.length);
    expect(payloads(events, 'tool_settled')).toMatchObject([{ output_bytes: 9 + data.length }]);
  });
});

describe('budgets of calls', () => {
  const tools = { 'shop/price': toolOf(({ n }) => `price ${JSON.stringify(n)}`) };
  const each = (...ids: readonly string[]) => ids.map((id, n) => [price({ n }, id)]);

  it('let exactly so many calls through, in a batch too, and an event tells the first that is refused', async () => {
    const behavior = { tool_budgets: { 'shop/price': { max: 2, message: 'Enough.' } } };
    const batch = ['a', 'b', 'c'].map((id, n) => price({ n }, id));
    const { results, events } = await made([batch], { tools, behavior });
    expect(results).toEqual({ a: 'price 0', b: 'price 1', c: 'Blocked: Enough.' });
    expect(payloads(events, 'tool_budget_exceeded')).toMatchObject([
      { call_id: 'c', tool: 'shop/price', max: 2, mode: 'block' },
    ]);
  });

  it('that steer tell the model once and refuse after the grace', async () => {
    const behavior = {
      tool_budgets: { 'shop/price': { max: 1, on_exceed: 'steer', grace: 1 } },
    } as const;
    const { results, requests } = await made(each('a', 'b', 'c'), { tools, behavior });
    expect([results['a'], results['b']]).toEqual(['price 0', 'price 1']);
    expect(results['c']).toContain('Blocked: ');
    const told = requests.map(({ body }) =>
      JSON.stringify(body.messages.at(-1)).includes('has had its one call'),
    );
    expect(told.slice(0, 3)).toEqual([false, false, true]);
  });

  it('are used up by calls of unknown tools and calls with wrong arguments', async () => {
    const strict = { 'shop/price': toolOf(() => 'ran', { type: 'object', required: ['n'] }) };
    const behavior = { tool_budgets: { 'shop/price': 1, nope: 1 } };
    const { results } = await made(
      [
        [toolUse('nope', {}, 'a'), price({}, 'b')],
        [toolUse('nope', {}, 'c'), price({ n: 1 }, 'd')],
      ],
      { tools: strict, behavior },
    );
    expect(results['a']).toContain('Unknown tool: nope');
    expect(results['b']).toContain('Validation error: ');
    expect([results['c'], results['d']]).toEqual([
      expect.stringContaining('Blocked: '),
      expect.stringContaining('Blocked: '),
    ]);
  });

  it('come after permissions and gates, and before an earlier result is replayed', async () => {
    let ran = 0;
    const { results } = await made(
      [
        [price({}, 'a')],
        [toolUse('rye_bash', { command: 'id' }, 'b')],
        [price({}, 'c')],
        [price({}, 'd')],
      ],
      {
        tools: { 'shop/price': toolOf(() => `run ${(ran += 1)}`) },
        behavior: { tool_budgets: { 'shop/price': 2, 'rye/bash': 0 }, dedup_tools: ['shop/price'] },
      },
    );
    expect(results['b']).toContain('capability');
    expect([results['a'], results['c']]).toEqual(['run 1', 'run 1']);
    expect(results['d']).toContain('has had its 2 calls');
  });

  it('of the results of a turn ask the model to summarize, once, and cut nothing', async () => {
    const long = { 'shop/price': toolOf(() => 'x'.repeat(60)) };
    const { results, events, requests } = await made(
      [[price({}, 'a')], [price({}, 'b'), price({}, 'c')]],
      {
        tools: long,
        behavior: { tool_output_budget: 100, dedup_tools: null },
      },
    );
    expect(Object.values(results).map((text) => text.length)).toEqual([60, 60, 60]);
    expect(payloads(events, 'output_budget_exceeded')).toMatchObject([
      { turn: 2, bytes: 120, budget: 100 },
    ]);
    const asked = requests.map(({ body }) =>
      JSON.stringify(body.messages.at(-1)).includes('Tool output budget exceeded'),
    );
    expect(asked).toEqual([false, false, true]);
  });
});

describe('repeated work', () => {
  it('is answered by the last result of a listed tool, and by no older one', async () => {
    let ran = 0;
    const { results } = await made(
      [
        [price({ q: 1 }, 'a')],
        [price({ q: 1 }, 'b')],
        [price({ q: 2 }, 'c')],
        [price({ q: 1 }, 'd')],
      ],
      {
        tools: { 'shop/price': toolOf(() => `run ${(ran += 1)}`) },
        behavior: { dedup_tools: ['shop/price'] },
      },
    );
    expect(results).toEqual({ a: 'run 1', b: 'run 1', c: 'run 2', d: 'run 3' });
  });

  it('is a stub for an identical read while its text is in view, and whole once the file changed', async () => {
    const lab = await libraryLab(({ index }) => {
      if (index === 2) writeFileSync(path.join(lab.project, 'a.txt'), 'two\n');
      return index > 2 ? reply('Done.') : calls(file('read', {}, `r${index}`));
    });
    await lab.directive('work', ['rye/file-system/read']);
    writeFileSync(path.join(lab.project, 'a.txt'), 'one\n');
    expect(await lab.open().run({ directiveId: 'team/work' })).toMatchObject({ kind: 'completed' });
    const results = resultsOf(lab.server.requests);
    expect(results['r0']).toContain('one');
    expect(results['r1']).not.toContain('one');
    expect(results['r2']).toContain('two');
  });

  it('needs a read before an edit if the behavior asks for it: edits chain, and a change from outside counts', async () => {
    const edit = (from: string, to: string, id: string) =>
      calls(file('edit', { old_string: from, new_string: to }, id));
    const lab = await libraryLab(({ index }) => {
      if (index === 4) writeFileSync(path.join(lab.project, 'a.txt'), 'other\n');
      const steps = [
        edit('one', 'two', 'unread'),
        calls(file('read', {}, 'read')),
        edit('one', 'two', 'first'),
        edit('two', 'three', 'chained'),
        edit('other', 'four', 'drifted'),
      ];
      return steps[index] ?? reply('Done.');
    });
    await lab.directive('work', ['rye/file-system/*']);
    writeFileSync(path.join(lab.project, 'a.txt'), 'one\n');
    const behavior = { require_read_before_edit: true };
    await lab.open().run({ directiveId: 'team/work', behavior });
    const results = resultsOf(lab.server.requests);
    expect(results['unread']).toContain('it has not been read yet');
    expect(results['chained']).not.toContain('not edited');
    expect(results['drifted']).toContain('was not edited');
    expect(readFileSync(path.join(lab.project, 'a.txt'), 'utf8')).toBe('other\n');
  });
});
