import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { JsonObject } from '../../src/core/json.ts';
import { chatCall, chatText, startChatServer } from '../helpers/chat-server.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const STRICT = {
  type: 'object',
  properties: { n: { type: 'integer' } },
  required: ['n'],
  additionalProperties: false,
};
/** Allows more than it lists, which no API promises. */
const LOOSE = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };

const MODELS = {
  general: ['tools', 'forced_tools', 'structured_output'],
  forced: ['tools', 'forced_tools'],
};

interface Wire {
  /** Returns the schema in each request, starting with the first that asks for the result. */
  readonly asked: (body: Record<string, unknown>) => boolean;
  readonly schema: JsonObject;
  readonly isCall: boolean;
  readonly isChat: boolean;
}

const WIRES: readonly (readonly [string, Wire])[] = [
  [
    'anthropic, natively',
    { asked: (body) => 'output_config' in body, schema: STRICT, isCall: false, isChat: false },
  ],
  [
    'anthropic, by a call',
    {
      // a model that always thinks can't be forced: the tool is offered, and the question asks for it
      asked: ({ tools = [] }) => JSON.stringify(tools).includes('__output__'),
      schema: LOOSE,
      isCall: true,
      isChat: false,
    },
  ],
  [
    'openai, natively',
    { asked: (body) => 'response_format' in body, schema: STRICT, isCall: false, isChat: true },
  ],
  [
    'openai, by a forced call',
    {
      asked: ({ tool_choice: choice }) => (JSON.stringify(choice) ?? '').includes('__output__'),
      schema: STRICT,
      isCall: true,
      isChat: true,
    },
  ],
];

/** Runs a directive whose model first answers with another text and then returns these results in turn. */
async function given({ schema, isCall, isChat }: Wire, results: readonly object[]) {
  const lab = await libraryLab([
    reply('There are four.'),
    ...results.map((result, index) =>
      isCall ? calls(toolUse('__output__', result, `o${index}`)) : reply(JSON.stringify(result)),
    ),
  ]);
  const chat = await startChatServer([
    { steps: chatText('There are four.') },
    ...results.map((result, index) => ({
      steps: isCall
        ? chatCall(0, '__output__', result, `o${index}`)
        : chatText(JSON.stringify(result)),
    })),
  ]);
  onTestFinished(() => chat.close());
  const file = path.join(lab.project, '.ai/config/agent/providers/lab.yaml');
  mkdirSync(path.dirname(file), { recursive: true });
  const size = { context_window: 100_000, max_output_tokens: 4000 };
  const models = Object.entries(MODELS).map(([name, capabilities]) => [
    name,
    { ...size, pricing: { input: 1, output: 1 }, capabilities },
  ]);
  const entries = Object.fromEntries(models) as object;
  writeFileSync(file, JSON.stringify({ kind: 'openai', base_url: chat.url, models: entries }));
  const rye = lab.open();
  await rye.items.sign('config', 'agent/providers/lab');
  await lab.directive('work');
  const outcome = await rye.run({
    directiveId: 'team/work',
    behavior: { schema, nudge: false },
    ...(isChat
      ? { provider: 'lab', model: isCall ? 'forced' : 'general' }
      : { provider: 'anthropic' }),
  });
  const requests = isChat ? chat.requests : lab.server.requests;
  return { outcome, bodies: requests.map(({ body }) => body as Record<string, unknown>) };
}

describe.each(WIRES)('a result that must match a schema: %s', (_, wire) => {
  // Requirement: structured-result
  it('is asked for when the model is done, corrected, and becomes the outputs', async () => {
    const { outcome, bodies } = await given(wire, [{ n: 'four' }, { n: 4 }]);
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { n: 4 } });
    expect(bodies.map(wire.asked)).toEqual([false, true, true]);
    expect(JSON.stringify(bodies[2])).toContain('does not match');
  });

  // Requirement: structured-result
  it('that never matches ends the run after three times', async () => {
    const { outcome, bodies } = await given(wire, [{ n: 'a' }, { n: 'b' }, {}, { n: 4 }]);
    expect(outcome).toMatchObject({ kind: 'failed', error: { code: 'outputs_missing' } });
    expect(bodies).toHaveLength(4);
  });
});
