import { expect, it } from 'vitest';
import { SessionTools } from '../../src/kernel/app/session-tools.ts';
import type { PlannedTool } from '../../src/kernel/core/plan.ts';
import { CAUTIOUS_TRAITS, textOutput } from '../../src/kernel/tools/tool.ts';

function planned(id: string, preloaded = true): PlannedTool {
  const name = id.replaceAll('/', '_');
  const shown = { description: `About ${id}.`, input_schema: { type: 'object' } };
  return { id, name, ...shown, preloaded, risk: 'elevated' };
}

function session(tools: readonly PlannedTool[], unlocked = new Set<string>()): SessionTools {
  return new SessionTools({
    plan: { tools },
    result: { outputs: [] },
    aliases: new Map(),
    unlocked,
    own: [],
    remote: ({ id, description, input_schema: inputSchema }) => ({
      id,
      description,
      inputSchema,
      traits: CAUTIOUS_TRAITS,
      execute: () => Promise.resolve(textOutput('')),
    }),
    loadTool: () => Promise.resolve(undefined),
  });
}

const names = (tools: SessionTools): readonly string[] =>
  tools.definitions().tools.map(({ name }) => name);

// Requirement: unlocks-belong-to-run
it('definitions are made once, and again when something is unlocked, added or withdrawn', () => {
  const unlocked = new Set<string>();
  const tools = session([planned('mcp/a/one'), planned('mcp/a/two', false)], unlocked);
  const first = tools.definitions();
  expect(tools.definitions()).toBe(first);
  expect(names(tools)).toEqual(['mcp_a_one', 'tool_search']);
  unlocked.add('mcp/a/two');
  expect(names(tools)).toEqual(['mcp_a_one', 'mcp_a_two', 'tool_search']);
  expect(tools.definitions().version).not.toBe(first.version);
  tools.change([planned('mcp/a/three')], new Map([['mcp/a/one', 'It is gone.']]));
  expect(names(tools)).toEqual(['mcp_a_two', 'mcp_a_three', 'tool_search']);
  expect(tools.definitions()).toBe(tools.definitions());
});

it('what is withdrawn is refused with its reason, found by no search, and callable again when it is back', async () => {
  const tools = session([planned('mcp/a/one'), planned('mcp/a/two', false)]);
  tools.change([], new Map([['mcp/a/two', 'It is gone.']]));
  expect(tools.refusal('mcp/a/two')).toBe('It is gone.');
  expect([...tools.withdrawnNames()]).toEqual(['mcp_a_two']);
  expect(names(tools)).toEqual(['mcp_a_one']);
  expect((await tools.set.resolve('mcp_a_two', {})).kind).toBe('resolved');
  tools.change([], new Map());
  expect(tools.refusal('mcp/a/two')).toContain('tool_search');
  expect(names(tools)).toEqual(['mcp_a_one', 'tool_search']);
});
