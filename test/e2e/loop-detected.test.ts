import { expect, onTestFinished, test } from 'vitest';
import { calls, startWireServer, toolUse } from '../helpers/wire-server.ts';
import { workspace } from '../helpers/workspace.ts';

test('a run whose model repeats one call ends as loop_detected after ten requests', async () => {
  const here = await workspace();
  const server = await startWireServer(() =>
    calls(toolUse('rye_core_greet', { who: 'Ada' }, 'toolu_same')),
  );
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const ran = await here.rye(
    ['run', 'hello', '--input', 'who=Ada', '--limit', 'turns=25', '--json'],
    { env },
  );
  expect(ran.code).toBe(1);
  expect(JSON.parse(ran.stdout)).toMatchObject({
    status: 'error',
    error: { code: 'loop_detected', details: { period: 1, turns: 5, tools: ['rye_core_greet'] } },
    cost: { turns: 10 },
  });
  expect(server.requests).toHaveLength(10);
  const told = server.requests.filter(({ body }) =>
    JSON.stringify(body.messages.at(-1)).includes('The last 5 turns made the same calls'),
  );
  expect(told).toHaveLength(1);
});
