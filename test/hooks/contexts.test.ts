import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, expectTypeOf, it } from 'vitest';
import { HOOK_EVENTS } from '../../src/kernel/core/hook.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import {
  contextPathProblem,
  dispatchKind,
  type HookContexts,
  hookSchema,
  isHookEvent,
} from '../../src/kernel/hooks/contexts.ts';

describe('hookSchema', () => {
  it.each(HOOK_EVENTS)('of %s is a JSON Schema', (event) => {
    const ajv = new Ajv2020({ strict: true });
    expect(ajv.validateSchema(hookSchema(event))).toBe(true);
    expect(hookSchema(event)).toMatchObject({ type: 'object', additionalProperties: false });
  });

  it('accepts the context that the loop sends for a reached limit, and nothing else', () => {
    const validate = new Ajv2020().compile(hookSchema('limit'));
    const context: HookContexts['limit'] = {
      thread_id: 't-1',
      turn: 3,
      cost: NO_COST,
      limit_code: 'limit_turns',
      current_value: 3,
      current_max: 3,
    };
    expect(validate(context)).toBe(true);
    expect(validate({ ...context, limit_code: 'turns_exceeded' })).toBe(false);
    expect(validate({ ...context, more: 1 })).toBe(false);
  });

  it('has the same types as the compiler sees', () => {
    expectTypeOf<HookContexts['resolve_extends']['has_extends']>().toEqualTypeOf<boolean>();
    expectTypeOf<HookContexts['tool_gate']['input']>().toEqualTypeOf<JsonObject>();
    expectTypeOf<HookContexts['error']['source']>().toEqualTypeOf<
      'model' | 'tool' | 'directive' | 'loop'
    >();
    expectTypeOf<HookContexts['after_complete']['outputs']>().toEqualTypeOf<
      JsonObject | undefined
    >();
    expect(HOOK_EVENTS.every(isHookEvent)).toBe(true);
    expect(isHookEvent('toString')).toBe(false);
  });
});

describe('contextPathProblem', () => {
  it.each<[(typeof HOOK_EVENTS)[number], string]>([
    ['resolve_extends', 'inputs.a.b.c'],
    ['resolve_extends', 'model'],
    ['thread_started', 'limits.spend'],
    ['error', 'classification.category'],
    ['error', 'error.status'],
    ['after_complete', 'outputs.list[0].name'],
    ['tool_after', 'data.anything.at.all'],
    ['child_finished', 'child_cost.spend'],
  ])('%s has %s', (event, path) => {
    expect(contextPathProblem(event, path)).toBeUndefined();
  });

  it.each<[(typeof HOOK_EVENTS)[number], string, string, readonly string[]]>([
    ['resolve_extends', 'cost.turns', 'the context has no "cost"', []],
    ['error', 'clasification.category', 'the context has no "clasification"', ['classification']],
    [
      'error',
      'classification.categry',
      '"classification" has no "categry"',
      ['classification.category'],
    ],
    ['limit', 'limit_code.name', '"limit_code" has no "name"', []],
    ['limit', 'cost.0', '"cost" has no "0"', []],
    ['limit', 'constructor', 'the context has no "constructor"', []],
    ['limit', 'a b', 'it is not a dotted path', []],
  ])('%s has no %s', (event, path, message, near) => {
    const problem = contextPathProblem(event, path);
    expect(problem?.message).toContain(message);
    expect(problem?.near).toEqual(expect.arrayContaining([...near]));
  });
});

describe('dispatchKind', () => {
  it.each(HOOK_EVENTS)('of %s is in docs/hooks.md', (event) => {
    const rows = readFileSync('docs/hooks.md', 'utf8').split('\n');
    expect(rows.find((row) => row.startsWith(`| ${dispatchKind(event)}:`))).toContain(
      `\`${event}\``,
    );
  });

  it('is as the spec lists the events', () => {
    const kinds: Record<string, string[]> = {};
    for (const event of HOOK_EVENTS) (kinds[dispatchKind(event)] ??= []).push(event);
    expect(kinds).toEqual({
      routing: ['resolve_extends'],
      context: ['thread_started', 'thread_continued', 'before_compact'],
      control: ['after_step', 'error', 'limit', 'context_limit_reached', 'tool_gate'],
      observing: [
        'after_complete',
        'directive_return',
        'rule_triggered',
        'tool_after',
        'child_finished',
        'approval_requested',
        'approval_decided',
        'delivery',
      ],
    });
  });
});
