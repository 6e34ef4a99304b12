import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { createExecuteTool } from '../../src/kernel/tools/primary/actions.ts';
import { CAUTIOUS_TRAITS, type Tool, textOutput } from '../../src/kernel/tools/tool.ts';
import { createToolSet } from '../../src/kernel/tools/tool-set.ts';

function tool(id: string, extra: Partial<Tool> = {}): Tool {
  return {
    id,
    description: id,
    inputSchema: { type: 'object' },
    traits: CAUTIOUS_TRAITS,
    execute: () => Promise.resolve(textOutput(id)),
    ...extra,
  };
}

const read = tool('rye/file-system/read');
const bash = tool('rye/bash');
const special = tool('demo/special', {
  need: () => ({ verb: 'fetch', item_type: 'knowledge', item_id: 'x' }),
});
const loaded = tool('demo/loaded');
const execute = createExecuteTool({
  executeDirective: () => Promise.resolve(textOutput('ran')),
  executeTool: () => Promise.resolve(textOutput('started')),
});

const set = createToolSet({
  tools: [read, bash, special, execute],
  names: { 'demo/special': 'shortcut' },
  loadTool: (id) => Promise.resolve(id === loaded.id ? loaded : undefined),
});

async function resolved(name: string, input: JsonObject = {}) {
  const resolution = await set.resolve(name, input);
  if (resolution.kind === 'unknown') return { near: resolution.near };
  const { call } = resolution;
  return { id: call.tool.id, input: call.input, need: call.need };
}

describe('resolve', () => {
  it.each(['rye_file_system_read', 'rye/file-system/read', 'rye/file_system/read'])(
    '%s',
    async (name) => {
      expect(await resolved(name, { path: 'x' })).toEqual({
        id: 'rye/file-system/read',
        input: { path: 'x' },
        need: { verb: 'execute', item_type: 'tool', item_id: 'rye/file-system/read' },
      });
    },
  );

  it('resolves ids of Rye OS to the tools that replace them, judged by what really runs', async () => {
    const call = (id: string, parameters: JsonObject) =>
      resolved('rye_execute', { item_type: 'tool', item_id: id, parameters });
    expect(await call('rye/bash/bash', { command: 'ls' })).toMatchObject({
      id: 'rye/bash',
      need: { item_id: 'rye/bash' },
    });
    const spawn = { directive_name: 'a/b', inputs: '{"x": 1}', limit_overrides: { turns: 2 } };
    expect(await call('rye/agent/threads/thread_directive', spawn)).toEqual({
      id: 'rye/execute',
      input: {
        item_type: 'directive',
        item_id: 'a/b',
        parameters: { x: 1 },
        limit_overrides: { turns: 2 },
      },
      need: { verb: 'execute', item_type: 'directive', item_id: 'a/b' },
    });
  });

  it.each([
    [{ directive_name: 'a/b' }, 'a/b'],
    [{ directive_id: 'a/b' }, 'a/b'],
    [{ directive: 'a/b' }, 'a/b'],
    [{ directive_name: 'a/b', directive_id: 'c', directive: 'd' }, 'a/b'],
    [{ directive_id: 'c', directive: 'd' }, 'c'],
    [{}, ''],
  ])('knows the directive of a call of Rye OS by each of its names: %j', async (given, id) => {
    const input = {
      item_type: 'tool',
      item_id: 'rye/agent/threads/thread_directive',
      parameters: given,
    };
    expect(await resolved('rye_execute', input)).toMatchObject({
      input: { item_type: 'directive', item_id: id, parameters: {} },
    });
  });

  it("uses a tool's own need and given names", async () => {
    expect(await resolved('shortcut')).toMatchObject({
      id: 'demo/special',
      need: { verb: 'fetch', item_type: 'knowledge' },
    });
  });

  it('names near tools for an unknown one', async () => {
    expect(await resolved('rye_file_system_raed')).toEqual({ near: ['rye_file_system_read'] });
    expect(await resolved('zzzzzzzz')).toEqual({ near: [] });
  });
});

describe('looking through rye_execute', () => {
  const through = (id: string, parameters?: JsonObject | string) =>
    resolved('rye_execute', {
      item_type: 'tool',
      item_id: id,
      ...(parameters === undefined ? {} : { parameters }),
    });

  it.each(['rye/bash', 'rye_bash'])('%s resolves to the tool itself', async (id) => {
    expect(await through(id, { command: 'ls' })).toEqual({
      id: 'rye/bash',
      input: { command: 'ls' },
      need: { verb: 'execute', item_type: 'tool', item_id: 'rye/bash' },
    });
  });

  it('loads a tool that is not offered', async () => {
    expect(await through('demo/loaded')).toMatchObject({ id: 'demo/loaded', input: {} });
    expect(await through('demo/none')).toHaveProperty('near');
  });

  it('reads parameters that are JSON text, and judges unusable ones by what they were for', async () => {
    expect(await through('rye/bash', '{"command":"ls"}')).toMatchObject({
      input: { command: 'ls' },
    });
    expect(await through('rye/bash', 'nonsense')).toMatchObject({
      id: 'rye/execute',
      need: { item_id: 'rye/bash' },
    });
  });

  it('sees through nesting, to a bound', async () => {
    const bashCall = { item_type: 'tool', item_id: 'rye/bash', parameters: { command: 'rm' } };
    expect(await through('rye/execute', bashCall)).toMatchObject({ id: 'rye/bash' });
    let deep: JsonObject = bashCall;
    for (let level = 0; level < 10; level += 1) {
      deep = { item_type: 'tool', item_id: 'rye_execute', parameters: deep };
    }
    expect(await resolved('rye_execute', deep)).toHaveProperty('near');
  });

  it('leaves directives and unusable input to rye_execute', async () => {
    expect(await resolved('rye_execute', { item_type: 'directive', item_id: 'a/b' })).toMatchObject(
      {
        id: 'rye/execute',
        need: { verb: 'execute', item_type: 'directive', item_id: 'a/b' },
      },
    );
    expect(await resolved('rye_execute', { item_type: 'tool' })).toMatchObject({
      need: { verb: 'execute', item_type: 'tool', item_id: 'rye/execute' },
    });
  });
});

describe('construction', () => {
  const loadTool = () => Promise.resolve(undefined);

  it.each([
    [['a-b/c', 'a/b_c']],
    [['a/b', 'a/b']],
    [['rye/directive-return']],
    [['directive_return']],
  ])('refuses names that collide: %j', (ids) => {
    expect(() => createToolSet({ tools: ids.map((id) => tool(id)), loadTool })).toThrow(
      expect.objectContaining({ code: 'wire_name_collision' }),
    );
  });

  it('lets names tell them apart', async () => {
    const tools = [tool('a-b/c'), tool('a/b_c')];
    const apart = createToolSet({ tools, names: { 'a/b_c': 'other' }, loadTool });
    expect(await apart.resolve('other', {})).toMatchObject({ call: { tool: { id: 'a/b_c' } } });
    expect(await apart.resolve('a/b_c', {})).toMatchObject({ call: { tool: { id: 'a/b_c' } } });
  });
});
