import type { ReplayDifference } from '../../kernel/app/api/trees.ts';
import { type Clock, isoTime } from '../../kernel/core/clock.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { EventDraft, LogEvent } from '../../kernel/core/events.ts';
import { type JsonObject, type JsonValue, jsonEquals } from '../../kernel/core/json.ts';
import {
  type AssistantMessage,
  type ToolResultMessage,
  toolCallsOf,
} from '../../kernel/core/message.ts';
import { LOG_START, placeEvent } from '../../kernel/log/cursor.ts';
import {
  type RecordedRun,
  type RecordedStep,
  type RunStep,
  stepOf,
} from '../../kernel/log/recorded-run.ts';
import type { ModelEvent, ModelProvider } from '../../kernel/providers/provider.ts';
import type { LogWriter } from '../../kernel/storage/store.ts';
import type { ChildStarter } from '../../kernel/threads/family/children.ts';
import { type OpenTools, TOOLS_CHANGED_ENTRY } from '../../kernel/threads/ports.ts';
import { errorOutput, type Tool, type ToolOutput, textOutput } from '../../kernel/tools/tool.ts';

/** Returns a clock that never advances: nothing times out and every duration is 0. */
export function stoppedClock(now: number): Clock {
  return {
    now: () => now,
    monotonic: () => 0,
    sleep: (_ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) resolve();
        else signal?.addEventListener('abort', () => resolve(), { once: true });
      }),
  };
}

/** Returns a log writer that keeps nothing. */
export function memoryWriter(threadId: string, clock: Clock): LogWriter {
  let cursor = LOG_START;
  const append = (drafts: readonly EventDraft[]): readonly LogEvent[] =>
    drafts.map((draft) => {
      const placed = placeEvent(cursor, draft, {
        threadId,
        timestamp: isoTime(clock.now()),
        entryId: () => `replay-${cursor.seq + 1}`,
      });
      cursor = placed.cursor;
      return placed.event;
    });
  return {
    threadId,
    append,
    isSyncDue: false,
    sync: () => undefined,
    checkpoint: () => undefined,
    isSigned: true,
    lastCheckpoint: undefined,
    head: { bytes: 0, seq: 0, epoch: 0, sha256: '' },
    get leafId() {
      return cursor.leafId;
    },
    state: () => ({ bytes: 0, sha256: '', events: cursor.seq }),
    close: () => undefined,
  };
}

/**
 * Streams the recorded answers in order. An answer that a rule cut ends at the cut: a current rule must cut it there
 * too, or it counts as a whole answer.
 */
export function recordedProvider(answers: readonly AssistantMessage[]): ModelProvider {
  let next = 0;
  return {
    name: 'recording',
    async *stream(_request, signal): AsyncGenerator<ModelEvent> {
      const answer = answers[next];
      next += 1;
      for (const event of answer ? eventsOf(answer) : []) {
        if (signal.aborted) {
          yield failure('aborted', 'the replay stopped');
          return;
        }
        yield event;
        if (event.type === 'finish') return;
      }
      yield failure('response', 'the recording has no more answers');
    },
  };
}

function failure(phase: 'aborted' | 'response', message: string): ModelEvent {
  const type = phase === 'response' ? { type: 'replay_exhausted' } : {};
  return { type: 'error', failure: { phase, message, ...type } };
}

function* eventsOf(answer: AssistantMessage): Generator<ModelEvent> {
  const { content, model, usage, stop_reason: stopped } = answer;
  yield { type: 'start', model };
  for (const block of content) {
    if (block.type === 'text') yield { type: 'text_delta', text: block.text };
    if (block.type === 'thinking' && block.text !== '') {
      yield { type: 'thinking_delta', text: block.text };
    }
    if (block.type !== 'tool_call') continue;
    const { call_id, name, input, malformed } = block;
    yield { type: 'toolcall_start', call_id, name };
    yield { type: 'toolcall_delta', call_id, json: malformed ?? JSON.stringify(input) };
    yield { type: 'toolcall_end', call_id };
  }
  yield { type: 'usage', usage };
  const whole = toolCallsOf(answer).length > 0 ? 'tool_calls' : 'end';
  yield { type: 'finish', reason: stopped === 'aborted' ? whole : stopped, content };
}

/**
 * Returns today's tools with their gates, but with recorded results instead of effects. Tools that hooks run have no
 * recorded result: they return nothing and are listed in `notRun`.
 */
export function recordedTools(
  tools: OpenTools,
  results: ReadonlyMap<string, ToolResultMessage>,
  notRun: string[],
): OpenTools {
  return {
    ...tools,
    definitions: () => tools.definitions(),
    catalog: () => tools.catalog(),
    validate: (schema, input) => tools.validate(schema, input),
    checkReturn: (input) => tools.checkReturn(input),
    gates: tools.gates,
    set: {
      async resolve(name, input) {
        const resolution = await tools.set.resolve(name, input);
        if (resolution.kind !== 'resolved') return resolution;
        const { call } = resolution;
        return { kind: 'resolved', call: { ...call, tool: playing(call.tool, results) } };
      },
    },
    async tool(id) {
      const tool = await tools.tool(id);
      return withExecute(tool, () => {
        notRun.push(id);
        return textOutput('');
      });
    },
  };
}

function playing(tool: Tool, results: ReadonlyMap<string, ToolResultMessage>): Tool {
  return withExecute(tool, (callId) => {
    const result = results.get(callId);
    if (!result) return errorOutput('the recording has no result of this call');
    const { content, outcome, data } = result;
    return { content, is_error: outcome !== 'ok', ...(data ? { data } : {}) };
  });
}

function withExecute(tool: Tool, execute: (callId: string) => ToolOutput): Tool {
  return {
    id: tool.id,
    description: tool.description,
    inputSchema: tool.inputSchema,
    traits: tool.traits,
    writes: (input) => tool.writes?.(input) ?? [],
    execute: (_input, { callId }) => Promise.resolve(execute(callId)),
  };
}

/** Refuses to start children, for runs without outside effects. */
export const NO_CHILDREN: ChildStarter = {
  run: () => Promise.reject(noThread()),
  join: () => Promise.reject(noThread()),
  withdraw: () => Promise.reject(noThread()),
  launch: () => Promise.reject(noThread()),
  launchTool: () => Promise.reject(noThread()),
};

function noThread(): RyeError {
  return new RyeError('hook_failed', 'no other thread is started from here');
}

/** Compares a replay with the recorded steps, up to the first difference or the end of the recording. */
export class ReplayComparison {
  readonly #steps: readonly RecordedStep[];
  readonly #hasEnd: boolean;
  readonly #fed = new Set<number>();
  #next = 0;
  #difference: ReplayDifference | undefined;

  constructor({ steps, hasEnd }: Pick<RecordedRun, 'steps' | 'hasEnd'>) {
    this.#steps = steps;
    this.#hasEnd = hasEnd;
  }

  get difference(): ReplayDifference | undefined {
    return this.#difference;
  }

  /** Number of equal steps. */
  get matched(): number {
    return this.#next;
  }

  get expected(): RecordedStep | undefined {
    return this.#steps[this.#next];
  }

  /** True if nothing is left to compare. */
  get isOver(): boolean {
    return this.#difference !== undefined || (!this.#hasEnd && this.expected === undefined);
  }

  /** Entry of the last equal step that has one; null if none has. */
  get lastEntryId(): string | null {
    return this.#steps[this.#next - 1]?.entryId ?? null;
  }

  /** Compares what the replay writes; false when the comparison is over. */
  observe(drafts: readonly EventDraft[]): boolean {
    for (const draft of drafts) {
      const step = stepOf(draft);
      if (step) this.compare(step);
    }
    return !this.isOver;
  }

  compare(step: RunStep): void {
    if (this.isOver) return;
    const { expected } = this;
    const found = expected === undefined ? undefined : differenceOf(expected, step);
    if (expected && !found) {
      this.#next += 1;
      return;
    }
    this.#difference = {
      step: this.#next,
      entry_id: expected?.entryId ?? null,
      seq: expected?.seq ?? null,
      path: found?.path ?? 'kind',
      recorded: found ? found.recorded : null,
      replayed: found ? found.replayed : asJson(step),
    };
  }

  /** Takes the recorded deliveries before the next answer that the replay has not received yet. */
  takeDeliveries(): readonly EventDraft[] {
    const drafts: EventDraft[] = [];
    for (let index = this.#next; index < this.#steps.length; index += 1) {
      const step = this.#steps[index];
      if (!step || step.kind === 'answer' || step.kind === 'end') break;
      if (!isDelivery(step) || step.draft === null || this.#fed.has(index)) continue;
      this.#fed.add(index);
      drafts.push(step.draft);
    }
    return drafts;
  }

  /** Ends the replay: a recorded step that is left over is a difference. */
  finish(): void {
    const { expected } = this;
    if (this.#difference || !expected) return;
    this.#difference = {
      step: this.#next,
      entry_id: expected.entryId,
      seq: expected.seq,
      path: 'kind',
      recorded: asJson(expected),
      replayed: null,
    };
  }
}

const DELIVERY = new RegExp(`^(?:delivery|steer|follow|child|${TOOLS_CHANGED_ENTRY}$)`);

function isDelivery({ kind, value, draft }: RecordedStep): boolean {
  const payload = draft?.payload as { readonly appended?: unknown } | undefined;
  if (payload?.appended === true) return true;
  const type = value['custom_type'];
  return (
    kind === 'user' || (kind === 'injected' && typeof type === 'string' && DELIVERY.test(type))
  );
}

function asJson({ kind, value }: RunStep): JsonObject {
  return { kind, ...value };
}

interface Difference {
  readonly path: string;
  readonly recorded: JsonValue;
  readonly replayed: JsonValue;
}

function differenceOf(recorded: RunStep, replayed: RunStep): Difference | undefined {
  if (recorded.kind !== replayed.kind) {
    return { path: 'kind', recorded: asJson(recorded), replayed: asJson(replayed) };
  }
  return firstDifference(recorded.value, replayed.value, recorded.kind);
}

/** Descends into objects and lists of equal length, to report the smallest difference. */
function firstDifference(left: JsonValue, right: JsonValue, path: string): Difference | undefined {
  if (jsonEquals(left, right)) return undefined;
  const keys = commonKeys(left, right);
  for (const key of keys ?? []) {
    const below = firstDifference(memberOf(left, key), memberOf(right, key), `${path}.${key}`);
    if (below) return below;
  }
  return { path, recorded: left, replayed: right };
}

function commonKeys(left: JsonValue, right: JsonValue): readonly string[] | undefined {
  if (typeof left !== 'object' || typeof right !== 'object' || !left || !right) return undefined;
  if (Array.isArray(left) !== Array.isArray(right)) return undefined;
  if (Array.isArray(left) && Array.isArray(right) && left.length !== right.length) return undefined;
  return [...new Set([...Object.keys(left), ...Object.keys(right)])];
}

function memberOf(value: JsonValue, key: string): JsonValue {
  return (value as Readonly<Record<string, JsonValue | undefined>>)[key] ?? null;
}
