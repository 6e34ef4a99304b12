import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { textOf, userText } from '../../src/kernel/core/message.ts';
import type { ToolDefinition } from '../../src/kernel/providers/provider.ts';
import { recordedFirst } from '../../src/kernel/threads/run/loop-ports.ts';
import { answers, hangs, play, toolOf } from './scripted.ts';

const TOOLS = { rye_ls: toolOf('rye/ls') };

describe('tools that change', () => {
  // Requirement: tool-list-updates
  it('are refreshed once before each turn, never within one, and the record of it is sent', async () => {
    const order: string[] = [];
    let looks = 0;
    const { outcome, requests } = await play({
      tools: TOOLS,
      turns: [
        answers('', [
          { id: 'a', name: 'rye_ls' },
          { id: 'b', name: 'rye_ls' },
        ]),
        answers('Done.'),
      ],
      ports: {
        refreshTools: () => {
          looks += 1;
          order.push('look');
          const message = userText(`look ${looks}`);
          return Promise.resolve([{ event_type: 'message', payload: { message } }]);
        },
      },
      onEvent: ({ event_type: type }) => {
        if (type === 'turn_started' || type === 'tool_settled') order.push(type);
      },
    });
    expect(outcome.kind).toBe('completed');
    expect(order).toEqual([
      'look',
      'turn_started',
      'tool_settled',
      'tool_settled',
      'look',
      'turn_started',
    ]);
    expect(requests.map(({ messages }) => textOf(messages.at(-1)?.content ?? []))).toEqual([
      'look 1',
      'look 2',
    ]);
  });

  it('stay as they were when they cannot be refreshed, and the run continues', async () => {
    const { outcome, events } = await play({
      turns: [answers('Done.')],
      ports: { refreshTools: () => Promise.reject(new Error('no answer')) },
    });
    expect(outcome.kind).toBe('completed');
    expect(events).toContainEqual(
      expect.objectContaining({
        event_type: 'note',
        payload: { text: 'the tools could not be refreshed: no answer' },
      }),
    );
  });

  it('hold up no run that is cancelled', async () => {
    const cancel = new AbortController();
    const { outcome, requests } = await play({
      turns: [hangs('never')],
      signal: cancel.signal,
      ports: {
        refreshTools: () => {
          cancel.abort();
          return new Promise(() => undefined);
        },
      },
    });
    expect(outcome.kind).toBe('cancelled');
    expect(requests).toHaveLength(0);
  });
});

describe('the tool list of a resumed thread', () => {
  /** A definition that counts how often it is serialized. */
  function counted(name: string, counts: Map<string, number>): ToolDefinition {
    const schema = { type: 'object' };
    const toJSON = () => {
      counts.set(name, (counts.get(name) ?? 0) + 1);
      return schema;
    };
    return {
      name,
      description: name,
      input_schema: { ...schema, toJSON } as unknown as JsonObject,
    };
  }

  it('is serialized once for each version when 40 tools are offered over several turns', async () => {
    let turns = 0;
    const counts = new Map<string, number>();
    const recorded = Array.from({ length: 40 }, (_, index) => counted(`tool_${index}`, counts));
    const added = counted('added', counts);
    let offered = { version: 1, tools: recorded };
    const lists = new Set<unknown>();
    const list = recordedFirst(recorded, { definitions: () => offered });
    const call = [{ id: 'a', name: 'rye_ls' }];
    const { outcome, requests } = await play({
      tools: TOOLS,
      turns: [answers('', call), answers('', call), answers('', call), answers('Done.')],
      ports: {
        definitions: () => {
          lists.add(list());
          return list();
        },
        refreshTools: () => {
          if (turns === 2) offered = { version: 2, tools: [...recorded, added] };
          return Promise.resolve([]);
        },
      },
      onEvent: ({ event_type: type }) => {
        if (type === 'turn_started') turns += 1;
      },
    });
    expect(outcome.kind).toBe('completed');
    expect(requests.map(({ tools }) => tools.length)).toEqual([40, 40, 41, 41]);
    expect(lists.size).toBe(2);
    expect(counts.get('tool_0')).toBe(2);
    expect(counts.get('tool_39')).toBe(2);
    expect(counts.get('added')).toBe(1);
  });

  it('has the recorded tools first, but for those that were withdrawn since', () => {
    const [a, b, c] = ['a', 'b', 'c'].map((name) => counted(name, new Map()));
    if (!a || !b || !c) throw new Error('no tools');
    let version = 1;
    let withdrawn = new Set<string>();
    const list = recordedFirst([b, a], {
      definitions: () => ({ version, tools: [a, c] }),
      withdrawn: () => withdrawn,
    });
    const names = (): string => {
      const text = list().tools.map(({ name }) => name);
      version += 1;
      return text.join(' ');
    };
    expect(names()).toBe('b a c');
    withdrawn = new Set(['b']);
    expect(names()).toBe('a c');
    withdrawn = new Set();
    expect(names()).toBe('b a c');
  });
});
