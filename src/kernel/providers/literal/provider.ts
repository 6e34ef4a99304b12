import {
  compact,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  parseJson,
  toText,
} from '../../core/json.ts';
import {
  type AssistantBlock,
  isErrorOutcome,
  type Message,
  type ToolCallBlock,
  type ToolResultMessage,
  textOf,
} from '../../core/message.ts';
import type { OutputDeclaration, ProcessStep } from '../../core/plan.ts';
import { headBytes } from '../../core/text.ts';
import { NO_USAGE } from '../../core/usage.ts';
import type { ProviderConfig } from '../catalog.ts';
import type {
  ModelEvent,
  ModelProvider,
  ProviderFailure,
  ProviderKind,
  ToolDefinition,
} from '../provider.ts';
import { processTree } from './blocks.ts';
import {
  referencedSteps,
  resolve,
  type Scope,
  type StepResult,
  type Unresolved,
} from './references.ts';
import { EXCERPT_BYTES, type Frame, type LiteralCall, unresolvedText, Walk } from './walk.ts';

/** The directive to execute, as the thread's plan holds it. */
export interface LiteralDirective {
  readonly steps: readonly ProcessStep[];
  readonly outputs: readonly OutputDeclaration[];
  readonly inputs: JsonObject;
  /** Values of the references in the steps to inputs and variables, by reference as written. */
  readonly values: JsonObject;
  /** Providers that could follow what literal cannot, such as `anthropic (set ANTHROPIC_API_KEY)`. */
  readonly alternatives: readonly string[];
}

/** The provider's next answer. */
type LiteralMove =
  | { readonly kind: 'calls'; readonly text: string; readonly calls: readonly LiteralCall[] }
  | { readonly kind: 'end'; readonly text: string }
  | {
      readonly kind: 'failed';
      readonly type: 'literal_unsupported' | 'literal_step_failed';
      readonly message: string;
    };

const RETURN_CALL_ID = 'literal-return';
const RETURN_NAMES = ['rye_directive_return', 'directive_return'];

/**
 * Decides the next move from the conversation alone, so that a thread can be continued by another process: the call
 * id of result `n` of step `s` is `literal-<s>-<n>`, both from 1. The calls of one step go out together and are
 * independent of each other; a call that needs an earlier result belongs in a later step. Items of a `<foreach>` add their
 * position, such as `literal-2-1-i0`.
 */
function nextMove(
  directive: LiteralDirective,
  messages: readonly Message[],
  tools: readonly ToolDefinition[],
): LiteralMove {
  const unsupported = findUnsupported(directive);
  if (unsupported !== undefined) return unsupported;
  const { inputs, values } = directive;
  const frame: Frame = { steps: {}, inputs, values, locals: {}, path: '' };
  const total = directive.steps.length;
  const walk = new Walk({ results: resultsOf(messages), tools, total });
  const progress = walk.through(processTree(directive.steps), frame);
  if (progress.kind === 'failed') return failedMove(progress.message);
  if (progress.kind === 'calls') return progress;
  return conclude(directive, returnResult(messages), frame, tools);
}

/** Finds what makes the directive impossible to execute before anything runs, so that nothing stays half done. */
function findUnsupported({ steps, alternatives }: LiteralDirective): LiteralMove | undefined {
  const instead = alternatives.length === 0 ? 'a model provider' : alternatives.join(' or ');
  if (steps.length === 0) {
    return unsupportedMove(
      `the directive has no <process> with steps to execute; run it with ${instead}`,
    );
  }
  const known = new Set<string>();
  for (const [index, step] of steps.entries()) {
    const where = `step ${index + 1} "${step.name}" (${step.origin})`;
    if (step.calls.length === 0) {
      return unsupportedMove(
        `${where} has no action that can be executed as written; run it with ${instead}`,
      );
    }
    const lists = (step.within ?? []).map((block) => (block.kind === 'foreach' ? block.in : ''));
    const missing = [...lists, ...step.calls.map(({ params }) => params)]
      .flatMap((value) => referencedSteps(value))
      .find((name) => !known.has(name));
    if (missing !== undefined) {
      return unsupportedMove(
        `${where} refers to the step "${missing}", which does not come before it`,
      );
    }
    known.add(step.name);
  }
  return undefined;
}

function unsupportedMove(message: string): LiteralMove {
  return {
    kind: 'failed',
    type: 'literal_unsupported',
    message: `literal cannot follow this directive: ${message}`,
  };
}

function resultsOf(messages: readonly Message[]): ReadonlyMap<string, ToolResultMessage> {
  const results = messages.filter((message) => message.role === 'tool_result');
  return new Map(results.map((result) => [result.call_id, result]));
}

/** The answer to the return; none if a later message asks to continue, as in a resumed thread. */
function returnResult(messages: readonly Message[]): ToolResultMessage | undefined {
  const at = messages.findLastIndex(
    (message) => message.role === 'tool_result' && message.call_id.startsWith(RETURN_CALL_ID),
  );
  const result = messages[at];
  if (result?.role !== 'tool_result') return undefined;
  const isAsked = messages.slice(at + 1).some(({ role }) => role === 'user');
  return isAsked && !isErrorOutcome(result.outcome) ? undefined : result;
}

function failedMove(message: string): LiteralMove {
  return { kind: 'failed', type: 'literal_step_failed', message };
}

function conclude(
  directive: LiteralDirective,
  returned: ToolResultMessage | undefined,
  scope: Scope,
  tools: readonly ToolDefinition[],
): LiteralMove {
  const last = scope.steps[directive.steps.at(-1)?.name ?? ''] ?? { text: '' };
  if (directive.outputs.length === 0) return { kind: 'end', text: last.text };
  if (returned !== undefined) {
    if (!isErrorOutcome(returned.outcome)) return { kind: 'end', text: last.text };
    return failedMove(
      `the outputs were refused: ${headBytes(textOf(returned.content).trim(), EXCERPT_BYTES)}`,
    );
  }
  const input: Record<string, JsonValue> = {};
  for (const output of directive.outputs) {
    const unresolved: Unresolved[] = [];
    const value =
      output.from === undefined
        ? byDefault(output, last)
        : resolve(output.from, { ...scope, values: {} }, unresolved);
    if (unresolved.length === 0) input[output.name] = typed(value, output);
    else if (output.required) {
      return failedMove(unresolvedText(`the output "${output.name}"`, unresolved));
    }
  }
  const name = RETURN_NAMES.find((candidate) => tools.some((tool) => tool.name === candidate));
  return {
    kind: 'calls',
    text: '',
    calls: [{ callId: RETURN_CALL_ID, name: name ?? 'rye_directive_return', input }],
  };
}

/** Without `from`: the last step's member of the same name, else its text. */
function byDefault({ name }: OutputDeclaration, { text, data }: StepResult): JsonValue {
  const member = isJsonObject(data) && Object.hasOwn(data, name) ? data[name] : undefined;
  return member ?? text;
}

/** Text that spells a value of the declared type becomes that value; anything else stays for the return to judge. */
function typed(value: JsonValue, { type }: OutputDeclaration): JsonValue {
  const isText = type === 'string' || type === 'file' || type === 'enum';
  if (isText) return toText(value);
  return typeof value === 'string' ? (parseJson(value) ?? value) : value;
}

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
