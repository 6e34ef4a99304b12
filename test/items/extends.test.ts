import { describe, expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { parseDistinctHooks } from '../../src/kernel/hooks/declaration.ts';
import { parseDirective } from '../../src/kernel/items/directive.ts';
import type { LoadedDirective } from '../../src/kernel/items/extends.ts';
import { composeChain, walkChain } from '../../src/kernel/items/extends.ts';
import { directiveFile, rejectionOf } from './helpers.ts';

function loaded(id: string, metadata: string, rest = '', body = ''): LoadedDirective {
  return {
    id,
    directive: parseDirective(
      directiveFile(`<metadata>${metadata}</metadata>${rest}`, body),
      `${id}.md`,
    ),
  };
}

function extending(id: string, parent?: string): LoadedDirective {
  const attributes = parent === undefined ? '' : ` extends="${parent}"`;
  return { id, directive: parseDirective(directiveFile('', '', attributes), `${id}.md`) };
}

function loader(...all: LoadedDirective[]) {
  return async (id: string): Promise<LoadedDirective> => {
    const found = all.find((one) => one.id === id);
    if (found === undefined) throw new RyeError('item_not_found', `unknown directive ${id}`);
    return found;
  };
}

describe('walkChain', () => {
  const ids = (chain: readonly LoadedDirective[]) => chain.map(({ id }) => id);

  it('goes from the leaf to the root and returns root first', async () => {
    const load = loader(extending('leaf', 'mid'), extending('mid', 'root'), extending('root'));
    expect(ids(await walkChain('leaf', load))).toEqual(['root', 'mid', 'leaf']);
    expect(ids(await walkChain('root', load))).toEqual(['root']);
  });

  it('lets routing replace the extends of the leaf only', async () => {
    const load = loader(extending('leaf', 'mid'), extending('mid', 'root'), extending('root'));
    expect(ids(await walkChain('leaf', load, 'root'))).toEqual(['root', 'leaf']);
    expect(
      ids(
        await walkChain('root', load, 'mid').catch(
          (error: RyeError) => error.details?.['chain'] as [],
        ),
      ).length,
    ).toBeGreaterThan(0);
  });

  it('refuses a circle and names it', async () => {
    const load = loader(extending('a', 'b'), extending('b', 'c'), extending('c', 'b'));
    const error = await rejectionOf(walkChain('a', load));
    expect(error.code).toBe('extends_cycle');
    expect(error.message).toContain('a → b → c → b');
    expect((await rejectionOf(walkChain('s', loader(extending('s', 's'))))).message).toContain(
      's → s',
    );
  });

  it('allows 16 directives and refuses 17', async () => {
    const chain = (length: number) =>
      Array.from({ length }, (_, at) =>
        extending(`d${at}`, at + 1 < length ? `d${at + 1}` : undefined),
      );
    expect(await walkChain('d0', loader(...chain(16)))).toHaveLength(16);
    const error = await rejectionOf(walkChain('d0', loader(...chain(17))));
    expect(error.code).toBe('extends_too_deep');
    expect(error.message).toContain('d0 → d1');
  });

  it('passes on what loading throws', async () => {
    expect((await rejectionOf(walkChain('a', loader(extending('a', 'gone'))))).code).toBe(
      'item_not_found',
    );
  });
});

describe('composeChain', () => {
  const root = loaded(
    'root',
    `<description>R</description><author>ra</author><category>rc</category><model tier="high" thinking="low"/>
<limits turns="9" tokens="100"/><permissions ceiling="true"><fetch>*</fetch><acknowledge risk="elevated">ok</acknowledge></permissions>
<hooks><hook id="h1" event="error"/><hook id="h2" event="limit"/></hooks>
<context><system>s1</system><before>b1</before><suppress>x</suppress></context>
<continuation_directive>next</continuation_directive><behavior a="1" b="1"/>`,
    '<inputs><input name="ri"/></inputs><outputs><output name="ro"/></outputs>',
    'Root body',
  );
  const middle = loaded(
    'mid',
    `<limits turns="5"/><hooks><hook id="h1" event="error" wrap="false"/></hooks>
<context><system>s2</system><system>s1</system><before>s1</before><suppress>y</suppress><suppress>x</suppress></context>`,
  );
  const leaf = loaded(
    'leaf',
    '<description>L</description><limits spend="1"/><behavior b="2"/>',
    '<outputs><output name="lo"/></outputs>',
    'Leaf body',
  );

  it('adds up inputs by name, the nearest declaration of each', () => {
    const child = loaded(
      'child',
      '<description>C</description>',
      '<inputs><input name="ci"/><input name="ri" default="1"/></inputs>',
    );
    const { inputs, origins } = composeChain([root, child]);
    expect(inputs.map(({ name, default: value }) => [name, value])).toEqual([
      ['ri', '1'],
      ['ci', undefined],
    ]);
    expect(origins['inputs.ri']).toMatch(/^child\.md/);
  });

  it('inherits where the leaf is silent and never the body, outputs or description', () => {
    const composed = composeChain([root, middle, leaf]);
    expect(composed).toMatchObject({
      description: 'L',
      author: '',
      category: '',
      body: 'Leaf body',
      model: { tier: 'high', thinking: 'low' },
      capabilities: ['rye.fetch.*'],
      acknowledgements: [{ risk: 'elevated' }],
      continuationDirective: 'next',
      behavior: { a: 1, b: 2 },
      suppress: ['x', 'y'],
    });
    expect(composed.inputs.map(({ name }) => name)).toEqual(['ri']);
    expect(composed.outputs.map(({ name }) => name)).toEqual(['lo']);
    expect(composed.permissionsXml).toContain('<fetch>*</fetch>');
  });

  it('takes each limit from the nearest that declares it', () => {
    const { rawLimits } = composeChain([root, middle, leaf]);
    expect(Object.fromEntries(rawLimits.map(({ name, value }) => [name, value]))).toEqual({
      spend: 1,
      turns: 5,
      tokens: 100,
    });
  });

  it('concatenates context root first, each item once per position', () => {
    const { context } = composeChain([root, middle, leaf]);
    expect(context.system.map(({ id }) => id)).toEqual(['s1', 's2']);
    expect(context.before.map(({ id }) => id)).toEqual(['b1', 's1']);
    expect(context.after).toEqual([]);
  });

  it('keeps all hooks, ancestors first, the descendant replacing the same id in place', () => {
    const { rawHooks } = composeChain([root, middle, leaf]);
    expect(rawHooks.map(({ value, origin }) => [value['id'], value['wrap'], origin])).toEqual([
      ['h1', false, 'mid.md:3'],
      ['h2', undefined, 'root.md:5'],
    ]);
  });

  it('keeps both of two hooks that would hide a guard, so that reading them is an error', () => {
    const gate = '<hook id="g" event="tool_gate"><control action="fail"/></hook>';
    const after = '<hook id="g" event="after_complete"><emit custom_type="x"/></hook>';
    const read = (...hooks: readonly string[]) =>
      parseDistinctHooks(
        composeChain(hooks.map((hook, at) => loaded(`d${at}`, `<hooks>${hook}</hooks>`))).rawHooks,
        1,
      );
    expect(() => read(gate + gate)).toThrow(/the id "g" is that of the hook at d0\.md:3/);
    expect(() => read(gate, after)).toThrow(/replaced only by a gate|the id "g"/);
    expect(read(gate, gate).map(({ origin }) => origin)).toEqual(['d1.md:3']);
    expect(read(after, after)).toHaveLength(1);
  });

  it('grants nothing if the leaf declares empty permissions', () => {
    for (const empty of ['<permissions></permissions>', '<permissions/>']) {
      expect(composeChain([root, loaded('none', empty)]).capabilities).toEqual([]);
    }
  });

  it('replaces inherited capabilities and their acknowledgements as soon as the leaf declares any', () => {
    const own = loaded('own', '<permissions><sign>*</sign></permissions>');
    const composed = composeChain([root, own]);
    expect(composed.capabilities).toEqual(['rye.sign.*']);
    expect(composed.acknowledgements).toEqual([]);
    expect(composed.permissionsXml).toBe('<permissions><sign>*</sign></permissions>');
    const silent = loaded(
      'silent',
      '<permissions><acknowledge risk="write">mine</acknowledge></permissions>',
    );
    expect(composeChain([root, silent])).toMatchObject({
      capabilities: ['rye.fetch.*'],
      acknowledgements: [{ risk: 'elevated' }, { risk: 'write' }],
    });
  });

  it('reports the ceilings of ancestors as data, the leaf’s own not among them', () => {
    expect(composeChain([root, leaf]).ceilings).toEqual([
      { id: 'root', origin: 'root.md:4', capabilities: ['rye.fetch.*'] },
    ]);
    expect(composeChain([root]).ceilings).toEqual([]);
  });

  it('keeps the demands of an ancestor to ask a person', () => {
    const grants = (tool: string, ask = ''): string =>
      `<permissions><execute><tool${ask}>${tool}</tool></execute></permissions>`;
    const base = loaded('base', grants('rye/bash', ' ask="true"'));
    const child = loaded('child', grants('rye/bash'));
    const composed = composeChain([base, child]);
    expect(composed.capabilities).toEqual(['rye.execute.tool.rye.bash']);
    expect(composed.asks.map(({ capability }) => capability)).toEqual([
      'rye.execute.tool.rye.bash',
    ]);
  });

  it('reports the file that declares each value', () => {
    expect(composeChain([root, middle, leaf]).origins).toMatchObject({
      description: 'leaf.md:3',
      'limits.turns': 'mid.md:3',
      'limits.tokens': 'root.md:4',
      'limits.spend': 'leaf.md:3',
      'model.tier': 'root.md:3',
      capabilities: 'root.md:4',
      'hooks.h1': 'mid.md:3',
      'hooks.h2': 'root.md:5',
      'context.system.s1': 'root.md:6',
      'context.before.s1': 'mid.md:4',
      'behavior.a': 'root.md:7',
      'behavior.b': 'leaf.md:3',
      'inputs.ri': 'root.md:7',
      'outputs.lo': 'leaf.md:3',
      body: 'leaf.md:7',
    });
    expect(composeChain([root, middle, leaf]).origins).not.toHaveProperty('outputs.ro');
  });

  it('collects warnings of the whole chain', () => {
    expect(composeChain([loaded('a', '<nope/>'), loaded('b', '<nah/>')]).warnings).toHaveLength(2);
  });
});
