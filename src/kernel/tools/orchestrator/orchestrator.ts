import { isJsonObject, type JsonObject, type JsonValue } from '../../core/json.ts';
import {
  type AwaitedThreads,
  builtinTool,
  type CallContext,
  CHANGING_TRAITS,
  type FromSchema,
  type Tool,
  textOutput,
  waitingOutput,
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

/** A validated call. */
export interface OrchestratorCall {
  /** Empty: all children of the caller, if the operation supports it. */
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

/** The outcome of an operation that ends once these threads have ended. */
export class ThreadsWait {
  readonly waiting: AwaitedThreads;

  constructor(waiting: AwaitedThreads) {
    this.waiting = waiting;
  }
}

/**
 * Implements the operations on top of the threads room. A RyeError becomes an error output. An operation on a failed
 * thread succeeds: the thread's outcome is its result.
 */
export type OrchestratorActions = Readonly<
  Record<
    Operation,
    (call: OrchestratorCall, context: CallContext) => Promise<JsonObject | ThreadsWait>
  >
>;

const THREAD = { type: 'string', minLength: 1 } as const;

const PROPERTIES = {
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
} as const;

/** `rye/agent/threads/orchestrator` coordinates the threads below a thread. `actions` may refuse if no thread runs. */
export function createOrchestratorTool(actions: () => OrchestratorActions): Tool {
  return builtinTool({
    id: ORCHESTRATOR_ID,
    description:
      'Coordinates the threads that this thread started: waits for them, collects their results, reads, cancels or kills them.',
    properties: PROPERTIES,
    required: ['operation'],
    // waiting has its own timeout; this bound only keeps a lost wait from hanging forever
    traits: { ...CHANGING_TRAITS, timeout_seconds: 24 * 3600 },
    async run({ operation, ...input }, context) {
      const result = await actions()[operation](callOf(input), context);
      if (result instanceof ThreadsWait) return waitingOutput(result.waiting);
      return textOutput(JSON.stringify(result, null, 2), result);
    },
  });
}

function callOf(
  input: FromSchema<{ type: 'object'; properties: Omit<typeof PROPERTIES, 'operation'> }>,
): OrchestratorCall {
  const { thread_id: one, thread_ids = [] } = input;
  const many = thread_ids.flatMap(idsIn);
  return {
    threadIds: [...new Set(one === undefined ? many : [one, ...many])],
    mode: input.mode ?? 'all',
    timeoutSeconds: input.timeout,
    message: input.message,
    reason: input.reason,
    tree: input.tree ?? false,
    query: input.query,
    searchType: input.search_type ?? 'text',
    maxResults: input.max_results ?? 50,
    tailLines: input.tail_lines,
  };
}

function idsIn(value: JsonValue): readonly string[] {
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
export type SendMessage = (call: MessageCall, context: CallContext) => Promise<JsonObject>;

/** `rye/agent/threads/send_message` sends a message to the thread that started this one, or to one below it. */
export function createSendMessageTool(send: SendMessage): Tool {
  return builtinTool({
    id: SEND_MESSAGE_ID,
    description:
      'Leaves a message for the thread that started this one (to: "parent") or for a thread below it. It is read when that thread has finished what it does, or earlier where that is safe; nothing comes back here.',
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
    traits: CHANGING_TRAITS,
    async run({ to, message, mode = 'auto' }, context) {
      const sent = await send({ to, message, mode }, context);
      return textOutput(JSON.stringify(sent, null, 2), sent);
    },
  });
}
