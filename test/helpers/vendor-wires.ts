import type { Scenario } from '../../testing/conformance/provider.ts';
import type { ChatTurn } from './chat-server.ts';

/** Returns the chunks of an answer in the shape that its documentation or a capture shows. */
type Speak = (scenario: Scenario, model: string) => readonly object[];

/** The answer of a scenario as the server of this dialect would stream it. */
export function spoken(dialect: string, scenario: Scenario, model: string): ChatTurn {
  const speak = VENDORS[dialect] ?? standard;
  const events = speak(scenario, model).map((event) => `data: ${JSON.stringify(event)}\n\n`);
  return { pieces: [...events, 'data: [DONE]\n\n'] };
}

const USAGE = { prompt_tokens: 120, completion_tokens: 30, total_tokens: 150 };

function chunk(model: string, delta: object, more: object = {}): object {
  const choices = [{ index: 0, delta, finish_reason: null }];
  return { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model, choices, ...more };
}

function last(model: string, reason: string, more: object = {}, delta: object = {}): object {
  return { ...chunk(model, delta), choices: [{ index: 0, delta, finish_reason: reason }], ...more };
}

function words({ text }: Scenario): readonly string[] {
  return text.split(/(?<= )/);
}

function reasonOf({ calls }: Scenario): string {
  return calls.length > 0 ? 'tool_calls' : 'stop';
}

/** OpenAI's own: a call begins with its name, and its arguments follow in pieces. */
const standard: Speak = (scenario, model) => [
  chunk(model, { role: 'assistant', content: '' }),
  ...words(scenario).map((content) => chunk(model, { content })),
  ...scenario.calls.flatMap(({ name, input }, index) => {
    const json = JSON.stringify(input);
    const first = { index, id: `call_${index}`, type: 'function' };
    return [
      chunk(model, { tool_calls: [{ ...first, function: { name, arguments: '' } }] }),
      chunk(model, { tool_calls: [{ index, function: { arguments: json.slice(0, 1) } }] }),
      chunk(model, { tool_calls: [{ index, function: { arguments: json.slice(1) } }] }),
    ];
  }),
  last(model, reasonOf(scenario)),
  { ...chunk(model, {}), choices: [], usage: USAGE },
];

const VENDORS: Readonly<Record<string, Speak>> = {
  /** The result of the content filter comes first, without a model. */
  azure: (scenario, model) => [
    { choices: [], created: 0, id: '', model: '', object: '', prompt_filter_results: [] },
    ...standard(scenario, model),
  ],
  /** Whole calls without an index; the reason is `stop` all the same, and thoughts count in the total only. */
  gemini: (scenario, model) => [
    ...words(scenario).map((content) => chunk(model, { role: 'assistant', content })),
    ...scenario.calls.map(({ name, input }, index) => {
      const call = { id: `g${index}`, type: 'function', function: withJson(name, input) };
      const signed = { extra_content: { google: { thought_signature: 'c2ln' } } };
      return chunk(model, { tool_calls: [{ ...(index === 0 ? signed : {}), ...call }] });
    }),
    last(model, 'stop', { usage: { ...USAGE, total_tokens: 290 } }),
  ],
  /** The usage is in a separate member. */
  groq: (scenario, model) => [
    chunk(model, { role: 'assistant', content: null }, { x_groq: { id: 'req_1' } }),
    ...words(scenario).map((content) => chunk(model, { content })),
    ...scenario.calls.map(({ name, input }, index) => {
      const call = { id: `fc_${index}`, type: 'function', index, function: withJson(name, input) };
      return chunk(model, { tool_calls: [call] });
    }),
    last(model, reasonOf(scenario), { x_groq: { id: 'req_1', usage: USAGE } }),
  ],
  /** All calls, the reason and the usage come in the last chunk. */
  mistral: (scenario, model) => {
    const calls = scenario.calls.map(({ name, input }, index) => ({
      id: `mistral0${index}`,
      index,
      function: withJson(name, input),
    }));
    const delta = { content: '', ...(calls.length > 0 ? { tool_calls: calls } : {}) };
    return [
      chunk(model, { role: 'assistant', content: '' }),
      ...words(scenario).map((content) => chunk(model, { content })),
      last(model, reasonOf(scenario), { usage: USAGE }, delta),
    ];
  },
  /** Whole calls, all with the index 0. */
  ollama: (scenario, model) => [
    ...words(scenario).map((content) => chunk(model, { role: 'assistant', content })),
    ...scenario.calls.map(({ name, input }, at) => {
      const call = {
        id: `call_${at}`,
        type: 'function',
        index: 0,
        function: withJson(name, input),
      };
      return chunk(model, { role: 'assistant', content: '', tool_calls: [call] });
    }),
    last(model, reasonOf(scenario)),
    { ...chunk(model, {}), choices: [], usage: USAGE },
  ],
};

function withJson(name: string, input: unknown): object {
  return { name, arguments: JSON.stringify(input) };
}
