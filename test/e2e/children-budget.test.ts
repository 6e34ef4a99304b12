import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import {
  calls,
  reply,
  startWireServer,
  toolUse,
  type WireRequest,
  type WireTurn,
} from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

async function directive(
  { project, rye }: Workspace,
  name: string,
  metadata: string,
): Promise<void> {
  const file = path.join(project, '.ai/directives', `${name}.md`);
  mkdirSync(path.dirname(file), { recursive: true });
  const head = '<description>d</description><category></category><author>a</author>';
  const xml = `<directive name="${name}" version="1.0.0">\n<metadata>${head}${metadata}</metadata>\n</directive>`;
  writeFileSync(file, `\`\`\`xml\n${xml}\n\`\`\`\n\nDo it.\n`);
  await rye(['sign', 'directive', name]);
}

const KIDS = '<permissions><execute><directive>kid</directive></execute></permissions>';
const limits = (spend: string) => `<limits spend="${spend}"/>`;
const start = (id: string, more: object = {}) =>
  toolUse(
    'rye_execute',
    { item_type: 'directive', item_id: 'kid', parameters: {}, async: true, ...more },
    id,
  );
const isKid = ({ body }: WireRequest): boolean =>
  JSON.stringify(body.messages[0]).includes('<directive name=\\"kid\\"');

/** A server that answers the parent by its script, and keeps a child waiting until the test ends. */
async function serve(turns: readonly WireTurn[]) {
  const requests: WireRequest[] = [];
  const server = await startWireServer((request) => {
    if (isKid(request)) return 'hang';
    requests.push(request);
    return turns[requests.length - 1] ?? reply('Done.');
  });
  onTestFinished(() => server.close());
  return { requests, env: { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url } };
}

interface Result {
  readonly status: string;
  readonly thread_id: string;
  readonly children: readonly string[];
  readonly error?: { readonly code: string; readonly message: string; readonly hint: string };
}

async function run(here: Workspace, env: Readonly<Record<string, string>>): Promise<Result> {
  const result = (await here.json(['run', 'par'], { env })) as unknown as Result;
  onTestFinished(async () => {
    for (const id of result.children) await here.rye(['threads', 'kill', id]);
  });
  return result;
}

test('an async child that declares the whole budget leaves its parent the next call', async () => {
  const here = await workspace();
  await directive(here, 'kid', limits('5.0'));
  await directive(here, 'par', limits('1.0') + KIDS);
  const { requests, env } = await serve([calls(start('a')), reply('Started it.')]);
  const result = await run(here, env);
  expect(result).toMatchObject({ status: 'completed', children: [expect.any(String)] });
  expect(requests).toHaveLength(2);
  const [kid = ''] = result.children;
  const shown = await here.json(['threads', 'show', kid]);
  const { limits: given } = shown['document'] as { limits: { spend: number } };
  expect(given.spend).toBeLessThan(1);
  expect(given.spend).toBeGreaterThan(0.9);
  await expect
    .poll(async () => (await here.rye(['threads', 'logs', kid])).stdout)
    .toMatch(/the spend limit of kid is \$0\.9\d+ instead of \$1/);
});

test('a child that would get less than half of its declared spend is refused, naming both amounts', async () => {
  const here = await workspace();
  await directive(here, 'kid', limits('3.0'));
  await directive(here, 'par', limits('0.015') + KIDS);
  const { requests, env } = await serve([calls(start('a')), reply('I continue alone.')]);
  const result = await run(here, env);
  expect(result).toMatchObject({ status: 'completed', children: [] });
  const told = JSON.stringify(requests[1]?.body.messages.at(-1));
  expect(told).toMatch(
    /kid declares a spend of \$0\.0150, and par-\w+ can spare \$0\.00\d+: par-\w+ has \$0\.01\d+ left/,
  );
});

test('a second child is refused with the name of the child that holds the money', async () => {
  const here = await workspace();
  await directive(here, 'kid', limits('0.6'));
  await directive(here, 'par', limits('1.0') + KIDS);
  const { requests, env } = await serve([
    calls(start('a')),
    calls(start('b')),
    reply('One is enough.'),
  ]);
  const result = await run(here, env);
  expect(result).toMatchObject({ status: 'completed', children: [expect.stringMatching(/^kid-/)] });
  const told = JSON.stringify(requests[2]?.body.messages.at(-1));
  expect(told).toContain(`running children hold $0.6000: ${result.children[0]} ($0.6000)`);
});

test('a child that declares more than the parent’s limit takes all but its next call, and a sibling is refused, also in the same answer', async () => {
  const here = await workspace();
  await directive(here, 'kid', limits('5.0'));
  await directive(here, 'par', limits('1.0') + KIDS);
  const { requests, env } = await serve([
    calls(start('a'), start('b')),
    calls(start('c')),
    reply('One is enough.'),
  ]);
  const result = await run(here, env);
  expect(result).toMatchObject({ status: 'completed', children: [expect.stringMatching(/^kid-/)] });
  const holder = new RegExp(`running children hold \\$0\\.9\\d+: ${result.children[0]} \\(`);
  expect(JSON.stringify(requests[1]?.body.messages.at(-1))).toMatch(holder);
  const told = JSON.stringify(requests[2]?.body.messages.at(-1));
  expect(told).toMatch(holder);
  expect(told).toContain('give each child a lower spend from the start (limit_overrides)');
});

test('siblings that get a lower spend by limit_overrides run at once', async () => {
  const here = await workspace();
  await directive(here, 'kid', limits('5.0'));
  await directive(here, 'par', limits('1.0') + KIDS);
  const lower = { limit_overrides: { spend: 0.4 } };
  const { env } = await serve([calls(start('a', lower), start('b', lower)), reply('Both run.')]);
  const { children } = await run(here, env);
  expect(children).toHaveLength(2);
});

test('a parent that ran out names the children that hold its money', async () => {
  const here = await workspace();
  await directive(here, 'kid', limits('0.9'));
  await directive(here, 'par', limits('1.0') + KIDS);
  const big = { steps: calls(start('a')).steps, usage: { input_tokens: 10, output_tokens: 5 } };
  const spent = { ...reply('More.'), usage: { input_tokens: 10, output_tokens: 9960 } };
  const more = {
    steps: [...calls(toolUse('rye_execute', { item_type: 'x' }, 'b')).steps],
    usage: spent.usage,
  };
  const { env } = await serve([big, more, reply('Done.')]);
  const result = await run(here, env);
  expect(result).toMatchObject({ status: 'error', error: { code: 'limit_spend' } });
  expect(result.error?.message).toContain(`running children hold $0.9000: ${result.children[0]}`);
  expect(result.error?.hint).toMatch(/^Wait for the children/);
});

test('--parent with a thread that has ended is refused with that reason', async () => {
  const here = await workspace();
  const { thread_id: parent } = (await here.json([
    'run',
    'hello',
    '--input',
    'who=Ada',
  ])) as unknown as Result;
  const args = ['run', 'hello', '--input', 'who=Bo', '--parent', parent];
  for (const more of [[], ['--dry-run'], ['--async']]) {
    const refused = await here.rye([...args, ...more]);
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain(`the parent ${parent} has ended (completed)`);
  }
});
