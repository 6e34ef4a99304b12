import { readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { reply, startWireServer, type WireBody, type WireServer } from '../helpers/wire-server.ts';

const HAIKU = 'claude-haiku-5-5';
const SONNET = 'claude-sonnet-5';

async function lab(model = `<model id="${HAIKU}" provider="anthropic" />`): Promise<Lab> {
  const made = await openLab();
  onTestFinished(async () => await made.remove());
  made.signed('directives/work.md', directive('work', { metadata: model }));
  return made;
}

/** The configuration of a provider `mine` at a server. */
function providerAt(url: string): string {
  return `kind: anthropic\nbase_url: ${url}\napi_key_env: ANTHROPIC_API_KEY\nprices_as_of: "2026-11-21"\ntiers: {fast: own}\nmodels:\n  own: {context_window: 9000, max_output_tokens: 900, pricing: {input: 1, output: 1}}\n`;
}

function last({ requests }: WireServer): WireBody | undefined {
  return requests.at(-1)?.body;
}

it('a thread continues with the model and the thinking level that its path set', async () => {
  const here = await lab();
  const server = await here.model(() => reply('Done.'));
  const { thread_id: id } = await here.run('work');
  const { trees, recovery } = here.rye();
  const [answer] = (await trees.view(id)).rows.slice(-1);
  const before = last(server)?.thinking;
  await trees.changeModel(id, { model: SONNET });
  await trees.changeThinking(id, 'high');
  const { rows } = await trees.view(id, { filter: 'all' });
  expect(rows.slice(-2).map(({ kind, text }) => [kind, text])).toEqual([
    ['model_change', `anthropic/${SONNET}`],
    ['thinking_change', 'high'],
  ]);

  expect((await trees.context(id)).settings).toEqual({
    model: { provider: 'anthropic', model: SONNET },
    thinking: 'high',
  });

  const resumed = await recovery.resume({ threadId: id, message: 'On.' });
  expect(resumed).toMatchObject({ status: 'completed', model: SONNET });
  expect(last(server)).toMatchObject({ model: SONNET, output_config: { effort: 'high' } });
  const document = JSON.parse(
    readFileSync(
      path.join(here.project, '.ai/state/threads', resumed.thread_id, 'thread.json'),
      'utf8',
    ),
  ) as object;
  expect(document).toMatchObject({ model: SONNET, provider: 'anthropic' });

  // the answer precedes them
  const back = await trees.extract(id, { at: answer?.entry.id ?? '' });
  await recovery.resume({ threadId: back.thread_id, message: 'Again.' });
  expect(last(server)).toMatchObject({ model: HAIKU });
  expect(last(server)?.thinking).toEqual(before);
  expect(last(server)?.output_config).toBeUndefined();
});

it('a suspended thread continues under its own id with the model that was set', async () => {
  const here = await lab();
  const server = await here.model(() => reply('Done.'));
  const { thread_id: id } = await here.run('work');
  const { trees, recovery, threads } = here.rye();
  const made = await trees.extract(id, { at: (await trees.view(id)).leaf_id ?? '' });
  await trees.changeModel(made.thread_id, { model: SONNET });
  const resumed = await recovery.resume({ threadId: made.thread_id, message: 'On.' });
  expect(resumed).toMatchObject({ thread_id: made.thread_id, model: SONNET });
  expect(last(server)?.model).toBe(SONNET);
  expect((await threads.verify(made.thread_id)).ok).toBe(true);
});

it('a thread that fell back continues with the fallback', async () => {
  const here = await lab(`<model id="${HAIKU}" provider="anthropic" fallback="${SONNET}" />`);
  const server = await here.model(({ body }) =>
    body.model === HAIKU
      ? { status: 404, error: { type: 'not_found_error', message: 'no such model' } }
      : reply('Done.'),
  );
  const { thread_id: id } = await here.run('work');
  expect(server.requests.map(({ body }) => body.model)).toEqual([HAIKU, SONNET]);
  await here.rye().recovery.resume({ threadId: id, message: 'On.' });
  expect(server.requests.map(({ body }) => body.model)).toEqual([HAIKU, SONNET, SONNET]);
});

it('a model of another provider that was set takes none of the planned fallbacks', async () => {
  const here = await lab(`<model id="${HAIKU}" provider="anthropic" fallback="${SONNET}" />`);
  const server = await here.model(({ body }) =>
    body.model === 'own'
      ? { status: 404, error: { type: 'not_found_error', message: 'no such model' } }
      : reply('Done.'),
  );
  here.signed('config/agent/providers/mine.yaml', providerAt(server.url));
  const { thread_id: id } = await here.run('work');
  await here.rye().trees.changeModel(id, { model: 'own', provider: 'mine' });
  const resumed = await here.rye().recovery.resume({ threadId: id, message: 'On.' });
  expect(resumed).toMatchObject({ status: 'error', model: 'own' });
  expect(server.requests.map(({ body }) => body.model)).toEqual([HAIKU, 'own']);
});

it('a model that was set is that of its provider, also where another has one of this name', async () => {
  const here = await lab();
  const server = await here.model(() => reply('Done.'));
  const other = await startWireServer(() => reply('Other.'));
  onTestFinished(async () => await other.close());
  here.signed('config/agent/providers/mine.yaml', providerAt(other.url).replaceAll('own', HAIKU));
  const { thread_id: id } = await here.run('work');
  await here.rye().trees.changeModel(id, { model: HAIKU, provider: 'mine' });
  const resumed = await here.rye().recovery.resume({ threadId: id, message: 'On.' });
  expect(resumed).toMatchObject({ status: 'completed', result: 'Other.' });
  expect([server.requests.length, other.requests.length]).toEqual([1, 1]);
});

it('the model that was set writes the summaries too', async () => {
  const here = await lab();
  const server = await here.model(({ body }) =>
    JSON.stringify(body.system ?? '').includes('You summarize') ? reply('SUMMARY') : reply('Done.'),
  );
  const { thread_id: id } = await here.run('work');
  const { trees } = here.rye();
  await trees.changeModel(id, { model: SONNET, provider: 'anthropic' });
  await trees.branch(id, { at: 'root', summary: 'model' });
  expect(last(server)).toMatchObject({ model: SONNET });
});

it('a model that no thread could continue with is not written', async () => {
  const here = await lab();
  await here.model(() => reply('Done.'));
  const { thread_id: id } = await here.run('work');
  const { trees } = here.rye();
  const file = path.join(here.project, '.ai/state/threads', id, 'transcript.jsonl');
  const bytes = readFileSync(file);
  await expect(trees.changeModel(id, { model: 'gpt-nine' })).rejects.toMatchObject({
    code: 'model_not_found',
  });
  await expect(trees.changeThinking(id, 'hard')).rejects.toMatchObject({ code: 'usage' });
  expect(readFileSync(file)).toEqual(bytes);
  // planned without a model, it has no rules that a model would be watched by
  const { thread_id: steps } = await here.run('hello', { model: 'literal' });
  await expect(trees.changeModel(steps, { model: SONNET })).rejects.toMatchObject({
    code: 'usage',
    hint: `Run hello again with --model ${SONNET}.`,
  });
});

it('a model that is not configured any more is named with the entry that set it', async () => {
  const here = await lab();
  await here.model(() => reply('Done.'));
  here.signed(
    'config/agent/providers/mine.yaml',
    'kind: anthropic\nbase_url: http://127.0.0.1:9\nprices_as_of: "2026-11-21"\ntiers: {fast: own}\nmodels:\n  own: {context_window: 9000, max_output_tokens: 900, pricing: {input: 1, output: 1}}\n',
  );
  const { thread_id: id } = await here.run('work');
  const [change] = await here.rye().trees.changeModel(id, { model: 'own', provider: 'mine' });
  rmSync(here.path('config/agent/providers/mine.yaml'));
  await here.rye().lock.accept();
  await expect(here.rye().recovery.resume({ threadId: id, message: 'On.' })).rejects.toMatchObject({
    code: 'model_not_found',
    message: expect.stringContaining(`entry ${change?.id} set the model`),
  });
});
