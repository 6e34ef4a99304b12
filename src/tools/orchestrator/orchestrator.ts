import { isJsonObject, type JsonObject } from '../../core/json.ts';
import {
  errorOutput,
  guarded,
  type Tool,
  type ToolContext,
  type ToolOutput,
  textArgument,
  textOutput,
} from '../tool.ts';

const ORCHESTRATOR_ID = 'rye/agent/threads/orchestrator';

export const OPERATIONS = [
  'wait_threads',
  'list_active',
  'list_children',
  'get_status',
  'aggregate_results',
  'cancel_thread',
  'kill_thread',
  'read_transcript',
  'get_chain',
  'chain_search',
  'resume_thread',
  'handoff_thread',
  'send_message',
] as const;
export type Operation = (typeof OPERATIONS)[number];

/** A call whose members have been checked against the schema. */
export interface OrchestratorCall {
  /** Empty: all children of the caller, where that makes sense. */
  readonly threadIds: readonly string[];
  readonly mode: 'all' | 'any';
  readonly timeoutSeconds: number | undefined;
  readonly message: string | undefined;
  readonly reason: string | undefined;
  readonly tree: boolean;
  readonly query: string | undefined;
  readonly searchType: 'text' | 'regex';
  readonly maxResults: number;
  readonly tailLines: number | undefined;
}

/**
Implements the operations, on top of the threads room. A RyeError becomes an error output. A thread's outcome is a
 * result like any other: the operation succeeds even if the thread failed.
 */
export type OrchestratorActions = Readonly<
  Record<Operation, (call: OrchestratorCall, context: ToolContext) => Promise<JsonObject>>
>;

const THREAD: JsonObject = { type: 'string', minLength: 1 };

const SCHEMA: JsonObject = {
  type: 'object',
  properties: {
    operation: { type: 'string', enum: OPERATIONS },
    thread_id: { ...THREAD, description: 'The thread to act on.' },
    thread_ids: {
      type: 'array',
      maxItems: 1000,
      description:
        'Threads to wait for or to collect from: ids, or results of starts. Default: all children of this thread.',
      items: {
        anyOf: [
          THREAD,
          { type: 'object', properties: { thread_id: THREAD }, required: ['thread_id'] },
        ],
      },
    },
    mode: {
      type: 'string',
      enum: ['all', 'any'],
      description: 'wait_threads: until all have ended (default), or any.',
    },
    timeout: {
      type: 'number',
      minimum: 0,
      description: 'wait_threads: seconds; then the status of each is returned.',
    },
    message: { type: 'string', description: 'send_message, resume_thread: what to say.' },
    reason: { type: 'string', description: 'cancel_thread, kill_thread: why.' },
    tree: { type: 'boolean', description: 'cancel_thread, kill_thread: all threads below it too.' },
    query: { type: 'string', minLength: 1, description: 'chain_search: what to look for.' },
    search_type: { type: 'string', enum: ['text', 'regex'], description: 'Default text.' },
    max_results: { type: 'integer', minimum: 1, maximum: 500, description: 'Default 50.' },
    tail_lines: {
      type: 'integer',
      minimum: 1,
      description: 'read_transcript: the last lines only.',
    },
  },
  required: ['operation'],
  additionalProperties: false,
};

/** `rye/agent/threads/orchestrator`: a thread coordinates the threads below it. `actions` may refuse where no thread runs. */
export function createOrchestratorTool(actions: () => OrchestratorActions): Tool {
  return {
    id: ORCHESTRATOR_ID,
    description:
      'Coordinates the threads that this thread started: waits for them, collects their results, reads, cancels or kills them.',
    inputSchema: SCHEMA,
    traits: {
      reads_only: false,
      idempotent: false,
      network: false,
      sequential: false,
      // waiting has its own timeout; this bound only keeps a lost wait from hanging forever
      timeout_seconds: 24 * 3600,
    },
    execute: (input, context) =>
      guarded(async () => {
        const operation = OPERATIONS.find((known) => known === input['operation']);
        if (operation === undefined)
          return errorOutput(`Unknown operation. Operations: ${OPERATIONS.join(', ')}.`, {
            code: 'invalid_input',
          });
        const result = await actions()[operation](callOf(input), context);
        return textOutput(JSON.stringify(result, null, 2), result);
      }),
  };
}

function callOf(input: JsonObject): OrchestratorCall {
  const text = (name: string): string | undefined => {
    const value = input[name];
    return typeof value === 'string' ? value : undefined;
  };
  const number = (name: string): number | undefined => {
    const value = input[name];
    return typeof value === 'number' ? value : undefined;
  };
  const many = Array.isArray(input['thread_ids']) ? input['thread_ids'].flatMap(idsIn) : [];
  const one = text('thread_id');
  return {
    threadIds: [...new Set(one === undefined ? many : [one, ...many])],
    mode: input['mode'] === 'any' ? 'any' : 'all',
    timeoutSeconds: number('timeout'),
    message: text('message'),
    reason: text('reason'),
    tree: input['tree'] === true,
    query: text('query'),
    searchType: input['search_type'] === 'regex' ? 'regex' : 'text',
    maxResults: number('max_results') ?? 50,
    tailLines: number('tail_lines'),
  };
}

function idsIn(value: unknown): readonly string[] {
  if (typeof value === 'string') return [value];
  const id = isJsonObject(value) ? value['thread_id'] : undefined;
  return typeof id === 'string' ? [id] : [];
}

const SEND_MESSAGE_ID = 'rye/agent/threads/send_message';

export interface MessageCall {
  /** A thread id, or `parent`. */
  readonly to: string;
  readonly message: string;
  readonly mode: 'auto' | 'idle';
}

/** Queues the message through the threads room. */
export type SendMessage = (call: MessageCall, context: ToolContext) => Promise<JsonObject>;

/** `rye/agent/threads/send_message`: a thread writes to the thread that started it, or to one below it. */
export function createSendMessageTool(send: SendMessage): Tool {
  return {
    id: SEND_MESSAGE_ID,
    description:
      'Leaves a message for the thread that started this one (to: "parent") or for a thread below it. It is read when that thread has finished what it does, or earlier where that is safe; nothing comes back here.',
    inputSchema: {
      type: 'object',
      properties: {
        to: { type: 'string', minLength: 1, description: 'A thread id, or "parent".' },
        message: { type: 'string', minLength: 1 },
        mode: {
          type: 'string',
          enum: ['auto', 'idle'],
          description: 'idle: only when the thread has finished what it does. Default auto.',
        },
      },
      required: ['to', 'message'],
      additionalProperties: false,
    },
    traits: {
      reads_only: false,
      idempotent: false,
      network: false,
      sequential: false,
      timeout_seconds: 60,
    },
    execute: (input, context): Promise<ToolOutput> =>
      guarded(async () => {
        const sent = await send(
          {
            to: textArgument(input, 'to'),
            message: textArgument(input, 'message'),
            mode: input['mode'] === 'idle' ? 'idle' : 'auto',
          },
          context,
        );
        return textOutput(JSON.stringify(sent, null, 2), sent);
      }),
  };
}
