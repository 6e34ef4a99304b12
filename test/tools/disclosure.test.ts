import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { textOf } from '../../src/kernel/core/message.ts';
import {
  chooseDisclosure,
  createToolSearch,
  type DisclosableTool,
  type DisclosureCandidate,
  deferredCatalog,
  definitionTokens,
} from '../../src/kernel/tools/disclosure.ts';
import { Project, shown } from './helpers.ts';

function tool(name: string, size = 10): DisclosableTool {
  return { id: `x/${name}`, name, description: 'd'.repeat(size), input_schema: { type: 'object' } };
}

function candidate(
  name: string,
  grant: DisclosureCandidate['grant'],
  extra = {},
): DisclosureCandidate {
  return { tool: tool(name, 100), grant, pinned: false, ...extra };
}

describe('chooseDisclosure', () => {
  const cost = definitionTokens(tool('a', 100));
  const names = (tools: readonly DisclosableTool[]) => tools.map(({ name }) => name);

  it('counts four characters as a token', () => {
    expect(definitionTokens({ id: 'x', name: 'abcd', description: 'efgh', input_schema: {} })).toBe(
      3,
    );
  });

  // Requirement: tool-disclosure
  it('takes exact grants first, then narrow wildcards, and keeps the order', () => {
    const candidates = [
      candidate('a', 1),
      candidate('b', 'exact'),
      candidate('c', 2),
      candidate('d', 'exact'),
    ];
    const { preloaded, deferred } = chooseDisclosure(candidates, 3 * cost);
    expect(names(preloaded)).toEqual(['b', 'c', 'd']);
    expect(names(deferred)).toEqual(['a']);
  });

  it('always offers pinned ones, and lets a smaller one fit after a larger one did not', () => {
    const large = { ...candidate('large', 'exact'), tool: tool('large', 5000) };
    const { preloaded, deferred } = chooseDisclosure(
      [candidate('pin', 0, { pinned: true }), large, candidate('small', 1)],
      2 * cost + 1,
    );
    expect(names(preloaded)).toEqual(['pin', 'small']);
    expect(names(deferred)).toEqual(['large']);
    expect(names(chooseDisclosure([candidate('pin', 0, { pinned: true })], 0).preloaded)).toEqual([
      'pin',
    ]);
  });

  it('loses no tool and keeps to the budget', () => {
    const candidates = fc.array(
      fc.record({
        size: fc.integer({ min: 0, max: 400 }),
        grant: fc.oneof(fc.constant('exact' as const), fc.integer({ min: 0, max: 5 })),
        pinned: fc.boolean(),
      }),
      { maxLength: 15 },
    );
    fc.assert(
      fc.property(candidates, fc.integer({ min: 0, max: 500 }), (rows, budget) => {
        const all = rows.map(({ size, ...rest }, index) => ({
          tool: tool(`t${index}`, size),
          ...rest,
        }));
        const { preloaded, deferred } = chooseDisclosure(all, budget);
        expect(new Set([...preloaded, ...deferred])).toEqual(new Set(all.map((row) => row.tool)));
        const pinned = new Set(all.filter((row) => row.pinned).map((row) => row.tool));
        const total = (tools: Iterable<DisclosableTool>) =>
          [...tools].reduce((sum, one) => sum + definitionTokens(one), 0);
        expect(total(preloaded)).toBeLessThanOrEqual(Math.max(budget, total(pinned)));
      }),
      { numRuns: 200, seed: 2 },
    );
  });
});

describe('deferredCatalog', () => {
  // Requirement: lazy-schemas
  it('is sorted, escaped and empty without tools', () => {
    expect(deferredCatalog([])).toBe('');
    const tools = [tool('b'), { ...tool('a'), description: '<x> & "y"\nmore' }];
    expect(deferredCatalog(tools).split('\n')).toEqual([
      '<deferred_tools>',
      'Load the schema of these with tool_search before calling them.',
      '<tool name="a">&lt;x&gt; &amp; &quot;y&quot;</tool>',
      '<tool name="b">dddddddddd</tool>',
      '</deferred_tools>',
    ]);
  });
});

describe('tool_search', () => {
  const deferred: readonly DisclosableTool[] = [
    {
      id: 'mail/send',
      name: 'mail_send',
      description: 'Sends a message.',
      input_schema: { type: 'object', description: '</tool><b>' },
    },
    { id: 'mail/list', name: 'mail_list', description: 'Lists messages.', input_schema: {} },
    { id: 'db/query', name: 'db_query', description: 'Runs SQL.', input_schema: {} },
  ];

  async function search(input: object) {
    await using project = await Project.create();
    const unlocked = new Set<string>();
    const output = await createToolSearch(deferred, unlocked).execute(
      { ...input },
      project.context(),
    );
    return { ...shown(output), unlocked: [...unlocked], text: textOf(output.content) };
  }

  // Requirement: tool-search-result, unlocks-belong-to-run
  it('unlocks by name or id and shows the escaped schema', async () => {
    const found = await search({ names: ['mail_send', 'db/query'] });
    expect(found.unlocked).toEqual(['mail/send', 'db/query']);
    expect(found.data).toEqual({ tools: ['mail_send', 'db_query'] });
    expect(found.text).toContain('"description":"\\u003c/tool>\\u003cb>"');
    expect(found.text.match(/<tool name=/g)).toHaveLength(2);
  });

  // Requirement: tool-search-result
  it('finds by words, best first, within the limit', async () => {
    expect((await search({ query: 'send a mail' })).data).toEqual({
      tools: ['mail_send', 'mail_list'],
    });
    expect((await search({ query: 'mail', limit: 1 })).unlocked).toHaveLength(1);
  });

  // Requirement: tool-search-result
  it('finds the tools of one server, all of them or by words', async () => {
    const of = (name: string): DisclosableTool => ({
      id: `mcp/notes/${name}`,
      name: `mcp_notes_${name}`,
      description: `Does ${name}.`,
      input_schema: {},
    });
    const served = [...deferred, of('read'), of('write')];
    await using project = await Project.create();
    const ask = async (input: object) => {
      const unlocked = new Set<string>();
      await createToolSearch(served, unlocked).execute({ ...input }, project.context());
      return [...unlocked];
    };
    expect(await ask({ server: 'notes' })).toEqual(['mcp/notes/read', 'mcp/notes/write']);
    expect(await ask({ server: 'notes', query: 'write mail' })).toEqual(['mcp/notes/write']);
    expect(await ask({ server: 'mail' })).toEqual([]);
  });

  it('explains when nothing is asked or found', async () => {
    expect((await search({})).isError).toBe(true);
    const none = await search({ names: ['mail_sned'] });
    expect(none).toMatchObject({ isError: true, unlocked: [] });
    expect(none.text).toContain('Did you mean mail_send');
  });
});
