import { expect, it } from 'vitest';
import type { ContextBlock, ThreadPlan } from '../../src/kernel/core/plan.ts';
import { directiveText, systemPrompt } from '../../src/kernel/threads/run/opening.ts';

const at = (position: ContextBlock['position'], content: string) =>
  ({ id: content, source: 'hook', position, content }) as ContextBlock;

it.each<[string, readonly ContextBlock[], string, string]>([
  ['neither knowledge nor a catalog', [], '', ''],
  ['a catalog alone', [], 'TOOLS', 'TOOLS'],
  ['knowledge alone', [at('system', 'A'), at('system', 'B')], '', 'A\n\nB'],
  ['both', [at('system', 'A'), at('before', 'x')], 'TOOLS', 'A\n\nTOOLS'],
])('the system text of a plan with %s', (_, context, catalog, expected) => {
  const tools = { catalog: () => catalog, definitions: () => ({ tools: [] }) };
  const plan = { context } as unknown as ThreadPlan;
  const { text } = systemPrompt(plan, tools as unknown as Parameters<typeof systemPrompt>[1]);
  expect(text).toBe(expected);
});

it.each<[string, readonly ContextBlock[], string]>([
  ['no knowledge', [at('system', 'A')], 'Do it.'],
  ['knowledge before it', [at('before', 'B')], 'B\n\nDo it.'],
  ['knowledge after it', [at('after', 'C')], 'Do it.\n\nC'],
  ['both', [at('after', 'C'), at('before', 'B')], 'B\n\nDo it.\n\nC'],
])('the text of a directive with %s', (_, context, expected) => {
  expect(directiveText({ context, prompt: 'Do it.' } as unknown as ThreadPlan)).toBe(expected);
});
