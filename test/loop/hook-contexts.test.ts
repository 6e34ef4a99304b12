import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, it } from 'vitest';
import { HOOK_EVENTS } from '../../src/kernel/core/hook.ts';
import { hookSchema } from '../../src/kernel/hooks/contexts.ts';
import { errorOutput, textOutput } from '../../src/kernel/tools/tool.ts';
import { answers, fails, MODEL, planOf, play, toolOf } from './scripted.ts';

// Requirement: hooks-know-turn-and-call, canonical-and-wire-name
it('gives hooks the contexts that their published schemas promise', async () => {
  const gates: unknown[] = [];
  const { hooks } = await play({
    plan: {
      model: { ...MODEL, context_window: 2000 },
      limits: { ...planOf().limits, turns: 2 },
      outputs: [{ name: 'x', type: 'string', required: true, description: '' }],
    },
    tools: {
      rye_bad: toolOf('rye/bad', { run: () => Promise.resolve(errorOutput('bad')) }),
      rye_big: toolOf('rye/big', { run: () => Promise.resolve(textOutput('x'.repeat(50_000))) }),
    },
    turns: [
      fails(),
      answers('', [
        { id: 'a', name: 'rye_bad' },
        { id: 'b', name: 'rye_big' },
        { id: 'c', name: 'nope' },
      ]),
      answers('', [{ id: 'r', name: 'rye_directive_return', input: { x: 'y' } }]),
    ],
    gate: (context) => {
      gates.push(context);
      return {};
    },
  });
  const limited = await play({ plan: { limits: { ...planOf().limits, turns: 0 } }, turns: [] });
  const seen = [
    ...hooks,
    ...limited.hooks,
    ...gates.map((context) => ({ event: 'tool_gate', context })),
  ];
  const ajv = new Ajv2020({ strict: false });
  const problems = seen.flatMap(({ event, context }) => {
    const name = HOOK_EVENTS.find((known) => known === event);
    const isValid = name !== undefined && ajv.validate(hookSchema(name), context);
    return isValid ? [] : [`${event}: ${ajv.errorsText()}`];
  });
  expect(problems).toEqual([]);
  expect(new Set(seen.map(({ event }) => event))).toEqual(
    new Set(['error', 'limit', 'after_step', 'tool_after', 'tool_gate', 'directive_return']),
  );
});
