import type { JsonObject } from './json.ts';
import type { Usage } from './usage.ts';

export interface TextBlock {
  readonly type: 'text';
  readonly text: string;
}

export interface ImageBlock {
  readonly type: 'image';
  readonly media_type: string;
  /** Base64. */
  readonly data: string;
}

/** Reasoning that a provider wants back verbatim: `signature` and `redacted` are opaque to rye. */
export interface ThinkingBlock {
  readonly type: 'thinking';
  readonly text: string;
  readonly signature?: string;
  readonly redacted?: string;
}

export interface ToolCallBlock {
  readonly type: 'tool_call';
  readonly call_id: string;
  /** The name that the model used: a wire name such as `rye_bash`. */
  readonly name: string;
  readonly input: JsonObject;
  /** The text of arguments that are not a JSON object. Such a call is never run. */
  readonly malformed?: string;
  /** For calls that a process makes for a list of items; absent: the settings of the thread count. */
  readonly batch?: CallBatch;
}

/** The rules by which the calls of one answer run together. */
export interface CallBatch {
  /** Maximum number of calls that run at once. */
  readonly parallel: number;
  /** `fail`: after a failed call no other begins. */
  readonly on_error: 'fail' | 'continue';
  /** The item of the list: calls of one item keep their order, other items do not wait for them. */
  readonly item?: string;
}

export type ContentBlock = TextBlock | ImageBlock;
export type AssistantBlock = TextBlock | ThinkingBlock | ToolCallBlock;

export interface UserMessage {
  readonly role: 'user';
  readonly content: readonly ContentBlock[];
}

/** Why a model stopped speaking. `aborted` is a partial answer that a rule, a person or a limit cut. */
export type StopReason = 'end' | 'tool_calls' | 'max_tokens' | 'content_filtered' | 'aborted';

export interface AssistantMessage {
  readonly role: 'assistant';
  readonly content: readonly AssistantBlock[];
  readonly provider: string;
  readonly model: string;
  readonly stop_reason: StopReason;
  readonly usage: Usage;
}

/** Outcome of a tool call. Every call gets exactly one. */
export type ToolOutcome =
  | 'ok'
  | 'error'
  | 'blocked'
  | 'substituted'
  | 'unknown'
  | 'invalid'
  | 'aborted'
  | 'skipped'
  | 'timeout';

export interface ToolResultMessage {
  readonly role: 'tool_result';
  readonly call_id: string;
  /** The wire name of the call that this answers. */
  readonly name: string;
  readonly content: readonly ContentBlock[];
  readonly outcome: ToolOutcome;
  /** The tool's structured result: for steps, hooks and programs. Models are sent the content only. */
  readonly data?: JsonObject;
}

export type Message = UserMessage | AssistantMessage | ToolResultMessage;

export function userText(text: string): UserMessage {
  return { role: 'user', content: [{ type: 'text', text }] };
}

/** Returns the message that the model gets for an injected text and its images. */
export function injectedMessage({
  content,
  images = [],
}: {
  readonly content: string;
  readonly images?: readonly ContentBlock[];
}): UserMessage {
  if (images.length === 0) return userText(content);
  const text: readonly ContentBlock[] = content === '' ? [] : [{ type: 'text', text: content }];
  return { role: 'user', content: [...text, ...images] };
}

/** Returns the text blocks of a message, joined, without thinking, calls and images. */
export function textOf(content: readonly (ContentBlock | AssistantBlock)[]): string {
  return content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('');
}

/**
 * Returns the size of content on the wire: UTF-8 bytes of text plus base64 characters of images. Measures budgets of
 * bytes; it is not a count of tokens.
 */
export function contentBytes(content: readonly ContentBlock[]): number {
  let bytes = 0;
  for (const block of content) {
    bytes += block.type === 'text' ? Buffer.byteLength(block.text) : block.data.length;
  }
  return bytes;
}

export function toolCallsOf(message: AssistantMessage): readonly ToolCallBlock[] {
  return message.content.filter((block) => block.type === 'tool_call');
}

/** Only a plain success or a substitute is a success to the model; everything else is flagged as an error. */
export function isErrorOutcome(outcome: ToolOutcome): boolean {
  return outcome !== 'ok' && outcome !== 'substituted';
}
