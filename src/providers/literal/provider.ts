import { compact } from '../../core/json.ts';
import type { AssistantBlock, ToolCallBlock } from '../../core/message.ts';
import { NO_USAGE } from '../../core/usage.ts';
import type { ProviderConfig } from '../catalog.ts';
import type { ModelEvent, ModelProvider, ProviderFailure, ProviderKind } from '../provider.ts';
import { type LiteralDirective, type LiteralMove, nextMove } from './plan.ts';
import type { LiteralCall } from './walk.ts';

const CHUNK_CHARACTERS = 256;

const ABORTED: ProviderFailure = { phase: 'aborted', message: 'the model call was cancelled' };

/**
 * The embedded provider that needs no model: it executes a directive's explicit steps by real tool calls and returns
 * the outputs, and it streams like any model. It keeps no state: the request's messages tell which steps are done.
 * Failures: `literal_unsupported` for a directive that it cannot follow, before anything ran, and
 * `literal_step_failed` for a step that failed.
 */
export function literalProvider(directive: LiteralDirective): ModelProvider {
  return {
    name: 'literal',
    async *stream({ model, messages, tools }, signal) {
      for (const event of speak(model, nextMove(directive, messages, tools))) {
        if (signal.aborted) {
          yield { type: 'error', failure: ABORTED };
          return;
        }
        yield event;
      }
    },
  };
}

export const LITERAL: ProviderKind = {
  traits: { embedded: true, replayable: true, needsTools: true },
  open: ({ plan, catalog }) =>
    literalProvider({
      steps: plan.process,
      values: plan.process_values ?? {},
      outputs: plan.outputs,
      inputs: plan.inputs,
      alternatives: Object.values(catalog).map(describeProvider),
    }),
};

function describeProvider({ name, apiKeyEnv }: ProviderConfig): string {
  return apiKeyEnv === null ? name : `${name} (set ${apiKeyEnv})`;
}

function* speak(model: string, move: LiteralMove): Generator<ModelEvent> {
  yield { type: 'start', model };
  yield { type: 'usage', usage: NO_USAGE };
  if (move.kind === 'failed') {
    yield { type: 'error', failure: { phase: 'response', type: move.type, message: move.message } };
    return;
  }
  for (const text of chunksOf(move.text)) yield { type: 'text_delta', text };
  const calls = move.kind === 'calls' ? move.calls : [];
  for (const call of calls) yield* speakCall(call);
  const text: AssistantBlock[] = move.text === '' ? [] : [{ type: 'text', text: move.text }];
  yield {
    type: 'finish',
    reason: move.kind === 'calls' ? 'tool_calls' : 'end',
    content: [
      ...text,
      ...calls.map(
        ({ callId, name, input, batch }) =>
          compact({ type: 'tool_call', call_id: callId, name, input, batch }) as ToolCallBlock,
      ),
    ],
  };
}

/** Splits a text into pieces of about {@link CHUNK_CHARACTERS}, never inside a surrogate pair. */
function* chunksOf(text: string): Generator<string> {
  for (let from = 0; from < text.length; ) {
    const cut = from + CHUNK_CHARACTERS;
    const to = /[\uD800-\uDBFF]/.test(text.charAt(cut - 1)) ? cut + 1 : cut;
    yield text.slice(from, to);
    from = to;
  }
}

function* speakCall({ callId, name, input }: LiteralCall): Generator<ModelEvent> {
  yield { type: 'toolcall_start', call_id: callId, name };
  yield { type: 'toolcall_delta', call_id: callId, json: JSON.stringify(input) };
  yield { type: 'toolcall_end', call_id: callId };
}
