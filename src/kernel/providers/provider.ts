import type { Clock } from '../core/clock.ts';
import { RyeError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import type { AssistantBlock, Message, StopReason } from '../core/message.ts';
import type { ThreadPlan } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import type { Usage } from '../core/usage.ts';
import type { Catalog, OptionProblem, ProviderConfig } from './catalog.ts';

/** Levels of thinking. Adapters map them to what their API has. */
export const THINKING_LEVELS = ['off', 'minimal', 'low', 'medium', 'high'] as const;
export type ThinkingLevel = (typeof THINKING_LEVELS)[number];

/** Tokens that a level of thinking may take of an answer. */
export const THINKING_TOKENS: Readonly<Record<ThinkingLevel, number>> = {
  off: 0,
  minimal: 1024,
  low: 4096,
  medium: 16_384,
  high: 32_768,
};

/** A tool as the model sees it. `name` is the wire name. */
export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly input_schema: JsonObject;
}

/** The tools that a model is offered. Lists of one run with the same version hold the same tools. */
export interface ToolList {
  readonly version: number;
  readonly tools: readonly ToolDefinition[];
}

export interface ModelRequest {
  readonly model: string;
  /** Empty when there is no system prompt. */
  readonly system: string;
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDefinition[];
  readonly max_tokens: number;
  readonly thinking: ThinkingLevel;
  /** Mark prompt-cache breakpoints where the provider has them. */
  readonly cache: boolean;
  /** `any` forces a tool call, `{name}` that tool. Default: the model decides. */
  readonly tool_choice?: 'auto' | 'any' | 'none' | { readonly name: string };
  /**
   * JSON Schema of the object that the final answer has to be, unless the model returns it by a call of the return tool,
   * whose schema is in `tools`. An adapter asks for it natively if its API takes that beside tools, else ignores it. The
   * loop checks the answer.
   */
  readonly output_schema?: JsonObject;
  /** Beta features of the API, beside the betas of the provider's file. An API without betas ignores both members. */
  readonly betas?: readonly string[];
  /** Has the server edit the context, in place of the member of the provider's file. */
  readonly context_management?: JsonObject;
}

/** A failed model call before classification. Holds no secret and no request content. */
export interface ProviderFailure {
  readonly message: string;
  /** HTTP status, when there was a response. */
  readonly status?: number;
  /** The API's own error type or code, e.g. `overloaded_error`. */
  readonly type?: string;
  /** The phase that failed: before a response, while streaming, by our stall timer, or because the caller aborted. */
  readonly phase: 'connect' | 'response' | 'stream' | 'stalled' | 'aborted';
  /** The delay that a Retry-After or retry-after-ms header asked for. */
  readonly retry_after_ms?: number;
  /** Milliseconds until an allowance that is used up is full again, from a header such as x-ratelimit-reset-requests. */
  readonly reset_ms?: number;
  /** The x-should-retry header: false if the same request will fail again. */
  readonly should_retry?: boolean;
  readonly request_id?: string;
}

/**
 * One piece of a streamed answer. Grammar: `start`, then deltas and usages in any order, then exactly one
 * `finish` or one `error`, which is the last event. A call that fails before the answer begins is only an `error`.
 */
export type ModelEvent =
  /** `id`: the provider can be asked by it what the answer cost, see {@link ModelProvider.settle}. */
  | { readonly type: 'start'; readonly model: string; readonly id?: string }
  | { readonly type: 'text_delta'; readonly text: string }
  | { readonly type: 'thinking_delta'; readonly text: string }
  | { readonly type: 'toolcall_start'; readonly call_id: string; readonly name: string }
  | { readonly type: 'toolcall_delta'; readonly call_id: string; readonly json: string }
  | { readonly type: 'toolcall_end'; readonly call_id: string }
  /** Cumulative for this call: the last one wins. */
  | { readonly type: 'usage'; readonly usage: Usage }
  | {
      readonly type: 'finish';
      readonly reason: Exclude<StopReason, 'aborted'>;
      /** The whole answer in the provider's block order, thinking signatures included. */
      readonly content: readonly AssistantBlock[];
    }
  | { readonly type: 'error'; readonly failure: ProviderFailure };

/** The events of one call. */
export interface ModelStream extends AsyncIterable<ModelEvent> {
  /**
   * Returns the next event if it has come already, so that events that come together cost no promise each; undefined if
   * the iterator has to be asked. A stream with it is its own iterator.
   */
  ready?(): ModelEvent | undefined;
}

/**
 * The port to a language model. Contract: `stream` never throws and never rejects; every failure is the final
 * `error` event. An aborted `signal` ends the stream promptly with `error {phase: 'aborted'}` and closes the
 * connection. Adapters do not retry: the loop does.
 */
export interface ModelProvider {
  /** Name of the provider's configuration, such as `anthropic`. */
  readonly name: string;
  stream(request: ModelRequest, signal: AbortSignal): ModelStream;
  /** Returns the provider's count of an answer that this process did not see end; undefined if it has none yet. */
  settle?(answerId: string, signal: AbortSignal): Promise<Usage | undefined>;
}

/** Properties of a kind of provider that the rest of rye depends on. */
export interface ProviderTraits {
  /** Part of the program: it has no configuration file, needs no key, costs nothing and has no fallback models. */
  readonly embedded: boolean;
  /**
   * The conversation alone determines the answer. Asking again can't change it, calls that a crash prevented can be
   * made later, and there is no language model to instruct, to watch or to summarize with.
   */
  readonly replayable: boolean;
  /** Uses tools as a program does: it needs every definition up front and every result in full. */
  readonly needsTools: boolean;
}

/** Traits of a language model that is called through an API. */
export const REMOTE_MODEL: ProviderTraits = {
  embedded: false,
  replayable: false,
  needsTools: false,
};

/** Everything that a kind of provider may use to open one for a thread. */
export interface ProviderSetup {
  readonly config: ProviderConfig;
  /** All configured providers. */
  readonly catalog: Catalog;
  readonly plan: ThreadPlan;
  /** The only environment that is read: addresses, keys and tokens come from it. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  /** An answer that has begun and sends no byte for this long is broken; 0: never. */
  readonly stallSeconds: number;
  /** The wait for the first byte of an answer, in which a model may think; 0: without end. Default: `stallSeconds`. */
  readonly firstByteSeconds?: number;
  /** The wait for a connection; 0: as long as the system waits. Default: 10. */
  readonly connectSeconds?: number;
}

/** A kind of provider: the value of `kind` in a provider file, or the name of an embedded provider. */
export interface ProviderKind {
  readonly traits: ProviderTraits;
  /** Checks the members of a provider file that only this kind has. Absent: it has none, and such members are refused. */
  readonly checkOptions?: (options: JsonObject) => OptionProblem | undefined;
  readonly open: (setup: ProviderSetup) => ModelProvider;
}

/** The known kinds of providers by name. */
export type ProviderKinds = Readonly<Record<string, ProviderKind>>;

/** Returns the kind with that name; throws `config_invalid` with the nearest name if it is unknown. */
export function kindNamed(kinds: ProviderKinds, name: string): ProviderKind {
  const kind = Object.hasOwn(kinds, name) ? kinds[name] : undefined;
  if (kind) return kind;
  const names = Object.keys(kinds);
  throw new RyeError('config_invalid', `unknown kind of provider ${JSON.stringify(name)}`, {
    hint: didYouMean(name, names) ?? `Use one of ${names.join(', ')}.`,
  });
}

/**
 * Returns the traits of a kind. A thread of an unknown kind, which another program has run, can't call its model, but
 * it can be recovered: it counts as one of a language model.
 */
export function traitsOf(kinds: ProviderKinds, name: string): ProviderTraits {
  return (Object.hasOwn(kinds, name) ? kinds[name]?.traits : undefined) ?? REMOTE_MODEL;
}
