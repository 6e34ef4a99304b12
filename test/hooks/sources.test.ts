import { describe, expect, it } from 'vitest';
import { mergeLayers } from '../../src/kernel/hooks/sources.ts';
import { hooksFrom } from './helpers.ts';

const hook = (id: string, description = '') => ({
  id,
  event: 'after_step',
  description,
  action: { emit: 'x' },
});
const off = (id: string) => ({ id, enabled: false });

const table = (...args: Parameters<typeof mergeLayers>) =>
  mergeLayers(...args).hooks.map(
    ({ id, layer, enabled, origin }) => `${layer} ${id} ${enabled ? 'on' : 'off'} ${origin}`,
  );

describe('mergeLayers', () => {
  it('puts lower layers first and keeps the order within one', () => {
    const merged = table({
      infra: hooksFrom(4, hook('i')),
      project: hooksFrom(3, hook('p2'), hook('p1')),
      builtin: hooksFrom(2, hook('b')),
      directive: hooksFrom(1, hook('d')),
      user: hooksFrom(0, hook('u')),
    });
    expect(merged).toEqual([
      '0 u on layer0.yaml:1',
      '1 d on layer1.yaml:1',
      '2 b on layer2.yaml:1',
      '3 p2 on layer3.yaml:1',
      '3 p1 on layer3.yaml:2',
      '4 i on layer4.yaml:1',
    ]);
  });

  it('lets the later of two hooks with one id replace the earlier, in its place', () => {
    expect(table({ directive: hooksFrom(1, hook('a'), hook('b'), hook('a', 'again')) })).toEqual([
      '1 a on layer1.yaml:3',
      '1 b on layer1.yaml:2',
    ]);
  });

  it('lets the later of two hooks with one id switch the earlier off, and keeps a builtin in the table', () => {
    const twice = (layer: 1 | 2) => hooksFrom(layer, hook('a', 'first'), hook('b'), off('a'));
    const { hooks, warnings } = mergeLayers({ builtin: twice(2), directive: twice(1) });
    const shown = hooks.map(({ id, layer, enabled, description, actions }) => {
      return [layer, id, enabled, description, actions.length];
    });
    expect(shown).toEqual([
      [1, 'a', false, 'first', 1],
      [1, 'b', true, '', 1],
      [2, 'a', false, 'first', 1],
      [2, 'b', true, '', 1],
    ]);
    expect(warnings).toEqual([]);
  });

  it('lets user and project replace a builtin, in their own layer', () => {
    expect(
      table({ builtin: hooksFrom(2, hook('a'), hook('b')), project: hooksFrom(3, hook('a')) }),
    ).toEqual(['2 b on layer2.yaml:2', '3 a on layer3.yaml:1']);
    expect(table({ builtin: hooksFrom(2, hook('a')), user: hooksFrom(0, hook('a')) })).toEqual([
      '0 a on layer0.yaml:1',
    ]);
  });

  it('lets user and project switch a builtin off, and keeps it in the table', () => {
    for (const source of [{ user: hooksFrom(0, off('a')) }, { project: hooksFrom(0, off('a')) }]) {
      expect(table({ builtin: hooksFrom(2, hook('a')), ...source })).toEqual([
        '2 a off layer0.yaml:1',
      ]);
    }
  });

  it('replaces a builtin by a whole hook that is off', () => {
    const project = hooksFrom(3, { ...hook('a'), enabled: false });
    expect(table({ builtin: hooksFrom(2, hook('a')), project })).toEqual(['3 a off layer3.yaml:1']);
  });

  it('gives a directive no power over builtin hooks', () => {
    expect(
      table({ builtin: hooksFrom(2, hook('a')), directive: hooksFrom(1, hook('a'), off('b')) }),
    ).toEqual(['1 a on layer1.yaml:1', '2 a on layer2.yaml:1']);
    expect(table({ builtin: hooksFrom(2, hook('a')), directive: hooksFrom(1, off('a')) })).toEqual([
      '2 a on layer2.yaml:1',
    ]);
  });

  it.each([
    ['user', 0, hook('i')],
    ['user', 0, off('i')],
    ['project', 3, hook('i')],
    ['project', 3, off('i')],
  ] as const)('refuses a %s hook in the place of an infra hook', (source, layer, raw) => {
    const sources = { infra: hooksFrom(4, hook('i')), [source]: hooksFrom(layer, raw) };
    expect(() => mergeLayers(sources)).toThrow(
      expect.objectContaining({
        code: 'hook_invalid',
        message: expect.stringContaining(`layer${layer}.yaml:1`),
      }),
    );
  });

  it('warns when there is nothing to switch off', () => {
    const { warnings } = mergeLayers({
      builtin: hooksFrom(2, hook('default_fail_limit')),
      project: hooksFrom(3, off('default_fail_limits')),
    });
    expect(warnings).toEqual([
      'layer3.yaml:1: unknown builtin hook "default_fail_limits". Did you mean default_fail_limit?',
    ]);
  });
});
