import { shippedKinds } from '../../src/kernel/app/models.ts';
import type { Clock } from '../../src/kernel/core/clock.ts';
import {
  type EventDraft,
  type EventPayloads,
  isEntryType,
  type LogEvent,
} from '../../src/kernel/core/events.ts';
import type { ControlAction } from '../../src/kernel/core/hook.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import type { AssistantBlock, Message, StopReason } from '../../src/kernel/core/message.ts';
import { userText } from '../../src/kernel/core/message.ts';
import type { PlannedModel, ThreadPlan } from '../../src/kernel/core/plan.ts';
import type { Usage } from '../../src/kernel/core/usage.ts';
import { runLoop } from '../../src/kernel/loop/loop.ts';
import type {
  GateDecision,
  HookPort,
  LoopOutcome,
  LoopPorts,
} from '../../src/kernel/loop/ports.ts';
import type { ErrorRule } from '../../src/kernel/policy/error-class.ts';
import type {
  ModelEvent,
  ModelRequest,
  ProviderFailure,
} from '../../src/kernel/providers/provider.ts';
import { traitsOf } from '../../src/kernel/providers/provider.ts';
import {
  CAUTIOUS_TRAITS,
  type Tool,
  type ToolTraits,
  textOutput,
} from '../../src/kernel/tools/tool.ts';

/** A clock that jumps to the next sleeper whenever nothing else can happen; with `auto: false` only by `advance`. */
export class VirtualClock implements Clock {
  time = 0;
  readonly slept: number[] = [];
  readonly #sleepers = new Set<{ readonly at: number; readonly wake: () => void }>();
  readonly #auto: boolean;
  #isTicking = false;

  constructor({ auto = true } = {}) {
    this.#auto = auto;
  }

  now(): number {
    return 1_700_000_000_000 + this.time;
  }

  monotonic(): number {
    return this.time;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted === true) return Promise.resolve();
    this.slept.push(ms);
    return new Promise((resolve) => {
      const sleeper = {
        at: this.time + ms,
        wake: () => {
          this.#sleepers.delete(sleeper);
          signal?.removeEventListener('abort', sleeper.wake);
          resolve();
        },
      };
      this.#sleepers.add(sleeper);
      signal?.addEventListener('abort', sleeper.wake, { once: true });
      if (this.#auto) this.#tick();
    });
  }

  advance(ms: number): void {
    this.time += ms;
    const due = [...this.#sleepers].filter(({ at }) => at <= this.time);
    for (const sleeper of due) sleeper.wake();
  }

  #tick(): void {
    if (this.#isTicking) return;
    this.#isTicking = true;
    setImmediate(() => {
      this.#isTicking = false;
      const next = Math.min(...[...this.#sleepers].map(({ at }) => at));
      if (!Number.isFinite(next)) return;
      this.advance(Math.max(0, next - this.time));
      if (this.#sleepers.size > 0) this.#tick();
    });
  }
}

const USAGE: Usage = {
  input_tokens: 100,
  output_tokens: 10,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
};

export const MODEL: PlannedModel = {
  provider: 'scripted',
  kind: 'replay',
  id: 'model-1',
  tier: null,
  context_window: 200_000,
  max_output_tokens: 8192,
  pricing: { input: 1, output: 10 },
};

const ERROR_RULES: readonly ErrorRule[] = [
  rule('context', { type: ['context_exceeded'] }, 'context_exceeded', false),
  rule('filtered', { type: ['content_filtered'] }, 'content_filtered', false),
  rule('auth', { type: ['provider_key_missing'] }, 'auth', false),
  rule('overloaded', { status: [{ first: 500, last: 599 }] }, 'transient', true),
  rule('stream', { phase: ['stream', 'stalled'] }, 'transient', true),
];

function rule(
  id: string,
  match: Partial<ErrorRule>,
  category: ErrorRule['category'],
  retryable: boolean,
): ErrorRule {
  return {
    id,
    status: [],
    type: [],
    phase: [],
    message: [],
    ...match,
    category,
    retryable,
    policy: retryable ? { kind: 'fixed', delayMs: 1000 } : { kind: 'none' },
  };
}

const SOURCE = {
  type: 'directive',
  id: 'demo',
  space: 'project',
  path: 'demo.md',
  sha256: '',
  integrity: 'verified',
} as const;

export function planOf(changes: Partial<ThreadPlan> = {}): ThreadPlan {
  return {
    format: 1,
    directive: { ...SOURCE, name: 'demo', version: '1.0.0', description: '', category: '' },
    chain: [],
    context_sources: [],
    parent_thread_id: null,
    inputs: {},
    secret_inputs: [],
    outputs: [],
    prompt: '',
    body: '',
    context: [],
    suppress: [],
    process: [],
    limits: { turns: 25, tokens: 1e6, spend: 5, duration_seconds: 1800, spawns: 50, depth: 10 },
    capabilities: ['rye.execute.tool.*'],
    acknowledged: [],
    risks: [],
    hooks: [],
    tools: [],
    model: MODEL,
    fallbacks: [],
    thinking: 'off',
    integrity: 'verified',
    allow_unpriced: false,
    continuation_directive: null,
    behavior: {},
    origins: {},
    warnings: [],
    settings: {
      tools_parallel: 4,
      durability: 'turn',
      token_deltas: 'every',
      retry_seconds: 300,
      stall_seconds: 60,
      result_max_bytes: 32_768,
      error_classification: [],
      cache: true,
      context_limit: { threshold: 0.9, mode: 'compact' },
      allow_paths: [],
    },
    ...changes,
  };
}

/** One model call: its events, or a function of the request and the signal. */
export type Turn =
  | readonly ModelEvent[]
  | ((request: ModelRequest, signal: AbortSignal) => AsyncIterable<ModelEvent>);

export interface Call {
  readonly id: string;
  readonly name: string;
  readonly input?: JsonObject;
  readonly malformed?: string;
}

/** An answer with the text `text` and the calls `calls`. */
export function answers(
  text: string,
  calls: readonly Call[] = [],
  options: { reason?: Exclude<StopReason, 'aborted'>; usage?: Usage | null } = {},
): ModelEvent[] {
  const content: AssistantBlock[] = text === '' ? [] : [{ type: 'text', text }];
  for (const { id, name, input = {}, malformed } of calls) {
    const broken = malformed === undefined ? {} : { malformed };
    content.push({ type: 'tool_call', call_id: id, name, input, ...broken });
  }
  const { reason = calls.length > 0 ? 'tool_calls' : 'end', usage = USAGE } = options;
  return [
    { type: 'start', model: 'model-1' },
    ...(text === '' ? [] : [{ type: 'text_delta' as const, text }]),
    ...(usage ? [{ type: 'usage' as const, usage }] : []),
    { type: 'finish', reason, content },
  ];
}

export function fails(failure: Partial<ProviderFailure> = {}, before: readonly ModelEvent[] = []) {
  const error: ProviderFailure = {
    message: 'overloaded',
    phase: 'response',
    status: 529,
    ...failure,
  };
  return [...before, { type: 'error', failure: error }] as const satisfies readonly ModelEvent[];
}

/** Sends a text and then nothing more, until aborted; an obedient adapter or a deaf one. */
export function hangs(text: string, { obedient = true } = {}): Turn {
  return async function* (_request, signal) {
    yield { type: 'start', model: 'model-1' };
    if (text !== '') yield { type: 'text_delta', text };
    await new Promise<void>((resolve) => {
      if (obedient) signal.addEventListener('abort', () => resolve(), { once: true });
    });
    yield { type: 'error', failure: { message: 'aborted', phase: 'aborted' } };
  };
}

export interface ScriptedTool {
  readonly traits?: Partial<ToolTraits>;
  readonly schema?: JsonObject;
  readonly run?: Tool['execute'];
  readonly need?: NonNullable<Tool['need']>;
  readonly writes?: NonNullable<Tool['writes']>;
}

export function toolOf(id: string, scripted: ScriptedTool = {}): Tool {
  const { traits, schema, run, need, writes } = scripted;
  return {
    id,
    description: id,
    inputSchema: schema ?? { type: 'object' },
    traits: { ...CAUTIOUS_TRAITS, reads_only: true, ...traits },
    execute: run ?? (() => Promise.resolve(textOutput(`${id} done`))),
    ...(need ? { need } : {}),
    ...(writes ? { writes } : {}),
  };
}

export interface Script {
  readonly plan?: Partial<ThreadPlan>;
  readonly turns: readonly Turn[];
  /** Wire name → tool. */
  readonly tools?: Readonly<Record<string, Tool>>;
  readonly control?: (event: string, context: JsonObject) => ControlAction | undefined;
  readonly gate?: (context: JsonObject) => Omit<GateDecision, 'fired'>;
  readonly ports?: Partial<LoopPorts>;
  readonly signal?: AbortSignal;
  /** Called with each hook event that is dispatched, except gates. */
  readonly onHook?: (event: string, context: JsonObject) => void;
  /** Called with what the loop wants to be written. */
  readonly onDrafts?: (drafts: readonly EventDraft[]) => void;
  /** Called with each event once it is in the log. */
  readonly onEvent?: (event: LogEvent) => void;
}

export interface Played {
  readonly outcome: LoopOutcome;
  readonly events: readonly LogEvent[];
  readonly requests: readonly ModelRequest[];
  readonly reported: readonly number[];
  readonly hooks: readonly { event: string; context: JsonObject }[];
  readonly artifacts: ReadonlyMap<string, string>;
}

/** Appends drafts as a log would. */
export function logOf(onEvent?: (event: LogEvent) => void) {
  const events: LogEvent[] = [];
  let leaf: string | null = null;
  const append = (drafts: readonly EventDraft[]): LogEvent[] =>
    drafts.map((draft) => {
      const seq = events.length + 1;
      const entry = isEntryType(draft.event_type) ? { id: `e${seq}`, parent_id: leaf } : {};
      const { event_type, payload } = draft;
      const event = {
        seq,
        timestamp: '',
        thread_id: 't',
        event_type,
        payload,
        ...entry,
      } as LogEvent;
      if (event.id !== undefined) leaf = event.id;
      events.push(event);
      onEvent?.(event);
      return event;
    });
  return { events, append };
}

export function portsOf(
  script: Script,
  played: {
    requests: ModelRequest[];
    reported: number[];
    hooks: { event: string; context: JsonObject }[];
    artifacts: Map<string, string>;
  },
): LoopPorts {
  const tools = script.tools ?? {};
  let spent = 0;
  let call = 0;
  const hooks: HookPort = {
    control: (event, context) => {
      script.onHook?.(event, context);
      played.hooks.push({ event, context });
      return Promise.resolve({ fired: [], decision: script.control?.(event, context) });
    },
    observe: (event, context) => {
      script.onHook?.(event, context);
      played.hooks.push({ event, context });
      return Promise.resolve({ fired: [] });
    },
    gate: (context) => Promise.resolve({ fired: [], ...script.gate?.(context) }),
  };
  return {
    threadId: 'demo-1',
    projectPath: 'project',
    system: '',
    history: [userText('Do it.')],
    traits: ({ kind }) => traitsOf(shippedKinds(), kind),
    provider: (model) => ({
      name: model.provider,
      stream: (request, signal) => {
        played.requests.push(request);
        const turn = script.turns[call];
        call += 1;
        if (turn === undefined) throw new Error('the script has no more turns');
        return typeof turn === 'function' ? turn(request, signal) : replay(turn);
      },
    }),
    definitions: () => ({
      version: Object.keys(tools).length,
      tools: Object.entries(tools).map(([name, tool]) => ({
        name,
        description: tool.description,
        input_schema: tool.inputSchema,
      })),
    }),
    tools: {
      resolve: (name, input) => {
        const tool = Object.hasOwn(tools, name) ? tools[name] : undefined;
        if (!tool) return Promise.resolve({ kind: 'unknown', near: Object.keys(tools) });
        const need = tool.need?.(input) ?? {
          verb: 'execute' as const,
          item_type: 'tool' as const,
          item_id: tool.id,
        };
        return Promise.resolve({ kind: 'resolved', call: { tool, input, need } });
      },
    },
    hooks,
    clock: new VirtualClock(),
    budget: {
      remainingMicroUsd: () => Promise.resolve(5_000_000 - spent),
      report: (micro) => {
        spent = micro;
        played.reported.push(micro);
        return Promise.resolve();
      },
    },
    cancelled: () => undefined,
    artifacts: {
      save: (callId, content) => {
        played.artifacts.set(callId, JSON.stringify(content));
        return Promise.resolve(`artifacts/${callId}.txt`);
      },
    },
    errorRules: ERROR_RULES,
    random: () => 0.5,
    validate: (schema, input) => {
      const required = (schema['required'] ?? []) as string[];
      const missing = required.filter((name) => input[name] === undefined);
      return Promise.resolve(
        missing.length === 0
          ? { ok: true, input, coerced: [] }
          : { ok: false, problems: `${missing.join(', ')} is required` },
      );
    },
    checkReturn: (input) => {
      const schema = script.plan?.behavior?.['schema'] as JsonObject | undefined;
      const missing = [
        ...(script.plan?.outputs ?? []).flatMap(({ name, required }) => (required ? [name] : [])),
        ...((schema?.['required'] ?? []) as string[]),
      ].filter((name) => input[name] === undefined);
      return missing.length === 0
        ? { ok: true, outputs: input }
        : { ok: false, problems: missing.map((name) => `${name} is required`) };
    },
    ...script.ports,
  };
}

async function* replay(events: readonly ModelEvent[]): AsyncGenerator<ModelEvent> {
  yield* events;
}

/** Runs a script to its end, with a log that is always willing. */
export async function play(script: Script): Promise<Played> {
  const facts = { requests: [], reported: [], hooks: [], artifacts: new Map<string, string>() };
  const log = logOf(script.onEvent);
  const signal = script.signal ?? new AbortController().signal;
  const loop = runLoop(planOf(script.plan), portsOf(script, facts), signal);
  let step = await loop.next();
  while (step.done !== true) {
    script.onDrafts?.(step.value);
    step = await loop.next(log.append(step.value));
  }
  return { outcome: step.value, events: log.events, ...facts };
}

type Line<T extends LogEvent['event_type']> = (payload: EventPayloads[T]) => string;

const LINES: { readonly [T in LogEvent['event_type']]?: Line<T> } = {
  message: ({ message }) => describe(message),
  tool_call_start: ({ call_id, tool }) => `start ${call_id} ${tool}`,
  tool_settled: ({ call_id, outcome }) => `settled ${call_id} ${outcome}`,
  token_delta: ({ text }) => `delta ${text}`,
  thinking_delta: ({ text }) => `thought ${text}`,
  cost: ({ turn }) => `cost ${turn}`,
  turn_started: ({ turn }) => `turn ${turn}`,
  limit_reached: ({ code }) => code,
  custom_message: ({ custom_type }) => `inject ${custom_type}`,
  error_classified: ({ category }) => `classified ${category}`,
  retry_scheduled: ({ attempt, delay_ms }) => `retry ${attempt} after ${delay_ms}`,
  context_edit: ({ target_id }) => `omit ${target_id}`,
};

/** The most noticeable part of an event for a reader of the log. */
export function traceLine({ event_type, payload }: LogEvent): string {
  const line = LINES[event_type] as ((payload: unknown) => string) | undefined;
  return line ? line(payload) : event_type;
}

/** One short line per event. */
export function trace(events: readonly LogEvent[]): string[] {
  return events.map(traceLine);
}

function describe(message: Message): string {
  if (message.role === 'tool_result') return `result ${message.call_id} ${message.outcome}`;
  if (message.role === 'user') return 'user';
  const calls = message.content.flatMap((block) =>
    block.type === 'tool_call' ? [block.call_id] : [],
  );
  return ['assistant', message.stop_reason, ...calls].join(' ');
}

/** Text of the result of a call. */
export function resultText(events: readonly LogEvent[], callId: string): string {
  for (const { event_type, payload } of events) {
    if (event_type !== 'message' || payload.message.role !== 'tool_result') continue;
    if (payload.message.call_id !== callId) continue;
    return payload.message.content
      .map((b) => (b.type === 'text' ? b.text : `[${b.type}]`))
      .join('\n');
  }
  throw new Error(`no result for ${callId}`);
}
