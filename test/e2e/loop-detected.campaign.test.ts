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
    [
      'run',
      'hello',
      '--provider',
      'anthropic',
      '--input',
      'who=Ada',
      '--limit',
      'turns=25',
      '--raise-limits',
      '--json',
    ],
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

test.each([
  ['an unknown tool for ever', 10, () => calls(toolUse('no_such_tool', {}, 'toolu_a'))],
  [
    'an unknown tool with other arguments each time',
    10,
    ({ index }: { readonly index: number }) =>
      calls(toolUse('no_such_tool', { n: index }, `toolu_${index}`)),
  ],
  [
    'two calls in turn',
    11,
    ({ index }: { readonly index: number }) =>
      calls(toolUse('rye_core_greet', { who: 'AB'.at(index % 2) ?? '' }, `toolu_${index}`)),
  ],
  [
    'five calls in turn',
    15,
    ({ index }: { readonly index: number }) =>
      calls(toolUse('rye_core_greet', { who: 'ABCDE'.at(index % 5) ?? '' }, `toolu_${index}`)),
  ],
])('%s ends as loop_detected after %i requests', async (_, count, script) => {
  const here = await workspace();
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const args = [
    'run',
    'hello',
    '--input',
    'who=Ada',
    '--limit',
    'turns=25',
    '--raise-limits',
    '--model',
    'general',
    '--json',
  ];
  const ran = await here.rye([...args, '--provider', 'anthropic'], { env });
  expect(JSON.parse(ran.stdout)).toMatchObject({ error: { code: 'loop_detected' } });
  expect(server.requests).toHaveLength(count);
});
