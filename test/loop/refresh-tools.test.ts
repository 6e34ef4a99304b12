import { describe, expect, it } from 'vitest';
import { textOf, userText } from '../../src/core/message.ts';
import { hangs, play, says, toolOf } from './scripted.ts';

const TOOLS = { rye_ls: toolOf('rye/ls') };

describe('tools that change', () => {
  // Requirement: tool-list-updates
  it('are looked at once before each turn, never within one, and what is said about them is sent', async () => {
    const order: string[] = [];
    let looks = 0;
    const { outcome, requests } = await play({
      tools: TOOLS,
      turns: [
        says('', [
          { id: 'a', name: 'rye_ls' },
          { id: 'b', name: 'rye_ls' },
        ]),
        says('Done.'),
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

  it('stay what they were where nobody can be asked, and the run goes on', async () => {
    const { outcome, events } = await play({
      turns: [says('Done.')],
      ports: { refreshTools: () => Promise.reject(new Error('no answer')) },
    });
    expect(outcome.kind).toBe('completed');
    expect(events).toContainEqual(
      expect.objectContaining({
        event_type: 'note',
        payload: { text: 'the tools were not brought up to date: no answer' },
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
