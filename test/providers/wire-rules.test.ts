import { expect, test } from 'vitest';
import { collect, failureIn } from '../../testing/conformance/provider.ts';
import { checkRequest, type WireBody, type WireMessage } from '../helpers/wire-rules.ts';
import { startWireServer } from '../helpers/wire-server.ts';
import { claudeAt } from './fixtures.ts';

const USER: WireMessage = { role: 'user', content: [{ type: 'text', text: 'x' }] };
const CALL: WireMessage = {
  role: 'assistant',
  content: [{ type: 'tool_use', id: 'a', name: 'n', input: {} }],
};
const RESULT: WireMessage = { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a' }] };

function body(messages: readonly WireMessage[], more: Partial<WireBody> = {}): WireBody {
  return { model: 'm', max_tokens: 10, messages, ...more };
}

test('a sound conversation has no problem', () => {
  expect(checkRequest(body([USER, CALL, RESULT]))).toEqual([]);
});

test.for<[string, WireBody]>([
  ['no messages', body([])],
  ['from the user', body([CALL, RESULT])],
  ['one role', body([USER, USER])],
  ['calls were [a]', body([USER, CALL, USER])],
  ['calls were []', body([RESULT])],
  ['used twice', body([USER, CALL, RESULT, CALL, RESULT])],
  [
    'before its results',
    body([
      USER,
      CALL,
      {
        role: 'user',
        content: [
          { type: 'text', text: 'x' },
          { type: 'tool_result', tool_use_id: 'a' },
        ],
      },
    ]),
  ],
  ['an empty text', body([{ role: 'user', content: [{ type: 'text', text: ' ' }] }])],
  ['is empty', body([{ role: 'user', content: [] }])],
  [
    'without signature',
    body([USER, { role: 'assistant', content: [{ type: 'thinking', thinking: 'x' }] }, USER]),
  ],
  [
    'tool name',
    body([USER], {
      tools: [{ type: 'custom', name: 'rye/bash', input_schema: { type: 'object' } }],
    }),
  ],
  [
    'cache marks',
    body([USER], {
      system: Array.from({ length: 5 }, () => ({ type: 'text', text: 'x', cache_control: {} })),
    }),
  ],
  ['budget', body([USER], { thinking: { type: 'enabled', budget_tokens: 2000 } })],
  ['max_tokens', body([USER], { max_tokens: 0 })],
])('%s', ([problem, request]) => {
  expect(checkRequest(request).join('; ')).toContain(problem);
});

test('a broken rule is answered as the API would, and closing reports it', async () => {
  const server = await startWireServer([]);
  const failure = failureIn(await collect(claudeAt(server.url), undefined));
  expect(failure).toMatchObject({ status: 400, type: 'script_exhausted' });
  const bad = await fetch(`${server.url}/v1/messages`, {
    method: 'POST',
    body: JSON.stringify(body([])),
  });
  expect(bad.status).toBe(400);
  await expect(server.close()).rejects.toThrow('there are no messages');
});
