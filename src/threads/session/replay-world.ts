import { type Clock, isoTime } from '../../core/clock.ts';
import { RyeError } from '../../core/errors.ts';
import type { EventDraft, LogEvent } from '../../core/events.ts';
import { type AssistantMessage, type ToolResultMessage, toolCallsOf } from '../../core/message.ts';
import { LOG_START, placeEvent } from '../../log/cursor.ts';
import type { ModelEvent, ModelProvider } from '../../providers/provider.ts';
import type { LogWriter } from '../../storage/store.ts';
import { errorOutput, type Tool, type ToolOutput, textOutput } from '../../tools/tool.ts';
import type { ChildStarter } from '../family/children.ts';
import type { OpenTools } from '../ports.ts';

/** A clock at which no time passes: nothing times out and every duration is 0. */
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

/** A log that is kept nowhere. */
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
 * Says the recorded answers in their order. One that a rule cut ends where it was cut: a rule of today cuts it there too, at
 * the latest at its end, or it counts as an answer.
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
 * Today's tools, judged as they are, that give what was recorded instead of running. What hooks run has no recorded
 * result: it gives nothing and is noted in `notRun`.
 */
export function recordedTools(
  tools: OpenTools,
  results: ReadonlyMap<string, ToolResultMessage>,
  notRun: string[],
): OpenTools {
  return {
    ...tools,
    definitions: () => tools.definitions(),
    catalogue: () => tools.catalogue(),
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

/** For runs that have no effect beyond themselves. */
export const NO_CHILDREN: ChildStarter = {
  run: () => Promise.reject(noThread()),
  launch: () => Promise.reject(noThread()),
  launchTool: () => Promise.reject(noThread()),
};

function noThread(): RyeError {
  return new RyeError('hook_failed', 'no other thread is started from here');
}
