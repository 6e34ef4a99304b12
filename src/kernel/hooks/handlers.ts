import { RyeError } from '../core/errors.ts';
import {
  ENTRY_TYPES,
  type EventType,
  LOG_ONLY_TYPES,
  type LogEvent,
  type UnknownEvent,
} from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import type { ContentBlock, Message, ToolOutcome } from '../core/message.ts';
import type { ThreadPlan } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import type { Cost } from '../core/usage.ts';
import type { HookContexts } from './contexts.ts';

/** A value that a handler may return in place of a tool's result. */
export type ResultValue = string | readonly ContentBlock[];

/** Context of a call, as the hook event `tool_gate` has it. */
export type CallContext = HookContexts['tool_gate'];

/** A call of a tool that the thread does not have. */
export type UnknownCallContext = Pick<
  CallContext,
  'thread_id' | 'turn' | 'cost' | 'call_id' | 'name' | 'input'
>;

/** A call that failed, or whose tool is unknown. */
export interface FailedCallContext extends UnknownCallContext {
  readonly tool: string;
  readonly error: { readonly code: string; readonly message: string };
}

/** A call of a tool that has had all calls of its budget in this run. */
export interface BudgetContext extends UnknownCallContext {
  readonly tool: string;
  /** Calls that the run has let through. */
  readonly count: number;
  readonly max: number;
}

/** `block` refuses the call; `steer` lets it run, and tells the model the message once in a run. */
export interface BudgetDecision {
  readonly mode: 'block' | 'steer';
  readonly message?: string;
}

/** A result before it is recorded. */
export interface ResultContext extends UnknownCallContext {
  readonly tool: string;
  readonly outcome: ToolOutcome;
  readonly content: readonly ContentBlock[];
  readonly is_error: boolean;
  /** UTF-8 bytes of text plus base64 characters of images, before any change. */
  readonly output_bytes: number;
  /** The first 256 KiB of the content that a written file had before; null for a new file. Absent for other calls. */
  readonly prior_content?: string | null;
  /** Bytes of the whole content before. */
  readonly prior_bytes?: number;
}

/** The messages that will be sent next. */
export interface RequestContext {
  readonly thread_id: string;
  readonly turn: number;
  readonly messages: readonly Message[];
}

/** The system text of the next request. */
export interface SystemContext {
  readonly thread_id: string;
  readonly turn: number;
  readonly system: string;
}

/** The skills that a thread may fetch and that are trusted. */
export interface SkillsContext {
  readonly thread_id: string;
  readonly skills: readonly { readonly id: string; readonly description: string }[];
}

/** The list of skills that the system text will have. */
export interface CatalogContext {
  readonly thread_id: string;
  readonly catalog: string;
}

type ThinkingLevel = ThreadPlan['thinking'];

/** The state of a run before a request. */
export interface ThinkingContext {
  readonly thread_id: string;
  readonly turn: number;
  /** The turn counted from the start of the run: 1 is its first. */
  readonly run_turn: number;
  readonly cost: Cost;
  /** The level that the request would have, and may not exceed. */
  readonly level: ThinkingLevel;
}

/** A call that the provider refused because of its key (HTTP 401). */
export interface CredentialsContext {
  readonly thread_id: string;
  readonly turn: number;
  readonly provider: string;
  readonly model: string;
}

type Decides<C, D> = (
  context: C,
  signal: AbortSignal,
) => D | undefined | void | Promise<D | undefined | void>;

/**
 * Handlers that decide, each by the value it returns; nothing returned decides nothing, and changing the context has no
 * effect. One that fails or takes longer than 30 s refuses in `tool_gate` and `tool_budget`, and changes nothing elsewhere.
 */
export interface DecidingHandlers {
  /** Refuses a call, for good, gives its result, or lets a person decide with `ask`, which is the reason. */
  readonly tool_gate: Decides<
    CallContext,
    { readonly block?: string; readonly result?: ResultValue; readonly ask?: string }
  >;
  /** Answers for an unknown tool; `suppress_error` keeps `tool_error` from being asked as well. */
  readonly tool_unknown: Decides<
    UnknownCallContext,
    { readonly result?: ResultValue; readonly suppress_error?: boolean }
  >;
  /** Answers for a call that failed. */
  readonly tool_error: Decides<FailedCallContext, { readonly result?: ResultValue }>;
  /** Changes the result of a tool, or its substitute. */
  readonly tool_transform: Decides<
    ResultContext,
    { readonly result?: ResultValue; readonly is_error?: boolean }
  >;
  /** Changes the messages of one request; the conversation stays as it is. */
  readonly context_transform: Decides<RequestContext, { readonly messages: readonly Message[] }>;
  /** Changes the system text of one request; the record and later requests keep the thread's own. */
  readonly system_transform: Decides<SystemContext, { readonly system: string }>;
  /** Decides about a call beyond the budget of its tool, in place of the budget's `on_exceed`. */
  readonly tool_budget: Decides<BudgetContext, BudgetDecision>;
  /** Narrows the skills of a run: those that are returned, by ID. One that fails leaves none; none can add a skill. */
  readonly skills_resolve: Decides<SkillsContext, { readonly skills: readonly string[] }>;
  /** Changes the list of skills in the system text. */
  readonly skills_catalog: Decides<CatalogContext, { readonly catalog: string }>;
  /** Gives another key or token for a provider that refused the one it got. Asked once for each answer. */
  readonly credentials_refresh: Decides<CredentialsContext, { readonly key: string }>;
  /** Lowers the thinking level of one request. */
  readonly thinking_level: Decides<ThinkingContext, { readonly level: ThinkingLevel }>;
}

type Observes<E> = (event: E) => void | Promise<void>;

/** Handlers that only see: one to an event type of the log, `event` for all. What they throw changes nothing. */
export type ObservingHandlers = {
  readonly [T in EventType]: Observes<Extract<LogEvent, { event_type: T }>>;
} & { readonly event: Observes<LogEvent | UnknownEvent> };

/** An event of a thread below, in the stream of the thread that started it. The envelope is the child's own. */
export type ChildEvent<T extends EventType = EventType> = {
  [N in T]: Omit<Extract<LogEvent, { event_type: N }>, 'event_type'> & {
    readonly event_type: `child.${N}`;
    /** 1 for a child, 2 for a child of a child. */
    readonly depth: number;
  };
}[T];

/** An event of a run in this process: of its thread, or of a thread below it. */
export type RunEvent = LogEvent | ChildEvent;

/** Handlers that see the events of children that run in this process, by `child.` and the type. */
export type ChildHandlers = {
  readonly [T in EventType as `child.${T}`]: Observes<ChildEvent<T>>;
};

/** The names of deciding handlers that have a form for the tools of MCP servers alone. */
const OF_CALLS = ['tool_gate', 'tool_error', 'tool_transform'] as const;

/** Handlers of calls of MCP servers: the handler without `mcp_`, asked about tools such as `mcp/SERVER/NAME` only. */
export type McpHandlers = {
  readonly [N in (typeof OF_CALLS)[number] as `mcp_${N}`]: DecidingHandlers[N];
};

type AllHandlers = DecidingHandlers & ObservingHandlers & ChildHandlers;

/** One handler or several to a name. */
export type HandlerMap = {
  readonly [N in keyof (AllHandlers & McpHandlers)]?:
    | (AllHandlers & McpHandlers)[N]
    | readonly (AllHandlers & McpHandlers)[N][];
};

/** The same with a list to each name, as {@link composeHandlers} makes it. */
export type HandlerLists = {
  readonly [N in keyof AllHandlers]?: readonly AllHandlers[N][];
};

const DECIDING = {
  tool_gate: ['block', 'result', 'ask'],
  tool_unknown: ['result', 'suppress_error'],
  tool_error: ['result'],
  tool_transform: ['result', 'is_error'],
  context_transform: ['messages'],
  system_transform: ['system'],
  tool_budget: ['mode', 'message'],
  skills_resolve: ['skills'],
  skills_catalog: ['catalog'],
  credentials_refresh: ['key'],
  thinking_level: ['level'],
} as const satisfies Record<keyof DecidingHandlers, readonly string[]>;

const OBSERVED: readonly string[] = [...ENTRY_TYPES, ...LOG_ONLY_TYPES];
const NAMES: readonly string[] = [
  ...Object.keys(DECIDING),
  ...OF_CALLS.map((name) => `mcp_${name}`),
  ...OBSERVED,
  ...OBSERVED.map((name) => `child.${name}`),
  'event',
];

/**
 * The handlers of several maps as lists, earlier maps first. Throws `hook_invalid` for a name that does not exist and for
 * what is no function: a guard that was misspelt must not be skipped.
 */
export function composeHandlers(...maps: readonly HandlerMap[]): HandlerLists {
  const lists = new Map<string, unknown[]>();
  for (const map of maps) {
    for (const [name, given] of Object.entries(map) as [string, unknown][]) {
      if (given === undefined) continue;
      if (!NAMES.includes(name)) throw unknownName(name);
      const handlers: readonly unknown[] = Array.isArray(given) ? given : [given];
      if (!handlers.every((handler) => typeof handler === 'function')) {
        throw new RyeError('hook_invalid', `the handler of ${name} is not a function`);
      }
      const { asked, all } = plain(name, handlers as readonly AnyHandler[]);
      lists.set(asked, [...(lists.get(asked) ?? []), ...all]);
    }
  }
  return Object.fromEntries(lists) as HandlerLists;
}

type AnyHandler = (context: { readonly tool: string }, signal: AbortSignal) => unknown;

/** Returns the name under which handlers are asked; a handler of MCP servers skips other calls. */
function plain(name: string, handlers: readonly AnyHandler[]) {
  const ofCalls = OF_CALLS.find((one) => name === `mcp_${one}`);
  if (ofCalls === undefined) return { asked: name, all: handlers };
  const all = handlers.map(
    (handler): AnyHandler =>
      (context, signal) =>
        context.tool.startsWith('mcp/') ? handler(context, signal) : undefined,
  );
  return { asked: ofCalls, all };
}

/** Handlers that come and go while threads run: each event and each question goes to those that are there when it begins. */
export class AddedHandlers {
  #maps: readonly HandlerLists[] = [];

  /** The maps in the order of their addition; another list after each change. */
  get maps(): readonly HandlerLists[] {
    return this.#maps;
  }

  /** Adds a map, and returns the function that removes it. Throws `hook_invalid` as {@link composeHandlers} does. */
  add(map: HandlerMap): () => void {
    const lists = composeHandlers(map);
    this.#maps = [...this.#maps, lists];
    return () => {
      this.#maps = this.#maps.filter((one) => one !== lists);
    };
  }
}

/** Returns a function of the handlers that are there now: those that are fixed, then the added ones. */
export function currentHandlers(
  fixed: HandlerLists,
  added: readonly AddedHandlers[],
): () => HandlerLists {
  let known: readonly HandlerLists[] = [];
  let lists = fixed;
  return () => {
    const maps = added.flatMap((one) => one.maps);
    if (maps.length !== known.length || maps.some((map, at) => map !== known[at])) {
      known = maps;
      lists = composeHandlers(fixed, ...maps);
    }
    return lists;
  };
}

/** The names among them that can decide something. */
export function decidingNames(handlers: HandlerLists): readonly (keyof DecidingHandlers)[] {
  const names = Object.keys(DECIDING) as (keyof DecidingHandlers)[];
  return names.filter((name) => (handlers[name]?.length ?? 0) > 0);
}

function unknownName(name: string): RyeError {
  return new RyeError('hook_invalid', `unknown handler event "${name}"`, {
    hint:
      didYouMean(name, NAMES) ??
      `Handlers that decide are ${Object.keys(DECIDING).join(', ')}; the others are named after the events of the log.`,
  });
}

/** Checks a deciding handler's return value; `undefined` decides nothing. Throws `hook_failed` for anything else. */
export function readDecision(name: keyof DecidingHandlers, value: unknown): JsonObject | undefined {
  if (value === undefined || value === null) return undefined;
  const known: readonly string[] = DECIDING[name];
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw new RyeError('hook_failed', `the handler for ${name} must return an object`, {
      hint: `Return {${known.join(', ')}}, or nothing.`,
    });
  }
  const foreign = Object.keys(value).find((member) => !known.includes(member));
  if (foreign !== undefined) {
    throw new RyeError('hook_failed', `a handler of ${name} returned the member "${foreign}"`, {
      hint: didYouMean(foreign, known) ?? `Valid names: ${known.join(', ')}.`,
    });
  }
  return value as JsonObject;
}

/** Calls the observers of an event; `onFailure` hears of those that fail, and nothing else comes of it. */
export function observe(
  handlers: HandlerLists,
  event: LogEvent | UnknownEvent,
  onFailure: (name: string, error: unknown) => void,
): void {
  const { event_type: type } = event;
  const lists = handlers as Readonly<Record<string, readonly Observes<typeof event>[] | undefined>>;
  const own = type === 'event' ? undefined : lists[type];
  for (const handler of [...(own ?? []), ...(handlers.event ?? [])]) {
    try {
      Promise.resolve(handler(event)).catch((error: unknown) => onFailure(event.event_type, error));
    } catch (error) {
      onFailure(event.event_type, error);
    }
  }
}
