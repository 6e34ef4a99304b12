import { describe, expect, it } from 'vitest';
import { explainHooks } from '../../src/kernel/hooks/explain.ts';
import { mergeLayers } from '../../src/kernel/hooks/sources.ts';
import { hooksFrom } from './helpers.ts';

describe('explainHooks', () => {
  it('reports for each hook of the event if it would fire and, if not, why', () => {
    const hook = (id: string, rest: object = {}) => ({
      id,
      event: 'error',
      action: { control: 'retry' },
      ...rest,
    });
    const { hooks } = mergeLayers({
      user: hooksFrom(0, hook('u', { condition: { path: 'attempt', op: 'lt', value: 2 } })),
      builtin: hooksFrom(2, hook('b', { enabled: false }), hook('c')),
      project: hooksFrom(3, hook('p'), hook('other', { event: 'limit' })),
      infra: hooksFrom(4, hook('i', { action: { emit: 'x' } })),
    });
    const explained = explainHooks(hooks, { event: 'error', context: { attempt: 3 } });
    expect(
      explained.map(({ hook: { id }, because, reason, decidedBy }) => [
        id,
        reason,
        because[0]?.text,
        decidedBy,
      ]),
    ).toEqual([
      ['u', 'not_matched', 'attempt lt 2 is false: it is 3', undefined],
      ['p', 'fires', undefined, undefined],
      ['b', 'disabled', undefined, undefined],
      ['c', 'fires', undefined, 'p'],
      ['i', 'fires', undefined, undefined],
    ]);
  });

  it('does not take a gate that lets a call through for one that decides', () => {
    const gate = (id: string, control: string) => ({ id, event: 'tool_gate', action: { control } });
    const { hooks } = mergeLayers({
      user: hooksFrom(0, gate('lets', 'continue'), gate('asks', 'ask')),
      project: hooksFrom(3, gate('refuses', 'fail'), gate('late', 'fail')),
    });
    const explained = explainHooks(hooks, { event: 'tool_gate', context: {} });
    expect(explained.map(({ decidedBy }) => decidedBy)).toEqual([
      undefined,
      undefined,
      undefined,
      'refuses',
    ]);
  });

  it('takes no hook of the infra layer for one that decides, and tells none that an earlier one has', () => {
    const gate = (id: string) => ({ id, event: 'tool_gate', action: { control: 'fail' } });
    const { hooks } = mergeLayers({
      infra: hooksFrom(4, gate('infra'), gate('watches')),
      project: hooksFrom(3, gate('refuses'), gate('late')),
    });
    const explained = explainHooks(hooks, { event: 'tool_gate', context: {} });
    const deciders = explained.map(({ hook: { id }, decidedBy }) => [id, decidedBy]);
    expect(Object.fromEntries(deciders)).toEqual({
      infra: undefined,
      watches: undefined,
      refuses: undefined,
      late: 'refuses',
    });
    // alone they decide nothing either
    const alone = explainHooks(
      hooks.filter(({ id }) => id !== 'refuses'),
      { event: 'tool_gate', context: {} },
    );
    expect(alone.map(({ decidedBy }) => decidedBy)).toEqual([undefined, undefined, undefined]);
  });

  it('knows what a directive suppresses', () => {
    const hooks = hooksFrom(3, {
      id: 'a',
      event: 'thread_started',
      condition: { path: 'model', op: 'exists' },
      action: { primary: 'fetch', item_type: 'knowledge', item_id: 'k/a' },
    });
    const call = { event: 'thread_started', context: { model: 'm' } } as const;
    expect(explainHooks(hooks, call, { suppress: ['k/a'] })).toMatchObject([
      { fires: false, reason: 'suppressed' },
    ]);
    expect(explainHooks(hooks, call)).toMatchObject([
      { fires: false, reason: 'denied', missing: 'rye.fetch.knowledge.k.a' },
    ]);
    expect(explainHooks(hooks, call, { capabilities: ['rye.fetch.*'] })).toMatchObject([
      { fires: true, because: [{ node: '', text: 'model exists is true: it is "m"' }] },
    ]);
  });

  it('reports what depends on members that only a run has, and what may decide first', () => {
    const retryable = { path: 'classification.retryable', op: 'eq', value: true };
    const { hooks } = mergeLayers({
      builtin: hooksFrom(2, { id: 'give_up', event: 'error', action: { control: 'fail' } }),
      project: hooksFrom(
        3,
        { id: 'again', event: 'error', condition: retryable, action: { control: 'retry' } },
        {
          id: 'never',
          event: 'error',
          condition: { all: [retryable, { path: 'directive', op: 'eq', value: 'other' }] },
          action: { control: 'retry' },
        },
      ),
    });
    const explained = explainHooks(hooks, { event: 'error', context: { directive: 'mine' } });
    expect(
      explained.map(({ hook, fires, dependsOn, maybeDecidedBy }) => [
        hook.id,
        fires,
        dependsOn,
        maybeDecidedBy,
      ]),
    ).toEqual([
      ['again', undefined, ['classification.retryable'], undefined],
      ['never', false, [], undefined],
      ['give_up', true, [], 'again'],
    ]);
  });
});
