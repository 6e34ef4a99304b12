import { wireName } from '../src/kernel/core/ids.ts';
import type { JsonObject } from '../src/kernel/core/json.ts';
import type { AssistantBlock } from '../src/kernel/core/message.ts';
import { NO_USAGE } from '../src/kernel/core/usage.ts';
import type { ModelEvent, ModelRequest, ProviderKind } from '../src/kernel/providers/provider.ts';

/** A call of a tool, by the id of the tool or by the name that the model sees. */
export interface MockCall {
  readonly tool: string;
  readonly input?: JsonObject;
}

/** An answer of the model: a text, calls, or both; `error` makes the request fail. */
export interface MockAnswer {
  readonly text?: string;
  readonly calls?: readonly MockCall[];
  readonly error?: string;
}

/** One entry of the script. A text is an answer; a function gets the request and returns the answer. */
export type MockTurn = string | MockAnswer | ((request: ModelRequest) => string | MockAnswer);

const ABORTED: ModelEvent = {
  type: 'error',
  failure: { phase: 'aborted', message: 'the call was aborted' },
};

/** A scripted model for tests. */
export interface MockModel {
  /** For `openRye({ providers: { mock: model.kind } })`; run with `provider: 'mock'`. */
  readonly kind: ProviderKind;
  /** The requests so far. */
  readonly requests: readonly ModelRequest[];
}

/**
 * Returns a model that gives the answers of the script in order, one a request. It needs no key, costs nothing and uses
 * no network. A request after the last answer fails.
 */
export function mockModel(script: readonly MockTurn[]): MockModel {
  const requests: ModelRequest[] = [];
  const answer = (request: ModelRequest): MockAnswer => {
    requests.push(request);
    const turn = script[requests.length - 1];
    const given = typeof turn === 'function' ? turn(request) : turn;
    if (given === undefined) {
      return { error: `the mock model has no answer for request ${requests.length}` };
    }
    return typeof given === 'string' ? { text: given } : given;
  };
  const kind: ProviderKind = {
    traits: { embedded: true, replayable: false, needsTools: false },
    open: ({ config }) => ({
      name: config.name,
      async *stream(request, signal) {
        const events = signal.aborted
          ? [ABORTED]
          : eventsOf(request.model, answer(request), requests.length);
        for (const event of events) {
          if (signal.aborted) {
            yield ABORTED;
            return;
          }
          yield event;
        }
      },
    }),
  };
  return { kind, requests };
}

function* eventsOf(model: string, answer: MockAnswer, turn: number): Generator<ModelEvent> {
  const { text = '', calls = [], error } = answer;
  if (error !== undefined) {
    yield { type: 'error', failure: { phase: 'response', status: 400, message: error } };
    return;
  }
  const blocks: AssistantBlock[] = text === '' ? [] : [{ type: 'text', text }];
  yield { type: 'start', model };
  yield { type: 'usage', usage: NO_USAGE };
  if (text !== '') yield { type: 'text_delta', text };
  for (const [index, { tool, input = {} }] of calls.entries()) {
    const call_id = `mock-${turn}-${index + 1}`;
    const name = wireName(tool);
    yield { type: 'toolcall_start', call_id, name };
    yield { type: 'toolcall_delta', call_id, json: JSON.stringify(input) };
    yield { type: 'toolcall_end', call_id };
    blocks.push({ type: 'tool_call', call_id, name, input });
  }
  yield { type: 'finish', reason: calls.length === 0 ? 'end' : 'tool_calls', content: blocks };
}
