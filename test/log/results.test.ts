import { expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { resultEntries } from '../../src/kernel/log/context.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { place, userMessage } from './support.ts';

const result = (call_id: string, text: string, data?: JsonObject): EventDraft => ({
  event_type: 'message',
  payload: {
    message: {
      role: 'tool_result',
      call_id,
      name: 'rye_bash',
      content: [{ type: 'text', text }],
      outcome: data ? 'aborted' : 'ok',
      ...(data ? { data } : {}),
    },
  },
});

it('the first result that a tool returned counts for a call, also after one that a recovery wrote', () => {
  const lost = { recovered: 'interrupted' };
  const tree = buildTree(
    place([
      userMessage('Do it.'),
      result('a', 'recovered', lost),
      result('a', 'first'),
      result('a', 'second'),
      result('b', 'recovered', lost),
      result('b', 'recovered again', lost),
    ]),
  );
  const texts = [...resultEntries(tree)].map(([id, { payload }]) => {
    const { message } = payload as unknown as { message: { content: [{ text: string }] } };
    return [id, message.content[0].text];
  });
  expect(texts.toSorted(([a = ''], [b = '']) => (a < b ? -1 : 1))).toEqual([
    ['a', 'first'],
    ['b', 'recovered'],
  ]);
});
