import { describe, expect, it } from 'vitest';
import { DEFAULT_PROJECT_BOUND, grantFile, mayRun } from '../../src/kernel/hooks/sources.ts';
import { hooksFrom } from './helpers.ts';

const fetches = (id: string, rest: object = {}) => ({
  id,
  event: 'thread_started',
  action: { primary: 'fetch', item_type: 'knowledge', item_id: `k/${id}` },
  ...rest,
});

describe('grantFile', () => {
  it('grants what the actions name literally when the file declares nothing', () => {
    const hooks = hooksFrom(3, fetches('a'), {
      ...fetches('b'),
      action: { primary: 'fetch', item_type: 'knowledge', item_id: 'k/${directive}' },
    });
    const granted = grantFile(hooks, { declared: undefined, bound: DEFAULT_PROJECT_BOUND });
    expect(granted.map(({ capabilities }) => capabilities)).toEqual([
      ['rye.fetch.knowledge.k.a'],
      undefined,
    ]);
  });

  it("prefers a hook's own capabilities to the file's, and keeps both within the bound", () => {
    const hooks = hooksFrom(
      3,
      fetches('a'),
      fetches('b', { capabilities: ['rye.fetch.knowledge.x', 'rye.execute.tool.rye.bash'] }),
    );
    const granted = grantFile(hooks, {
      declared: ['rye.fetch.knowledge.*', 'rye.execute.tool.*'],
      bound: ['rye.fetch.*'],
    });
    expect(granted.map(({ capabilities }) => capabilities)).toEqual([
      ['rye.fetch.knowledge.*'],
      ['rye.fetch.knowledge.x'],
    ]);
  });

  it('grants nothing beyond an empty bound', () => {
    const [hook] = grantFile(hooksFrom(3, fetches('a')), { declared: ['rye.*'], bound: [] });
    expect(hook?.capabilities).toBeUndefined();
  });
});

describe('mayRun', () => {
  it('adds the capabilities of the hook to the capabilities of its thread', () => {
    const [hook] = hooksFrom(3, fetches('a', { capabilities: ['rye.fetch.knowledge.k.a'] }));
    if (hook === undefined) throw new Error('the hook was not read');
    const need = (id: string) => ({ verb: 'fetch', item_type: 'knowledge', item_id: id }) as const;
    expect(mayRun(hook, [], need('k/a'))).toBe(true);
    expect(mayRun(hook, [], need('k/b'))).toBe(false);
    expect(mayRun(hook, ['rye.fetch.knowledge.k.b'], need('k/b'))).toBe(true);
  });
});
