import * as fc from 'fast-check';
import { expect, expectTypeOf, it } from 'vitest';
import type { ControlAction, HookLayer } from '../../src/kernel/core/hook.ts';
import { isJsonObject, type JsonObject } from '../../src/kernel/core/json.ts';
import { readHooks } from '../../src/kernel/hooks/declaration.ts';
import { type ControlFiles, hookFile } from '../../src/kernel/schemas/hooks.ts';
import { runs } from '../helpers/runs.ts';
import { readHooks as readByHand } from './by-hand/hooks.ts';
import { expectSame, mutated } from './old-and-new.ts';

const item = { item_type: 'knowledge', item_id: 'a/b' };
const internal = (name: string, params: JsonObject): JsonObject => ({
  primary: 'execute',
  item_type: 'tool',
  item_id: `rye/agent/threads/internal/${name}`,
  params,
});
const control = (action: JsonObject): JsonObject => ({ id: 'h', event: 'error', action });
const step = (...actions: readonly JsonObject[]): JsonObject => ({
  id: 'h',
  event: 'after_step',
  actions,
});

const documents: readonly JsonObject[] = [
  {
    id: 'h',
    event: 'thread_started',
    layer: 3,
    condition: { path: 'directive', value: 'x' },
    actions: [{ primary: 'fetch', ...item, params: { q: 1 } }, { inject: 'b' }],
    position: 'after',
    wrap: false,
    enabled: true,
    description: 'd',
    timeout_seconds: 2.5,
    on_error: 'fail',
    capabilities: ['rye.fetch.knowledge.a/*'],
  },
  { id: 'h', enabled: false },
  { id: 'h', enabled: false, event: 'gone', position: 'before' },
  { id: 'h', event: 'resolve_extends', action: { set_extends: 'base/x' } },
  control({ control: 'continue' }),
  control({ control: 'retry', delay: 2 }),
  control({ control: 'retry', delay_seconds: 2 }),
  control({ control: 'fail', error: 'e' }),
  control({ control: 'suspend', reason: 'r' }),
  control({ control: 'compact', instructions: 'i' }),
  control({ control: 'escalate', limit: 'turns', to: 5 }),
  control(internal('control', { action: 'suspend', suspend_reason: 'r' })),
  control(internal('control', { action: 'escalate', limit_type: 'a', current_value: 1, to: 9 })),
  control(internal('emitter', { event_type: 'done', payload: { a: 1 } })),
  step({ emit: 'mark', data: { t: '${turn}' } }, { emit: { custom_type: 'mark', data: {} } }),
  step({ fetch: { ...item, source: 'user' } }, { execute: { ...item, params: { x: 1 } } }),
  step({ primary: 'sign', ...item, query: 'q', scope: 's', destination: 'd', limit: 1 }),
];

// the reader by hand took a mapping inside custom_type for another emit, by accident
const isNestedEmit = (value: unknown): boolean =>
  JSON.stringify(value)?.includes('"custom_type":{') ?? false;

it('hooks are read and refused as by hand, with file and line', () => {
  fc.assert(
    fc.property(mutated(documents), fc.constantFrom<HookLayer>(1, 3), (value, layer) => {
      fc.pre(!isNestedEmit(value));
      for (const origin of ['.ai/config/agent/hooks.yaml:7', 'd.md:7:3']) {
        const first = (read: typeof readHooks) => () => {
          const { hooks, problems } = read([{ value, origin }], layer);
          if (problems[0]) throw problems[0];
          return hooks;
        };
        expectSame(first(readByHand), first(readHooks));
      }
    }),
    runs(1000),
  );
});

it('the published declaration accepts what is read', () => {
  fc.assert(
    fc.property(mutated(documents).filter(isJsonObject), (value) => {
      const { hooks, problems } = readHooks([{ value, origin: 'f:1' }], 3);
      const isSwitchOff = hooks[0]?.actions.length === 0;
      if (problems.length === 0 && !isSwitchOff)
        expect(hookFile.safeParse(value).error).toBe(undefined);
    }),
    runs(500),
  );
});

it('the control actions are the declared ones', () => {
  expectTypeOf<keyof ControlFiles>().toEqualTypeOf<ControlAction['control']>();
  expectTypeOf<Exclude<ControlAction, { control: 'retry' }>>().toExtend<
    Exclude<ControlFiles[keyof ControlFiles], { control: 'retry' }>
  >();
});
