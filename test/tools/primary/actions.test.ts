import { describe, expect, it } from 'vitest';
import { RyeError } from '../../../src/kernel/core/errors.ts';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import {
  createExecuteTool,
  createFetchTool,
  createSignTool,
  type PrimaryActions,
} from '../../../src/kernel/tools/primary/actions.ts';
import { validateInput } from '../../../src/kernel/tools/schema.ts';
import { type Tool, textOutput } from '../../../src/kernel/tools/tool.ts';
import { Project, shown } from '../helpers.ts';

/** Actions that answer with what they were called with. */
const echo = (action: string) => (call: object) =>
  Promise.resolve(textOutput(action, { ...(call as JsonObject) }));
const actions: PrimaryActions = {
  executeDirective: echo('execute'),
  executeTool: echo('execute tool'),
  fetchItem: echo('fetch'),
  searchItems: echo('search'),
  signItem: echo('sign'),
};
const execute = createExecuteTool(actions);
const fetchTool = createFetchTool(actions);
const sign = createSignTool(actions);

async function run(tool: Tool, input: JsonObject) {
  await using project = await Project.create();
  return shown(await tool.execute(input, project.context()));
}

describe('what a call needs', () => {
  it.each<[string, Tool, JsonObject, object]>([
    [
      'execute',
      execute,
      { item_type: 'directive', item_id: 'a/b' },
      { verb: 'execute', item_type: 'directive', item_id: 'a/b' },
    ],
    [
      'sign',
      sign,
      { item_type: 'directive', item_id: 'a/b' },
      { verb: 'sign', item_type: 'directive', item_id: 'a/b' },
    ],
    [
      'fetch',
      fetchTool,
      { item_type: 'knowledge', item_id: 'k' },
      { verb: 'fetch', item_type: 'knowledge', item_id: 'k' },
    ],
    ['search', fetchTool, { query: 'x', scope: 'tool' }, { verb: 'fetch', item_type: 'tool' }],
    ['search default', fetchTool, { query: 'x' }, { verb: 'fetch', item_type: 'knowledge' }],
    [
      'bad type',
      execute,
      { item_type: 'nonsense', item_id: 'a' },
      { verb: 'execute', item_type: 'tool', item_id: 'rye/execute' },
    ],
    [
      'bad id',
      sign,
      { item_type: 'tool', item_id: 5 },
      { verb: 'execute', item_type: 'tool', item_id: 'rye/sign' },
    ],
    [
      'bad fetch',
      fetchTool,
      { item_id: 'x' },
      { verb: 'execute', item_type: 'tool', item_id: 'rye/fetch' },
    ],
  ])('%s', (_name, tool, input, need) => {
    expect(tool.need?.(input)).toEqual(need);
  });
});

describe('rye_execute', () => {
  it('passes the call on', async () => {
    const result = await run(execute, {
      item_type: 'directive',
      item_id: 'a/b',
      parameters: { name: 'x' },
      limit_overrides: { turns: 3, spend: 0.5 },
      model: 'fast',
      async: true,
    });
    expect(result.data).toEqual({
      itemId: 'a/b',
      parameters: { name: 'x' },
      limitOverrides: { turns: 3, spend: 0.5 },
      model: 'fast',
      async: true,
    });
  });

  it('has defaults, and refuses what is not a directive', async () => {
    expect((await run(execute, { item_type: 'directive', item_id: 'a' })).data).toMatchObject({
      parameters: {},
      limitOverrides: {},
      async: false,
    });
    expect((await run(execute, { item_type: 'tool', item_id: 'a' })).isError).toBe(true);
  });

  it('has a schema that refuses other types and unknown limits', async () => {
    const call = { item_type: 'directive', item_id: 'a' };
    expect((await validateInput(execute.inputSchema, call)).ok).toBe(true);
    for (const bad of [
      { item_type: 'knowledge' },
      { limit_overrides: { speed: 1 } },
      { item_id: '' },
    ]) {
      expect((await validateInput(execute.inputSchema, { ...call, ...bad })).ok).toBe(false);
    }
  });

  it('starts a tool only asynchronously: one that is waited for is called by its name', async () => {
    const call = { item_type: 'tool', item_id: 'team/gate', parameters: { name: 'a' } };
    expect(await run(execute, { ...call, async: true })).toMatchObject({
      text: 'execute tool',
      data: { itemId: 'team/gate', parameters: { name: 'a' } },
    });
    expect(await run(execute, call)).toMatchObject({ isError: true, data: { code: 'usage' } });
  });

  it('turns a refusal into an error output with its code and hint', async () => {
    const refusing = createExecuteTool({
      ...actions,
      executeDirective: () =>
        Promise.reject(
          new RyeError('limit_spawns', 'too many children', { hint: 'Do it yourself.' }),
        ),
    });
    expect(await run(refusing, { item_type: 'directive', item_id: 'a' })).toEqual({
      text: 'limit_spawns: too many children\nDo it yourself.',
      isError: true,
      data: { code: 'limit_spawns' },
    });
  });

  it('does not hide a bug', async () => {
    const broken = createExecuteTool({
      ...actions,
      executeDirective: () => Promise.reject(new TypeError('bug')),
    });
    await expect(run(broken, { item_type: 'directive', item_id: 'a' })).rejects.toThrow('bug');
  });
});

describe('rye_fetch and rye_sign', () => {
  it('fetches by id and searches by query', async () => {
    expect((await run(fetchTool, { item_type: 'tool', item_id: 'a' })).data).toEqual({
      itemType: 'tool',
      itemId: 'a',
    });
    expect((await run(fetchTool, { query: 'x', scope: 'rule', limit: 3 })).data).toEqual({
      query: 'x',
      itemType: 'rule',
      limit: 3,
    });
    expect((await run(fetchTool, { query: 'x' })).data).toMatchObject({
      itemType: 'knowledge',
      limit: 10,
    });
  });

  it.each<[JsonObject]>([
    [{}],
    [{ item_id: 'a' }],
    [{ item_type: 'tool', item_id: 'a', query: 'x' }],
  ])('refuses %j', async (input) => {
    expect(await run(fetchTool, input)).toMatchObject({
      isError: true,
      data: { code: 'invalid_input' },
    });
  });

  it('signs one item', async () => {
    expect((await run(sign, { item_type: 'directive', item_id: 'a' })).data).toEqual({
      itemType: 'directive',
      itemId: 'a',
    });
  });
});
