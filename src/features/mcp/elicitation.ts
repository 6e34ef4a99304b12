import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import {
  ElicitRequestSchema,
  type ElicitResult,
  ErrorCode,
  McpError,
} from '@modelcontextprotocol/sdk/types.js';
import { messageOf } from '../../kernel/core/errors.ts';
import { isJsonObject, type JsonObject } from '../../kernel/core/json.ts';
import { withoutControls } from '../../kernel/core/text.ts';
import { compileSchema } from '../../kernel/tools/schema.ts';
import type { CallContext, Question } from '../../kernel/tools/tool.ts';

/** Characters of a message, and of a schema as JSON. */
const MAX_MESSAGE = 4096;
const MAX_SCHEMA = 16_384;
/** Questions of one server that may be open at once. */
const MAX_OPEN = 4;

/** A call of a tool that runs now. */
interface RunningCall {
  readonly context: CallContext;
  readonly ended: AbortController;
  readonly questions: Set<Promise<unknown>>;
}

/**
 * Takes the questions that a server asks the person during a call to the thread of the call. The protocol does not name the
 * call of a question, so that one which comes while none or several run is cancelled.
 */
export class Elicitations {
  readonly #server: string;
  readonly #calls = new Set<RunningCall>();
  #open = 0;

  constructor(client: Client, server: string) {
    this.#server = server;
    client.setRequestHandler(ElicitRequestSchema, async ({ params }, { signal }) => {
      if (params.mode === 'url') throw invalid('only the mode form is supported');
      const { message, requestedSchema } = params;
      return await this.#answer({ message, schema: { ...requestedSchema } }, signal);
    });
  }

  /** Runs a call; its open questions are withdrawn when it ends. */
  async during<T>(context: CallContext, work: () => Promise<T>): Promise<T> {
    const call: RunningCall = { context, ended: new AbortController(), questions: new Set() };
    this.#calls.add(call);
    try {
      return await work();
    } finally {
      this.#calls.delete(call);
      call.ended.abort();
      await Promise.allSettled(call.questions);
    }
  }

  async #answer(given: Given, signal: AbortSignal): Promise<ElicitResult> {
    // as they are when the question comes: a call may end meanwhile
    const [call, other] = this.#calls;
    const question = await questionOf(this.#server, given);
    if (this.#open >= MAX_OPEN) throw invalid(`more than ${MAX_OPEN} questions are open`);
    if (!call?.context.ask) return { action: 'cancel' };
    if (other) {
      call.context.progress(AMBIGUOUS);
      return { action: 'cancel' };
    }
    this.#open += 1;
    const both = AbortSignal.any([signal, call.ended.signal, call.context.signal]);
    const asking = call.context.ask(question, both);
    call.questions.add(asking);
    try {
      const end = await asking;
      if (end.kind === 'declined') return { action: 'decline' };
      if (end.kind !== 'answered' || !isJsonObject(end.answer)) return { action: 'cancel' };
      return { action: 'accept', content: end.answer as ElicitResult['content'] };
    } finally {
      call.questions.delete(asking);
      this.#open -= 1;
    }
  }
}

const AMBIGUOUS =
  'A question of the server was cancelled: several calls of it run, and it is not known which one asks.\n';

interface Given {
  readonly message: string;
  readonly schema: Readonly<Record<string, unknown>>;
}

/** Returns a question whose texts cannot disguise themselves and whose schema can be checked. */
async function questionOf(server: string, { message, schema }: Given): Promise<Question> {
  const json = JSON.stringify(schema);
  if (message.length > MAX_MESSAGE) {
    throw invalid(`the message has more than ${MAX_MESSAGE} characters`);
  }
  if (json.length > MAX_SCHEMA) throw invalid(`the schema has more than ${MAX_SCHEMA} characters`);
  const clean = JSON.parse(json, (_, value: unknown) =>
    typeof value === 'string' ? withoutControls(value) : value,
  ) as JsonObject;
  try {
    await compileSchema(clean);
  } catch (error) {
    throw invalid(messageOf(error));
  }
  const source = `MCP server ${server}`;
  return { text: `${source} asks: ${withoutControls(message)}`, schema: clean, source };
}

function invalid(why: string): McpError {
  return new McpError(ErrorCode.InvalidParams, `rye cannot ask this: ${why}`);
}
