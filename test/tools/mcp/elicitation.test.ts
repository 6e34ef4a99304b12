import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { expect, it } from 'vitest';
import { Elicitations } from '../../../src/features/mcp/elicitation.ts';
import type { CallContext, Question, QuestionEnd } from '../../../src/kernel/tools/tool.ts';

type Handler = (
  request: { readonly params: object },
  extra: { readonly signal: AbortSignal },
) => Promise<unknown>;

/** A server's questions; `ask` asks as the server does. */
function server() {
  let handler: Handler | undefined;
  const client = { setRequestHandler: (_: unknown, given: Handler) => (handler = given) };
  const elicitations = new Elicitations(client as unknown as Client, 'gate');
  const params = { message: 'Deploy?', requestedSchema: { type: 'object', properties: {} } };
  const ask = async (): Promise<unknown> =>
    await handler?.({ params }, { signal: new AbortController().signal });
  return { elicitations, ask };
}

/** A call that a person answers; `told` is what it reports. */
function call(end: QuestionEnd = { kind: 'answered', answer: { yes: true } }) {
  const asked: string[] = [];
  const told: string[] = [];
  const context = {
    signal: new AbortController().signal,
    progress: (text: string) => told.push(text),
    ask: async ({ text }: Question) => {
      asked.push(text);
      return await Promise.resolve(end);
    },
  };
  return { context: context as unknown as CallContext, asked, told };
}

it('a server asks about the one call of it that runs', async () => {
  const { elicitations, ask } = server();
  const { context, asked } = call();
  const answer = await elicitations.during(context, ask);
  expect(answer).toEqual({ action: 'accept', content: { yes: true } });
  expect(asked).toEqual(['MCP server gate asks: Deploy?']);
  expect(await ask()).toEqual({ action: 'cancel' });
  const refused = call({ kind: 'declined' });
  expect(await elicitations.during(refused.context, ask)).toEqual({ action: 'decline' });
});

it('no person is asked while it is not known which of several calls a question belongs to', async () => {
  const { elicitations, ask } = server();
  const [first, second] = [call(), call()];
  const answer = await elicitations.during(
    first.context,
    async () => await elicitations.during(second.context, ask),
  );
  expect(answer).toEqual({ action: 'cancel' });
  expect([first.asked, second.asked]).toEqual([[], []]);
  expect(first.told.join('')).toContain('several calls of it run');
  expect(await elicitations.during(first.context, ask)).toMatchObject({ action: 'accept' });
});
