import { expect, it } from 'vitest';
import { answers, play, resultText, toolOf, trace } from './scripted.ts';

const cut = (text: string, calls: Parameters<typeof answers>[1] = []) =>
  answers(text, calls, { reason: 'max_tokens' });
const parts = (count: number) => Array.from({ length: count }, (_, index) => `part ${index + 1} `);

it.each([1, 2, 4, 10])('an answer that is cut %d times is completed whole', async (times) => {
  const { outcome } = await play({
    turns: [...parts(times).map((text) => cut(text)), answers('end')],
  });
  expect(outcome).toMatchObject({ kind: 'completed', result: `${parts(times).join('')}end` });
});

it('an answer that is always cut ends as answer_cut, with the text so far', async () => {
  const { outcome, requests, events } = await play({ turns: parts(20).map((text) => cut(text)) });
  expect(outcome).toMatchObject({
    kind: 'error',
    error: { code: 'answer_cut' },
    last_text: parts(11).join(''),
  });
  expect(requests).toHaveLength(11);
  expect(trace(events).filter((line) => line === 'inject interrupted')).toHaveLength(1);
});

it('an answer that only thinks until it is cut ends as answer_cut', async () => {
  const { outcome } = await play({ turns: parts(20).map(() => cut('')) });
  expect(outcome).toMatchObject({ kind: 'error', error: { code: 'answer_cut' } });
});

it('outputs that are cut are no result', async () => {
  const required = { name: 'a', type: 'string', required: true, description: '' } as const;
  const { outcome } = await play({
    plan: { outputs: [required] },
    turns: parts(20).map(() => cut('{"a": "b')),
  });
  expect(outcome).toMatchObject({ kind: 'error', error: { code: 'answer_cut' } });
});

it('a call that was cut before its arguments does not run, and those before it do', async () => {
  const ran: string[] = [];
  const wipe = toolOf('t/wipe', {
    run: async (_input, { callId }) => {
      ran.push(callId);
      return await Promise.resolve({ content: [], is_error: false });
    },
  });
  const { events, outcome } = await play({
    tools: { t_wipe: wipe },
    turns: [
      cut('', [
        { id: 'a', name: 't_wipe' },
        { id: 'b', name: 't_wipe' },
      ]),
      answers('Done.'),
    ],
  });
  expect(ran).toEqual(['a']);
  expect(resultText(events, 'b')).toContain('are not a JSON object. Send them again, complete.');
  expect(outcome.kind).toBe('completed');
});
