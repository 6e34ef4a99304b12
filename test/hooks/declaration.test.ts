import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import type { HookAction, HookLayer } from '../../src/kernel/core/hook.ts';
import { parseHooks, readHooks } from '../../src/kernel/hooks/declaration.ts';
import { hooksFrom } from './helpers.ts';

const INSTRUCTION = { primary: 'fetch', item_type: 'knowledge', item_id: 'a/b' };

const actionOf = (event: string, action: unknown): HookAction | undefined =>
  hooksFrom(3, { id: 'h', event, action })[0]?.actions[0];

describe('parseHooks', () => {
  it('fills in the members that a hook omits', () => {
    expect(hooksFrom(3, { id: 'h', event: 'thread_started', action: INSTRUCTION })).toEqual([
      {
        id: 'h',
        event: 'thread_started',
        layer: 3,
        actions: [{ kind: 'item', ...INSTRUCTION, params: {} }],
        position: 'before',
        wrap: true,
        enabled: true,
        timeout_seconds: 30,
        origin: 'layer3.yaml:1',
      },
    ]);
  });

  it('keeps the members of a hook', () => {
    const written = {
      id: 'h',
      event: 'thread_started',
      condition: { path: 'directive', value: 'deploy' },
      actions: [INSTRUCTION, { inject: 'Be brief.' }],
      position: 'after',
      wrap: false,
      description: 'd',
      timeout_seconds: 2.5,
      on_error: 'fail',
      capabilities: ['rye.fetch.knowledge.a/*'],
    };
    expect(hooksFrom(0, written)).toEqual([
      {
        ...written,
        layer: 0,
        enabled: true,
        condition: { path: 'directive', op: 'eq', value: 'deploy' },
        actions: [
          { kind: 'item', ...INSTRUCTION, params: {} },
          { kind: 'inject', text: 'Be brief.' },
        ],
        capabilities: ['rye.fetch.knowledge.a.*'],
        origin: 'layer0.yaml:1',
      },
    ]);
  });

  it.each<[string, unknown, unknown]>([
    [
      'error',
      { control: 'retry', delay: 2 },
      { kind: 'control', action: { control: 'retry', delay_seconds: 2 } },
    ],
    ['error', { control: 'retry' }, { kind: 'control', action: { control: 'retry' } }],
    [
      'error',
      { control: 'fail', error: 'no: ${error.message}' },
      { kind: 'control', action: { control: 'fail', error: 'no: ${error.message}' } },
    ],
    [
      'limit',
      { control: 'escalate', limit: 'turns', to: 50 },
      { kind: 'control', action: { control: 'escalate', limit: 'turns', to: 50 } },
    ],
    ['limit', { control: 'handoff' }, { kind: 'control', action: { control: 'handoff' } }],
    [
      'after_step',
      { control: 'suspend', reason: 'wait' },
      { kind: 'control', action: { control: 'suspend', reason: 'wait' } },
    ],
    [
      'context_limit_reached',
      { control: 'compact', instructions: 'keep names' },
      { kind: 'control', action: { control: 'compact', instructions: 'keep names' } },
    ],
    ['resolve_extends', { set_extends: 'base/x' }, { kind: 'set_extends', target: 'base/x' }],
    [
      'after_step',
      { emit: 'mark', data: { t: '${turn}' } },
      { kind: 'emit', custom_type: 'mark', data: { t: '${turn}' } },
    ],
    [
      'after_step',
      { emit: { custom_type: 'mark', data: {} } },
      { kind: 'emit', custom_type: 'mark', data: {} },
    ],
    ['after_step', { inject: 'note' }, { kind: 'inject', text: 'note' }],
    [
      'after_step',
      { execute: { item_type: 'tool', item_id: 'a/b', params: { x: 1 } } },
      { kind: 'item', primary: 'execute', item_type: 'tool', item_id: 'a/b', params: { x: 1 } },
    ],
    [
      'after_step',
      { ...INSTRUCTION, source: 'user', params: { q: 1 } },
      { kind: 'item', ...INSTRUCTION, params: { q: 1, source: 'user' } },
    ],
    [
      'after_step',
      { primary: 'execute', item_type: 'directive', item_id: 'log/${directive}' },
      {
        kind: 'item',
        primary: 'execute',
        item_type: 'directive',
        item_id: 'log/${directive}',
        params: {},
      },
    ],
  ])('on %s reads %j', (event, action, expected) => {
    expect(actionOf(event, action)).toEqual(expected);
  });

  const control = (params: object) => ({
    primary: 'execute',
    item_type: 'tool',
    item_id: 'rye/agent/threads/internal/control',
    params,
  });

  it.each<[object, object]>([
    [{ action: 'retry' }, { control: 'retry' }],
    [{ action: 'skip' }, { control: 'continue' }],
    [
      { action: 'fail', error: 'e' },
      { control: 'fail', error: 'e' },
    ],
    [{ action: 'abort' }, { control: 'abort' }],
    [
      { action: 'suspend', suspend_reason: 'r' },
      { control: 'suspend', reason: 'r' },
    ],
    [
      { action: 'escalate', limit_type: 'turns', current_value: 5, to: 9 },
      { control: 'escalate', limit: 'turns', to: 9 },
    ],
  ])('reads the familiar call of the control tool %j', (params, action) => {
    expect(actionOf('error', control(params))).toEqual({ kind: 'control', action });
  });

  it('reads the familiar call of the emitter tool', () => {
    const emitter = {
      primary: 'execute',
      item_type: 'tool',
      item_id: 'rye/agent/threads/internal/emitter',
      params: { event_type: 'done', payload: { c: '${cost.spend}' } },
    };
    expect(actionOf('after_complete', emitter)).toEqual({
      kind: 'emit',
      custom_type: 'done',
      data: { c: '${cost.spend}' },
    });
  });

  const good = { id: 'h', event: 'thread_started', action: INSTRUCTION };

  it.each<[string, unknown, string, string]>([
    ['not a mapping', 'x', 'a hook is not a mapping', ''],
    ['no id', { ...good, id: undefined }, 'it has no id', ''],
    ['a blank id', { ...good, id: ' ' }, 'it has no id', ''],
    [
      'an unknown event',
      { ...good, event: 'thread_start' },
      'hook "h": unknown event "thread_start"',
      'Did you mean thread_started?',
    ],
    ['no event', { ...good, event: undefined }, '"event" is missing', 'resolve_extends'],
    [
      'an unknown member',
      { ...good, conditon: {} },
      'unknown member "conditon"',
      'Did you mean condition?',
    ],
    ['no action', { ...good, action: undefined }, 'it has no action', ''],
    ['no actions', { id: 'h', event: 'limit', actions: [] }, 'it has no action', ''],
    ['action and actions', { ...good, actions: [INSTRUCTION] }, 'both action and actions', ''],
    [
      'an action without a form',
      { ...good, action: { item_id: 'x' } },
      'the action has none of primary, set_extends',
      '',
    ],
    [
      'an action of two forms',
      { ...good, action: { inject: 'x', control: 'fail' } },
      'the action has control and inject',
      '',
    ],
    [
      'an unknown primary',
      { ...good, action: { ...INSTRUCTION, primary: 'get' } },
      'unknown primary "get"',
      'execute, fetch, sign',
    ],
    [
      'an unknown item type',
      { ...good, action: { ...INSTRUCTION, item_type: 'knowlege' } },
      'unknown item_type "knowlege"',
      'Did you mean knowledge?',
    ],
    [
      'an id that leaves its space',
      { ...good, action: { ...INSTRUCTION, item_id: '../x' } },
      '"../x" is not an item id',
      '',
    ],
    [
      'arguments beside params',
      { ...good, action: { primary: 'execute', item_type: 'tool', item_id: 'x', query: 'y' } },
      '"query" must be inside params',
      '',
    ],
    [
      'an unknown control',
      { id: 'h', event: 'error', action: { control: 'retyr' } },
      'unknown control "retyr"',
      'Did you mean retry?',
    ],
    [
      'a foreign member of a control',
      { id: 'h', event: 'error', action: { control: 'abort', error: 'x' } },
      'unknown member "error"',
      '',
    ],
    [
      'a negative delay',
      { id: 'h', event: 'error', action: { control: 'retry', delay: -1 } },
      '"delay" of retry',
      '',
    ],
    [
      'an escalation to nowhere',
      { id: 'h', event: 'limit', action: { control: 'escalate', limit: 'turns' } },
      '"to" of escalate',
      '',
    ],
    [
      'a decision on an event without one',
      { ...good, action: { control: 'fail' } },
      'decides nothing on the event thread_started',
      '',
    ],
    [
      'set_extends elsewhere',
      { ...good, action: { set_extends: 'x' } },
      'set_extends decides nothing',
      '',
    ],
    [
      'an effect while resolving extends',
      { ...good, event: 'resolve_extends' },
      'only set_extends decides',
      '',
    ],
    [
      'text inside a batch of calls',
      { id: 'h', event: 'tool_gate', action: { inject: 'x' } },
      "inject can't add text",
      '',
    ],
    [
      'a position without text',
      { id: 'h', event: 'error', action: { control: 'retry' }, position: 'after' },
      '"position" on the event error',
      '',
    ],
    [
      'on_error of an observer',
      { id: 'h', event: 'delivery', action: { emit: 'x' }, on_error: 'fail' },
      '"on_error" on the event delivery',
      '',
    ],
    [
      'an unknown position',
      { ...good, position: 'middle' },
      'unknown position "middle"',
      'before, after',
    ],
    ['a wrap that is text', { ...good, wrap: 'false' }, '"wrap" is "false", not true or false', ''],
    ['a timeout of 0', { ...good, timeout_seconds: 0 }, '"timeout_seconds" is 0', ''],
    [
      'a timeout without end',
      { ...good, timeout_seconds: Number.POSITIVE_INFINITY },
      '"timeout_seconds"',
      '',
    ],
    [
      'another layer',
      { ...good, layer: 4 },
      'hooks of this source are in layer 3, not 4',
      'Remove "layer"',
    ],
    [
      'a path that the event does not have',
      { ...good, condition: { path: 'directiv', value: 'x' } },
      '"directiv" is not in the context of thread_started',
      'Did you mean directive?',
    ],
    [
      'a path below a text',
      { ...good, condition: { path: 'directive.name', value: 'x' } },
      '"directive" has no "name"',
      'rye hooks schema thread_started',
    ],
    [
      'an expression that the event does not have',
      { ...good, action: { ...INSTRUCTION, params: { x: ['${cost.turn || model}'] } } },
      '"cost.turn" is not in the context of thread_started',
      '',
    ],
    [
      'an expression in an id',
      { ...good, action: { ...INSTRUCTION, item_id: 'a/${limits.turn}' } },
      '"limits.turn" is not',
      'Did you mean limits.turns?',
    ],
    // Requirement: unknown-handler-event
  ])('refuses %s', (_case, value, message, hint) => {
    const { problems } = readHooks([{ value, origin: '.ai/config/agent/hooks.yaml:7' }], 3);
    expect(problems).toHaveLength(1);
    expect(problems[0]?.code).toBe('hook_invalid');
    expect(problems[0]?.message).toMatch(/^\.ai\/config\/agent\/hooks\.yaml:7: /);
    expect(problems[0]?.message).toContain(message);
    expect(problems[0]?.hint ?? '').toContain(hint);
    expect(() => parseHooks([{ value, origin: 'f:7' }], 3)).toThrow(
      expect.objectContaining({ code: 'hook_invalid' }),
    );
  });

  it('reports malformed conditions with file and line', () => {
    const value = { ...good, condition: { any: [{ path: 'model', op: 'like', value: 'x' }] } };
    expect(() => parseHooks([{ value, origin: 'd.md:7:3' }], 1)).toThrow(
      expect.objectContaining({
        code: 'condition_invalid',
        message: 'd.md:7:3: condition.any[0]: unknown operator "like"',
      }),
    );
  });

  it('skips broken hooks and keeps the rest, with every problem', () => {
    const { hooks, problems } = readHooks(
      [
        { value: { ...good, event: 'x' }, origin: 'f:1' },
        { value: { ...good, layer: 0 }, origin: 'f:2' },
        { value: good, origin: 'f:3' },
      ],
      3,
    );
    expect(problems.map(({ location }) => location)).toEqual([
      { path: 'f', line: 1 },
      { path: 'f', line: 2 },
    ]);
    expect(hooks.map(({ origin, layer }) => [origin, layer])).toEqual([
      ['f:2', 3],
      ['f:3', 3],
    ]);
  });

  it('allows the layer that a source has anyway', () => {
    expect(hooksFrom(2, { ...good, layer: 2 })).toHaveLength(1);
  });

  it('allows any path into what belongs to others', () => {
    const paths = ['inputs.env.name', 'tool', 'input.path', 'input.edits[0].text', 'cost.spend'];
    const all = paths.map((path) => ({ path, op: 'exists' }));
    const [hook] = hooksFrom(3, {
      id: 'h',
      event: 'tool_gate',
      condition: { all },
      action: { control: 'fail' },
    });
    expect(hook?.condition).toEqual({ all });
  });
});

describe('the shipped hooks', () => {
  const file = new URL('../../.ai/config/agent/hook_conditions.yaml', import.meta.url);
  const shipped = parse(readFileSync(file, 'utf8')) as Record<string, object[]>;

  it.each<[string, HookLayer]>([
    ['builtin_hooks', 2],
    ['infra_hooks', 4],
  ])('%s are valid', (key, layer) => {
    const hooks = hooksFrom(layer, ...(shipped[key] ?? []));
    expect(hooks.length).toBeGreaterThan(0);
  });
});
