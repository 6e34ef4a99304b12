import { expect, it } from 'vitest';
import { mergeBehavior, withoutUnset } from '../../src/kernel/core/behavior.ts';

// Requirement: option-precedence
it('the later layer wins, member by member', () => {
  const merged = mergeBehavior(
    { nudge: true, maxTokens: 5, tool_budgets: { a: 1, b: 2 } },
    { max_tokens: 7, thinking: 'low', toolBudgets: { b: 3 } },
    { thinking: null, tool_budgets: { a: null } },
  );
  expect(merged).toEqual({
    nudge: true,
    max_tokens: 7,
    thinking: null,
    tool_budgets: { a: null, b: 3 },
  });
  expect(withoutUnset(merged)).toEqual({ nudge: true, max_tokens: 7, tool_budgets: { b: 3 } });
});

it('a schema is replaced as a whole', () => {
  const schema = { type: 'object', properties: { b: {} } };
  expect(mergeBehavior({ schema: { type: 'object', properties: { a: {} } } }, { schema })).toEqual({
    schema,
  });
});
