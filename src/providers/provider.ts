import type { JsonObject } from '../core/json.ts';
import type { AssistantBlock, Message, StopReason } from '../core/message.ts';
import type { Usage } from '../core/usage.ts';

/** How hard a model should think. Adapters map it to what their API has. */
export const THINKING_LEVELS = ['off', 'minimal', 'low', 'medium', 'high'] as const;
export type ThinkingLevel = (typeof THINKING_LEVELS)[number];

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

/**
 * The tool whose call carries an answer that must match a schema, where the API cannot hold an answer to one. The
 * loop takes its input for the answer; no tool runs.
 */
export const OUTPUT_TOOL = {
  name: '__output__',
  description: 'Gives the final result. Call it once, with the whole result as its arguments.',
} as const;

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
   * JSON Schema of an object that the answer has to be. An adapter asks for it natively, else by a forced call of
   * {@link OUTPUT_TOOL}; whether the answer matches is for the loop to check.
   */
  readonly output_schema?: JsonObject;
}

/** Raw facts of a failed model call, before classification. Holds no secret and no request content. */
export interface ProviderFailure {
  readonly message: string;
  /** HTTP status, when there was a response. */
  readonly status?: number;
  /** The API's own error type or code, e.g. `overloaded_error`. */
  readonly type?: string;
  /** Where it broke: before a response, while streaming, by our stall timer, or because the caller aborted. */
  readonly phase: 'connect' | 'response' | 'stream' | 'stalled' | 'aborted';
  /** What a Retry-After or retry-after-ms header asked for. */
  readonly retry_after_ms?: number;
  readonly request_id?: string;
}

/**
 * What a model says, piece by piece. Grammar: `start`, then deltas and usages in any order, then exactly one
 * `finish` or one `error`, which is the last event. A call that fails before the model speaks is only an `error`.
 */
export type ModelEvent =
  | { readonly type: 'start'; readonly model: string }
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

/**
 * The port to a language model. Contract: `stream` never throws and never rejects; every failure is the final
 * `error` event. An aborted `signal` ends the stream promptly with `error {phase: 'aborted'}` and closes the
 * connection. Adapters do not retry: the loop does.
 */
export interface ModelProvider {
  /** Name of the provider's configuration, such as `anthropic`. */
  readonly name: string;
  stream(request: ModelRequest, signal: AbortSignal): AsyncIterable<ModelEvent>;
}
