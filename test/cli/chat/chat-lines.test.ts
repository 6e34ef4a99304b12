import { expect, test } from 'vitest';
import { meterLines } from '../../../src/faces/ui/chat/chat-lines.ts';
import { createColors } from '../../../src/faces/ui/colors.ts';
import { COMPLETED } from '../events.ts';

const STYLE = { colors: createColors(false), columns: 200 };

test.each([
  ['auth', 'Correct the key. Then: rye chat --continue (key: K, from the environment)'],
  ['transient', 'Correct the key. Then: press Enter (key: K, from the environment)'],
])('the hint of a failed answer (%s) names what the chat can do', (category, expected) => {
  const error = {
    code: 'provider_auth',
    message: 'invalid x-api-key',
    hint: 'Correct the key. Then: rye threads resume rye/core/chat-63xt (key: K, from the environment)',
    details: { category },
  } as const;
  const result = { ...COMPLETED, success: false, status: 'error', error } as const;
  const lines = meterLines({ result, cost: COMPLETED.cost, budget: undefined }, STYLE);
  expect(lines).toContain(`hint: ${expected}`);
});
