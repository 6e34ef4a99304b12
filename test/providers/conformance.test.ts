import type { JsonObject } from '../../src/kernel/core/json.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { embeddedConfig } from '../../src/kernel/providers/catalog.ts';
import { literalProvider } from '../../src/kernel/providers/literal/provider.ts';
import type { ModelProvider } from '../../src/kernel/providers/provider.ts';
import {
  recordingFromMessages,
  replayProvider,
} from '../../src/kernel/providers/replay/recording.ts';
import {
  aRequest,
  describeProvider,
  type Opened,
  type Scenario,
} from '../../testing/conformance/provider.ts';
import { type MockTurn, mockModel } from '../../testing/index.ts';
import { type ChatTurn, chatCall, chatText, startChatServer } from '../helpers/chat-server.ts';
import { startWireServer, text, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import { planOf } from '../loop/scripted.ts';
import { chatAt, claudeAt, systemClock } from './fixtures.ts';

async function claude(turn: WireTurn): Promise<Opened> {
  const server = await startWireServer(() => turn);
  return {
    provider: claudeAt(server.url),
    close: server.close,
    disconnected: async () => (await server.request(0)).closed,
  };
}

describeProvider('anthropic', {
  answering: async ({ text: words, calls }) =>
    claude({
      steps: [
        text(...words.split(/(?<= )/)),
        ...calls.map(({ name, input }) => toolUse(name, input)),
      ],
    }),
  failing: async () =>
    claude({ status: 500, error: { type: 'api_error', message: 'something broke' } }),
  hanging: async () =>
    claude({ steps: [text('a'), { kind: 'wait', until: new Promise(() => undefined) }] }),
  flooding: async () => {
    let drained = false;
    const event = `event: ping\ndata: ${JSON.stringify({ type: 'ping', fill: 'x'.repeat(1 << 20) })}\n\n`;
    const flood: WireTurn = {
      steps: [
        text('a'),
        ...Array.from({ length: 64 }, () => ({ kind: 'raw', bytes: event }) as const),
        { kind: 'wait', until: Promise.resolve() },
      ],
    };
    const server = await startWireServer(() => flood);
    const watch = async (): Promise<void> => {
      const { closed } = await server.request(0);
      drained = !(await closed);
    };
    void watch();
    return { provider: claudeAt(server.url), close: server.close, drained: () => drained };
  },
});

async function chat(turn: ChatTurn): Promise<Opened> {
  const server = await startChatServer(() => turn);
  return {
    provider: chatAt(server.url),
    request: aRequest({ model: 'gpt-6-sol' }),
    close: server.close,
    disconnected: async () => (await server.request(0)).closed,
  };
}

describeProvider('openai', {
  answering: async ({ text: words, calls }) =>
    chat({
      steps: [
        ...chatText(...words.split(/(?<= )/)),
        ...calls.flatMap(({ name, input }, index) => chatCall(index, name, input)),
      ],
    }),
  failing: async () =>
    chat({ status: 500, error: { type: 'server_error', message: 'something broke' } }),
  hanging: async () =>
    chat({ steps: [...chatText('a'), { kind: 'wait', until: new Promise(() => undefined) }] }),
  flooding: async () => {
    let drained = false;
    const bytes = `: ${'x'.repeat(1 << 20)}\n\n`;
    const server = await startChatServer(() => ({
      steps: [
        ...chatText('a'),
        ...Array.from({ length: 64 }, () => ({ kind: 'raw', bytes }) as const),
      ],
    }));
    const watch = async (): Promise<void> => {
      const { closed } = await server.request(0);
      drained = !(await closed);
    };
    void watch();
    return {
      provider: chatAt(server.url),
      request: aRequest({ model: 'gpt-6-sol' }),
      close: server.close,
      drained: () => drained,
    };
  },
});

const NOTHING_TO_WAIT_FOR = {
  hanging: 'it answers from memory and never waits',
  flooding: 'it has nothing but a generator, which runs when pulled',
};

describeProvider('replay', {
  answering: async ({ text: words, calls }) => {
    const recording = recordingFromMessages([
      {
        role: 'assistant',
        provider: 'anthropic',
        model: 'claude-sonnet-5-5',
        stop_reason: calls.length > 0 ? 'tool_calls' : 'end',
        usage: { ...NO_USAGE, input_tokens: 7, output_tokens: 3 },
        content: [
          { type: 'text', text: words },
          ...calls.map(
            ({ name, input }, index) =>
              ({
                type: 'tool_call',
                call_id: `c${index}`,
                name,
                input: input as JsonObject,
              }) as const,
          ),
        ],
      },
    ]);
    const [call] = recording.calls;
    return { provider: replayProvider({ calls: call ? [call, call] : [] }) };
  },
  failing: async () => ({ provider: replayProvider({ calls: [] }) }),
  skips: NOTHING_TO_WAIT_FOR,
});

describeProvider('mock', {
  answering: async ({ text: words, calls }) => {
    const made = calls.map(({ name, input }) => ({ tool: name, input: input as JsonObject }));
    const answer = { text: words, calls: made };
    return { provider: openMock([answer, answer]) };
  },
  failing: async () => ({ provider: openMock([]) }),
  skips: NOTHING_TO_WAIT_FOR,
});

function openMock(script: readonly MockTurn[]): ModelProvider {
  return mockModel(script).kind.open({
    config: embeddedConfig('mock'),
    catalog: {},
    plan: planOf({}),
    env: {},
    clock: systemClock,
    stallSeconds: 60,
  });
}

/** Literal returns the result of a finished step, and makes the calls of the next one. */
function literal({ text: words, calls }: Scenario): Opened {
  const isCalling = calls.length > 0;
  const step = {
    name: 'only',
    description: words,
    origin: 'd.md:1',
    calls: isCalling
      ? calls.map(({ name, input }) => ({
          primary: 'execute' as const,
          item_type: 'tool' as const,
          item_id: name.replace('_', '/'),
          params: input as JsonObject,
        }))
      : [
          {
            primary: 'execute' as const,
            item_type: 'tool' as const,
            item_id: 'rye/first',
            params: {},
          },
        ],
  };
  const request = aRequest({
    messages: isCalling
      ? aRequest().messages
      : [
          ...aRequest().messages,
          {
            role: 'tool_result',
            call_id: 'literal-1-1',
            name: 'rye_first',
            outcome: 'ok',
            content: [{ type: 'text', text: words }],
          },
        ],
  });
  return {
    provider: literalProvider({
      steps: [step],
      outputs: [],
      inputs: {},
      values: {},
      alternatives: [],
    }),
    request,
  };
}

describeProvider('literal', {
  answering: async (scenario) => literal(scenario),
  failing: async () => ({
    provider: literalProvider({
      steps: [],
      outputs: [],
      inputs: {},
      values: {},
      alternatives: ['anthropic'],
    }),
  }),
  skips: NOTHING_TO_WAIT_FOR,
});
