import type { CapabilityNeed, Risk } from '../core/capability.ts';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import type { ContentBlock } from '../core/message.ts';

/** The effects that a tool declares. The cautious value applies to undeclared ones. */
export interface ToolTraits {
  readonly reads_only: boolean;
  /** Running it twice has the effect of running it once, so recovery may re-run it. */
  readonly idempotent: boolean;
  readonly network: boolean;
  /** Never run beside another call of the same batch, although it only reads. */
  readonly sequential: boolean;
  /** Run beside other calls of the same batch, although it changes something: no call depends on its place. */
  readonly parallel?: boolean;
  readonly timeout_seconds: number;
  /** Declared risk; undefined means that the risk table decides and undeclared tools are elevated. */
  readonly risk?: Risk;
}

/** The cautious traits of a tool that declares nothing. */
export const CAUTIOUS_TRAITS: ToolTraits = {
  reads_only: false,
  idempotent: false,
  network: true,
  sequential: false,
  timeout_seconds: 300,
};

/** Traits of a tool that only reads what is on this machine. */
export const READING_TRAITS: ToolTraits = {
  reads_only: true,
  idempotent: true,
  network: false,
  sequential: false,
  timeout_seconds: 60,
};

/** Traits of a tool that changes something on this machine. */
export const CHANGING_TRAITS: ToolTraits = {
  ...READING_TRAITS,
  reads_only: false,
  idempotent: false,
};

export interface ToolContext {
  readonly callId: string;
  readonly threadId: string;
  /** Folder that contains `.ai`. */
  readonly projectPath: string;
  /** Aborts when the call times out, the thread is cancelled or its duration is used up. */
  readonly signal: AbortSignal;
  /** Threads that this call already waited for when its run was suspended; absent: the call has just started. */
  readonly awaited?: readonly string[];
  /** For a program's `tool_search`: the tools of the thread that are listed by name only. Absent for other tools. */
  readonly deferred?: readonly DeferredTool[];
  /** Live output for people; bounded and best effort. */
  progress(text: string): void;
}

/** A tool that a thread may call once its schema has been loaded. */
export interface DeferredTool {
  readonly id: string;
  /** The name by which the model calls it. */
  readonly name: string;
  readonly description: string;
}

/** Context of the tools of rye itself, which can ask people. */
export interface CallContext extends ToolContext {
  /**
   * Puts a question to a person while the call runs, and waits as long as a person may be there to answer. Aborting the
   * signal withdraws it. Absent: no person can be asked.
   */
  ask?(question: Question, signal: AbortSignal): Promise<QuestionEnd>;
  /** Called when the call starts and stops waiting only for people. That time counts toward no limit. */
  readonly onIdle?: (isIdle: boolean) => void;
}

/** The end of a question that a running call asked. */
export type QuestionEnd =
  | { readonly kind: 'answered'; readonly answer: JsonValue }
  | { readonly kind: 'declined' | 'cancelled' };

export interface ToolOutput {
  readonly content: readonly ContentBlock[];
  readonly is_error: boolean;
  /** Structured facts for programs: literal steps, hooks and parents read them. */
  readonly data?: JsonObject;
  /** The content that a written file had before, null for a new one: for handlers and hooks, never for the model or the log. */
  readonly prior?: Uint8Array | null;
  /** Set if the call has not ended: the threads that it waits for wait for people. The other members do not count. */
  readonly waiting?: AwaitedThreads;
}

/** Threads waiting for a person's decision. */
export interface AwaitedThreads {
  readonly threads: readonly string[];
  /** Ids of the requests. */
  readonly approvals: readonly string[];
  /** The call runs the threads itself, so that nothing needs them if it ends. */
  readonly owned?: true;
}

/**
 * The port to something a model can do. Contract: expected failures are `is_error` outputs with the next step to take;
 * a throw is a bug, which the pipeline turns into an error result. `execute` must stop soon after `signal` aborts and
 * must not leave processes running.
 */
export interface Tool {
  /** Canonical id, such as `rye/file-system/read`. */
  readonly id: string;
  readonly description: string;
  /** JSON Schema (draft 2020-12 subset) of the input, always of type object. */
  readonly inputSchema: JsonObject;
  readonly traits: ToolTraits;
  /** Milliseconds that a call which was stopped may take to end; by default 5000. */
  readonly graceMs?: number;
  /** Returns the need of this call. Default: execute on this tool. */
  need?(input: JsonObject): CapabilityNeed;
  /** SHA-256 hex of the bytes that run; absent for what is a part of a program. */
  readonly sha256?: string;
  /** Returns the SHA-256 hex of the files that a call runs, if its input names them; undefined if they can't be run. */
  ranSha256?(input: JsonObject): string | undefined;
  /** The question that a call puts to a person, whose answer is its result; absent for tools that run themselves. */
  question?(input: JsonObject): Question;
  /** True if the input is a plan, which a person always decides about. */
  readonly presentsPlan?: true;
  /** Paths that the call writes, relative to the project; parallel calls that share one run one by one. */
  writes?(input: JsonObject): readonly string[];
  execute(input: JsonObject, context: CallContext): Promise<ToolOutput>;
}

/** A question to a person, with the JSON Schema of its answer. */
export interface Question {
  readonly text: string;
  readonly schema: JsonObject;
  /** The asker, such as `MCP server deploy`. Default: the model. */
  readonly source?: string;
}

/** A call resolved to what will really run. The gates judge this, never what the model wrote. */
export interface ResolvedCall {
  readonly tool: Tool;
  readonly input: JsonObject;
  readonly need: CapabilityNeed;
  /** The call of a tool that this call starts in the background: gates judge it too. */
  readonly starts?: ResolvedCall;
}

export type Resolution =
  | { readonly kind: 'resolved'; readonly call: ResolvedCall }
  /** `near` are names that the model may have meant; `id` is the item that a primary action asked for. */
  | { readonly kind: 'unknown'; readonly near: readonly string[]; readonly id?: string };

/** The tools of one thread, keyed by wire name. */
export interface ToolSet {
  /**
   * Finds what a call would run: `rye_execute {item_type: tool, item_id}` resolves to that tool with its parameters.
   * Resolving has no effect and grants nothing.
   */
  resolve(name: string, input: JsonObject): Promise<Resolution>;
}

export function textOutput(text: string, data?: JsonObject): ToolOutput {
  return { content: [{ type: 'text', text }], is_error: false, ...(data ? { data } : {}) };
}

/** The output of a call that ends once these threads have ended. */
export function waitingOutput(waiting: AwaitedThreads): ToolOutput {
  return { ...textOutput('The threads that this call waits for wait for people.'), waiting };
}

export function errorOutput(text: string, data?: JsonObject): ToolOutput {
  return { content: [{ type: 'text', text }], is_error: true, ...(data ? { data } : {}) };
}

/** The type of the values that a JSON Schema allows, for `type`, `enum`, `properties`, `required` and `items`. */
export type FromSchema<S> = S extends { readonly enum: readonly (infer E)[] }
  ? E
  : S extends { readonly type: 'string' }
    ? string
    : S extends { readonly type: 'number' | 'integer' }
      ? number
      : S extends { readonly type: 'boolean' }
        ? boolean
        : S extends { readonly type: 'null' }
          ? null
          : S extends { readonly type: 'array' }
            ? readonly (S extends { readonly items: infer I } ? FromSchema<I> : JsonValue)[]
            : S extends { readonly type: 'object'; readonly properties: infer P }
              ? ObjectOf<P, RequiredOf<S>>
              : S extends { readonly type: 'object' }
                ? JsonObject
                : JsonValue;

type RequiredOf<S> = S extends { readonly required: readonly (infer R)[] } ? R : never;

type ObjectOf<P, R> = {
  readonly [N in keyof P as N extends R ? N : never]: FromSchema<P[N]>;
} & { readonly [N in keyof P as N extends R ? never : N]?: FromSchema<P[N]> };

interface ToolDefinition<P, R> extends Omit<Tool, 'inputSchema' | 'execute'> {
  /** JSON Schemas of the parameters; there are no others. */
  readonly properties: P;
  readonly required?: readonly R[];
  /** Gets a validated input. Expected failures may be thrown as a RyeError. */
  readonly run: (input: ObjectOf<P, R>, context: CallContext) => ToolOutput | Promise<ToolOutput>;
}

/** Returns a tool of rye itself; `run` gets an input of the type that the properties declare. */
export function builtinTool<const P extends JsonObject, const R extends keyof P & string = never>(
  definition: ToolDefinition<P, R>,
): Tool {
  const { properties, required, run, ...tool } = definition;
  return {
    ...tool,
    inputSchema: {
      type: 'object',
      properties,
      ...(required ? { required } : {}),
      additionalProperties: false,
    },
    // the pipeline validates the input against the schema; `ObjectOf` is its type
    execute: (input, context) =>
      guarded(async () => await run(input as unknown as ObjectOf<P, R>, context)),
  };
}

/**
 * Runs a tool's work. Turns expected failures into error outputs with the code, the message and the next step;
 * `data.code` is the error code. Anything else is a bug, which the pipeline reports.
 */
export async function guarded(work: () => Promise<ToolOutput>): Promise<ToolOutput> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof RyeError) return problemOutput(error);
    const code = systemCodeOf(error);
    if (code === undefined || !(error instanceof Error) || !('syscall' in error)) throw error;
    return errorOutput(`The operating system refused: ${error.message}`, { code: 'tool_failed' });
  }
}

/** An error as a model reads it: code, message, hint. */
function problemOutput(error: RyeError): ToolOutput {
  const hint = error.hint === undefined ? '' : `\n${error.hint}`;
  return errorOutput(`${error.code}: ${error.message}${hint}`, { code: error.code });
}
