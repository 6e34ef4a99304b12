import { expect, it, onTestFinished } from 'vitest';
import { type ChatBody, chatCall, chatText, startChatServer } from '../helpers/chat-server.ts';
import { libraryLab } from './library-lab.ts';
import { toolOf } from './made-calls.ts';

const IMAGE = 'iVBORw0KGgo=';
const SIGHT = {
  content: [
    { type: 'text', text: 'A map.' },
    { type: 'image', media_type: 'image/png', data: IMAGE },
  ],
  is_error: false,
} as const;

/** The requests of a run in which a model of this provider gets the image of a tool. */
async function requestsOf(
  provider: string,
  model: string,
  dialect: Parameters<typeof startChatServer>[1],
): Promise<readonly ChatBody[]> {
  const server = await startChatServer(
    [{ steps: chatCall(0, 'shop_map', {}, 'call_1') }, { steps: chatText('Done.') }],
    dialect,
  );
  onTestFinished(() => server.close());
  const lab = await libraryLab();
  await lab.directive('work', ['shop/map']);
  const name = provider.toUpperCase();
  const env = { [`${name}_API_KEY`]: 'sk-test', [`${name}_BASE_URL`]: server.url };
  const outcome = await lab.open({ env }).run({
    directiveId: 'team/work',
    provider,
    model,
    allowUnpriced: true,
    tools: { 'shop/map': toolOf(() => Promise.resolve(SIGHT)) },
  });
  expect(outcome).toMatchObject({ kind: 'completed', result: 'Done.' });
  return server.requests.map(({ body }) => body);
}

it('an image of a result follows the results in a user message, where results cannot hold one', async () => {
  const [, body] = await requestsOf('openai', 'general', 'openai');
  const messages = body?.messages ?? [];
  const at = messages.findIndex(({ role }) => role === 'tool');
  expect(JSON.stringify(messages[at])).not.toContain(IMAGE);
  expect(messages[at + 1]).toMatchObject({ role: 'user' });
  expect(JSON.stringify(messages[at + 1])).toContain(`data:image/png;base64,${IMAGE}`);
});

it('a model that sees no images reads that one exists', async () => {
  const [, body] = await requestsOf('openrouter', 'acme/blind', 'openrouter');
  expect(JSON.stringify(body)).not.toContain(IMAGE);
  expect(JSON.stringify(body?.messages)).toContain('[an image of the type image/png]');
});

it('marks for the cache are sent to a server that reads them, and to no other', async () => {
  const marked = async (provider: 'openai' | 'openrouter') =>
    (await requestsOf(provider, 'general', provider)).map((body) =>
      JSON.stringify(body).includes('cache_control'),
    );
  expect(await marked('openrouter')).toEqual([true, true]);
  expect(await marked('openai')).toEqual([false, false]);
});
