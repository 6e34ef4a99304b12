import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { composePresets, type Preset } from '../../src/kernel/app/presets.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

describe('composePresets', () => {
  // Requirement: presets-merge
  it('merges named maps, replaces lists and scalars, and null unsets', () => {
    const below: Preset = {
      model: 'fast',
      limits: { turns: 5, spend: 1 },
      inputs: { a: 1, b: 2 },
      acknowledge: ['write'],
      behavior: {
        nudge: false,
        dedup_tools: ['a', 'b'],
        tool_budgets: { 'rye/bash': 5, 'rye/search': { max: 2 } },
        schema: { type: 'object', required: ['a'] },
      },
    };
    const above: Preset = {
      model: null,
      limits: { turns: 9 },
      inputs: { b: null },
      acknowledge: ['write', 'elevated'],
      behavior: {
        nudge: null,
        // JavaScript may write names so
        ...({ dedupTools: ['c'], toolBudgets: { 'rye/bash': null, 'rye/execute': 1 } } as object),
        schema: { type: 'object' },
      },
    };
    expect(composePresets(below, above)).toEqual({
      model: null,
      limits: { turns: 9, spend: 1 },
      inputs: { a: 1, b: null },
      acknowledge: ['write', 'elevated'],
      behavior: {
        nudge: null,
        dedup_tools: ['c'],
        tool_budgets: { 'rye/bash': null, 'rye/search': { max: 2 }, 'rye/execute': 1 },
        schema: { type: 'object' },
      },
    });
    expect(below.behavior?.nudge).toBe(false);
  });

  it('is the same however it is grouped', () => {
    const [a, b, c]: [Preset, Preset, Preset] = [
      { model: 'x', behavior: { tool_budgets: { t: 1 }, nudge: true } },
      { model: null, behavior: { tool_budgets: { t: null, u: 2 } } },
      { limits: { turns: 1 }, behavior: { tool_budgets: { t: 3 } } },
    ];
    const flat = composePresets(a, b, c);
    expect(composePresets(composePresets(a, b), c)).toEqual(flat);
    expect(composePresets(a, composePresets(b, c))).toEqual(flat);
    expect(composePresets()).toEqual({});
  });

  // Requirement: handlers-compose
  it('keeps the handlers of every preset, in order', () => {
    const one = (): void => undefined;
    const two = (): void => undefined;
    const { handlers } = composePresets(
      { handlers: { note: one } },
      { handlers: { note: [two, one], cost: two } },
    );
    expect(handlers).toEqual({ note: [one, two, one], cost: [two] });
  });

  it('refuses what it does not know', () => {
    expect(() => composePresets({ behaviour: {} } as Preset)).toThrow('no member "behaviour"');
    expect(() => composePresets({ handlers: { notes: () => undefined } } as Preset)).toThrow(
      'handler event "notes"',
    );
  });
});

describe('a preset', () => {
  // Requirement: presets-are-reusable
  it('gives a run what it holds', async () => {
    const lab = await libraryLab([
      calls(toolUse('shop_price', { item: 'tea', count: '2' }, 'a')),
      reply('Done.'),
      reply('Done.'),
    ]);
    await lab.directive('work', ['shop/price'], { metadata: '<limits turns="9" />' });
    const told: unknown[] = [];
    const price: NonNullable<Preset['tools']>[string] = {
      description: 'The price of an item.',
      inputSchema: {
        type: 'object',
        properties: { item: { type: 'string' }, count: { type: 'integer' } },
        required: ['item'],
      },
      traits: { reads_only: true, network: false, risk: 'safe' },
      execute: (input) => {
        told.push(input);
        return { cents: 250 };
      },
    };
    const rye = lab.open({ preset: { tools: { 'shop/price': price }, limits: { turns: 5 } } });
    const preset = composePresets(
      { behavior: { max_tokens: 100 }, limits: { turns: 4 } },
      { behavior: { max_tokens: null } },
    );
    const outcome = await rye.run({ directiveId: 'team/work', preset, limits: { tokens: 5000 } });
    expect(outcome.kind).toBe('completed');
    expect(told).toEqual([{ item: 'tea', count: 2 }]);
    expect(JSON.stringify(lab.server.requests[1]?.body?.messages.at(-1))).toContain(
      JSON.stringify('{"cents":250}'),
    );
    const plan = await rye.threads.plan({ directiveId: 'team/work', preset });
    expect(plan.limits).toMatchObject({ turns: 4 });
    expect(plan.behavior).toEqual({});
    const without = await rye.run({ directiveId: 'team/work', tools: { 'shop/price': null } });
    // a granted tool that the program does not bring is unknown, and unknown tools are elevated
    expect(without).toMatchObject({ kind: 'failed', error: { code: 'acknowledge_required' } });
  });

  it('needs no acknowledgement for a wildcard over safe tools of the program, and reaches a new tool in the next plan', async () => {
    const lab = await libraryLab([
      calls(toolUse('lab_grow', {}, 'a')),
      calls(
        toolUse('rye_execute', { item_type: 'tool', item_id: 'lab/late', parameters: {} }, 'b'),
      ),
      reply('Done.'),
    ]);
    await lab.directive('work', ['lab/*']);
    const ran = path.join(lab.project, 'ran');
    const late = path.join(lab.project, '.ai/tools/lab/late.py');
    const grow = {
      description: 'Adds a tool to the project.',
      inputSchema: { type: 'object' },
      traits: { reads_only: true, network: false, risk: 'safe' },
      execute: async () => {
        mkdirSync(path.dirname(late), { recursive: true });
        const metadata = `__version__ = "1.0.0"\n__category__ = "lab"\n__tool_description__ = "Late."\n`;
        const traits = `__traits__ = {"reads_only": True, "network": False, "risk": "safe"}\n`;
        writeFileSync(late, `${metadata}${traits}open(${JSON.stringify(ran)}, "w")\n`);
        const [signed] = await rye.items.sign('tool', 'lab/late');
        return signed?.status ?? 'nothing';
      },
    } as const;
    const rye = lab.open({ preset: { tools: { 'lab/grow': grow } } });
    const plan = await rye.threads.plan({ directiveId: 'team/work' });
    expect(plan.risks).toEqual([{ capability: 'rye.execute.tool.lab.*', risk: 'safe' }]);
    expect(await rye.run({ directiveId: 'team/work' })).toMatchObject({ kind: 'completed' });
    const said = lab.server.requests.map(({ body }) => JSON.stringify(body?.messages.at(-1)));
    expect(said[1]).toContain('signed');
    expect(said[2]).toContain('refused unless acknowledged');
    expect(existsSync(ran)).toBe(false);
    const later = await rye.threads.plan({ directiveId: 'team/work' });
    expect(later.risks).toEqual([{ capability: 'rye.execute.tool.lab.*', risk: 'safe' }]);
  });

  it('cannot give a tool that the directive does not grant, or of unknown risk', async () => {
    const lab = await libraryLab([reply('Done.')]);
    await lab.directive('plain');
    await lab.directive('work', ['shop/any']);
    const any = { description: 'Any.', inputSchema: { type: 'object' }, execute: () => 'x' };
    const rye = lab.open({ preset: { tools: { 'shop/any': any } } });
    const plan = await rye.threads.plan({ directiveId: 'team/plain' });
    expect(plan.tools).toEqual([]);
    const outcome = await rye.run({ directiveId: 'team/work' });
    expect(outcome).toMatchObject({ kind: 'failed', error: { code: 'acknowledge_required' } });
  });
});
