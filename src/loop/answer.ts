import { overReason } from '../core/clock.ts';
import { messageOf } from '../core/errors.ts';
import type { EventDraft } from '../core/events.ts';
import { isJsonObject, parseJson } from '../core/json.ts';
import type {
  AssistantBlock,
  AssistantMessage,
  StopReason,
  ToolCallBlock,
} from '../core/message.ts';
import { GrowingText } from '../core/text.ts';
import { NO_USAGE, type Usage } from '../core/usage.ts';
import type {
  ModelEvent,
  ModelProvider,
  ModelRequest,
  ProviderFailure,
} from '../providers/provider.ts';
import { type Allowance, type Bound, StreamBound } from './meters.ts';
import type { Interrupt, WhatRuns } from './ports.ts';
import type { Run } from './run.ts';
import { isStopped, orStopped } from './stop.ts';

/** One model call as it came out. What was said before a failure is `partial`. */
export type Attempt =
  | { readonly kind: 'answered'; readonly message: AssistantMessage }
  | {
      readonly kind: 'failed';
      readonly failure: ProviderFailure;
      readonly partial: AssistantMessage;
    }
  | { readonly kind: 'stopped'; readonly partial: AssistantMessage }
  | { readonly kind: 'interrupted'; readonly by: Interrupt; readonly partial: AssistantMessage }
  /** The thread's own limit was passed in the middle of the answer. */
  | {
      readonly kind: 'exceeded';
      readonly limit: Exclude<Bound, 'output'>;
      readonly partial: AssistantMessage;
    };

type Finish = Extract<ModelEvent, { type: 'finish' }>;
type Close =
  | { readonly kind: 'finish'; readonly event: Finish }
  | { readonly kind: 'failed'; readonly failure: ProviderFailure }
  | { readonly kind: 'stopped' }
  | { readonly kind: 'exceeded'; readonly limit: Exclude<Bound, 'output'> }
  /** `whole` is there when the answer had ended: nothing of it is estimated. */
  | { readonly kind: 'interrupted'; readonly by: Interrupt; readonly whole?: Finish };

export interface PlannedCall {
  readonly request: ModelRequest;
  readonly allowance: Allowance;
}

/**
 * Streams one answer into the log as deltas and charges for it, however it ends. Costs O(1) per delta: the stream
 * is read no faster than the log takes it.
 */
export async function attemptAnswer(
  run: Run,
  provider: ModelProvider,
  { request, allowance }: PlannedCall,
): Promise<Attempt> {
  const call = new AbortController();
  const onStop = (): void => call.abort();
  const { signal } = run.stop;
  if (signal.aborted) call.abort();
  else signal.addEventListener('abort', onStop, { once: true });
  const said = new Partial();
  const bound = new StreamBound(allowance, run.model.pricing, run.answerRatio);
  const isSent = !signal.aborted;
  const end = (close: Close): Attempt => closed(run, { said, close, request, bound, isSent });
  try {
    return end(await follow(run, provider.stream(request, call.signal), { said, bound, request }));
  } catch (error) {
    // the port promises not to throw; one that does has failed in the middle of its answer
    return end({ kind: 'failed', failure: { message: messageOf(error), phase: 'stream' } });
  } finally {
    signal.removeEventListener('abort', onStop);
    call.abort(overReason());
  }
}

interface Heard {
  readonly said: Partial;
  readonly bound: StreamBound;
  readonly request: ModelRequest;
}

async function follow(
  run: Run,
  stream: AsyncIterable<ModelEvent>,
  { said, bound, request }: Heard,
): Promise<Close> {
  run.watcher = run.ports.watchStream?.(run.turn);
  const reader = new StreamReader(stream, run.stop.signal);
  try {
    for (;;) {
      const event = await reader.next();
      if (event === 'stopped') return { kind: 'stopped' };
      if (event === 'ended') return { kind: 'failed', failure: CUT_OFF };
      let by = run.watcher?.observe(event);
      if (!by && event.type === 'finish') by = await lateInterrupt(run);
      const passed = bound.take(event);
      const close = by ? interrupted(by, event) : (closeOf(event) ?? exceeded(passed, request));
      said.take(event);
      publish(run, event);
      if (close) return close;
      if (run.outbox.isFull) await run.outbox.room();
    }
  } finally {
    reader.close();
  }
}

/** Queues the event for the log, and what the watcher found in it. */
function publish(run: Run, event: ModelEvent): void {
  const delta = deltaOf(event);
  if (delta) run.outbox.post(delta);
  for (const record of run.watcher?.takeRecords() ?? []) run.outbox.post(record);
}

const CUT_OFF: ProviderFailure = {
  message: 'the stream ended without a finish',
  phase: 'stream',
};

/** The connection is closed at once: nothing that comes later is read, kept or paid for. */
function exceeded(passed: Bound | undefined, request: ModelRequest): Close | undefined {
  if (passed !== 'output') return passed && { kind: 'exceeded', limit: passed };
  const message = `the server went on after max_tokens ${request.max_tokens}, so its answer was stopped`;
  const failure: ProviderFailure = { message, type: 'max_tokens_ignored', phase: 'stream' };
  return { kind: 'failed', failure };
}

function closeOf(event: ModelEvent): Close | undefined {
  if (event.type === 'finish') return { kind: 'finish', event };
  if (event.type === 'error') return { kind: 'failed', failure: event.failure };
  return undefined;
}

function interrupted(by: Interrupt, event: ModelEvent): Close {
  return { kind: 'interrupted', by, ...(event.type === 'finish' ? { whole: event } : {}) };
}

/** What checks that take time found in the whole answer; a stop does not wait for them. */
async function lateInterrupt(run: Run): Promise<Interrupt | undefined> {
  if (!run.watcher) return undefined;
  const settled = run.watcher.settle(async (call) => await whatRuns(run, call));
  const by = await orStopped(settled, run.stop.signal);
  return isStopped(by) ? undefined : by;
}

/** What the gates will judge, for those who judge before them. What can't be resolved or is not valid never runs. */
async function whatRuns(run: Run, { name, input }: ToolCallBlock): ReturnType<WhatRuns> {
  const { ports } = run;
  try {
    const resolution = await ports.tools.resolve(name, input);
    if (resolution.kind === 'unknown') return undefined;
    const { tool, input: given } = resolution.call;
    const checked = await ports.validate(tool.inputSchema, given);
    return checked.ok ? { tool: tool.id, input: checked.input } : undefined;
  } catch {
    return undefined;
  }
}

function deltaOf(event: ModelEvent): EventDraft | undefined {
  switch (event.type) {
    case 'text_delta':
      return { event_type: 'token_delta', payload: { text: event.text } };
    case 'thinking_delta':
      return { event_type: 'thinking_delta', payload: { text: event.text } };
    case 'toolcall_delta':
      return {
        event_type: 'toolcall_delta',
        payload: { call_id: event.call_id, json: event.json },
      };
    case 'start':
    case 'toolcall_start':
    case 'toolcall_end':
    case 'usage':
    case 'finish':
    case 'error':
      break;
  }
  return undefined;
}

function wholeOf(close: Close): Finish | undefined {
  if (close.kind === 'finish') return close.event;
  return close.kind === 'interrupted' ? close.whole : undefined;
}

/** Charges for what came and turns the end of the stream into a value. */
function closed(
  run: Run,
  end: Heard & { readonly close: Close; readonly isSent: boolean },
): Attempt {
  const { said, close, request, bound, isSent } = end;
  const whole = wholeOf(close);
  const content = whole?.content ?? said.blocks();
  const usage = said.usageFor({
    heardTokens: run.answerRatio.tokensOf(bound.bytes),
    inputTokens: run.meter.likelyTokens(run.preamble()),
    isWhole: whole !== undefined,
    isBilled: isSent && mayBeBilled(close),
  });
  run.charge(usage);
  const message = (stop_reason: StopReason): AssistantMessage => ({
    role: 'assistant',
    content,
    provider: run.model.provider,
    model: request.model,
    stop_reason,
    usage,
  });
  if (close.kind === 'finish') {
    const { input_tokens, cache_read_tokens, cache_write_tokens } = usage;
    run.meter.calibrate(input_tokens + cache_read_tokens + cache_write_tokens, run.preamble());
    run.answerRatio.learn(bound.bytes, usage.output_tokens);
    return { kind: 'answered', message: message(close.event.reason) };
  }
  const partial = message('aborted');
  if (close.kind === 'interrupted') return { kind: 'interrupted', by: close.by, partial };
  if (close.kind === 'exceeded') return { kind: 'exceeded', limit: close.limit, partial };
  if (close.kind === 'stopped' || run.stop.signal.aborted) return { kind: 'stopped', partial };
  return { kind: 'failed', failure: close.failure, partial };
}

/** A call that reached the server is billed for its input, even if not a word of its answer came. */
function mayBeBilled(close: Close): boolean {
  if (close.kind !== 'failed') return true;
  const { phase } = close.failure;
  return phase === 'stream' || phase === 'stalled' || phase === 'aborted';
}

/** Pulls a stream one event at a time and lets go at once when the signal aborts, whatever the stream does. */
class StreamReader {
  readonly #iterator: AsyncIterator<ModelEvent>;
  readonly #signal: AbortSignal;
  // one listener for the whole stream: racing each event against the signal would pile up a million of them
  readonly #onAbort = (): void => this.#leave?.('stopped');
  #leave: ((event: 'stopped') => void) | undefined;

  constructor(stream: AsyncIterable<ModelEvent>, signal: AbortSignal) {
    this.#iterator = stream[Symbol.asyncIterator]();
    this.#signal = signal;
    signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  next(): Promise<ModelEvent | 'stopped' | 'ended'> {
    if (this.#signal.aborted) return Promise.resolve('stopped');
    return new Promise((resolve, reject) => {
      this.#leave = resolve;
      this.#iterator
        .next()
        .then(({ value, done }) => resolve(done === true ? 'ended' : value), reject);
    });
  }

  close(): void {
    this.#signal.removeEventListener('abort', this.#onAbort);
    // a stream that hangs in its own clean-up must not hold the run
    this.#iterator.return?.().catch(() => undefined);
  }
}

interface OpenBlock {
  readonly type: 'text' | 'thinking' | 'tool_call';
  readonly callId: string;
  readonly name: string;
  readonly text: GrowingText;
}

/** What was said so far, for the record of an answer that does not finish. */
class Partial {
  readonly #blocks: OpenBlock[] = [];
  #usage: Usage | undefined;
  #started = false;

  take(event: ModelEvent): void {
    switch (event.type) {
      case 'start':
        this.#started = true;
        return;
      case 'text_delta':
        this.#spoken('text').text.add(event.text);
        return;
      case 'thinking_delta':
        this.#spoken('thinking').text.add(event.text);
        return;
      case 'toolcall_start':
        this.#open('tool_call', event.call_id, event.name);
        return;
      case 'toolcall_delta':
        this.#call(event.call_id)?.text.add(event.json);
        return;
      case 'usage':
        this.#usage = event.usage;
        return;
      case 'toolcall_end':
      case 'finish':
      case 'error':
        return;
    }
  }

  /** Text and calls. Reasoning is left out: without its signature no provider takes it back. */
  blocks(): readonly AssistantBlock[] {
    return this.#blocks.flatMap((block): readonly AssistantBlock[] => {
      const text = block.text.toString();
      if (block.type === 'text') return text === '' ? [] : [{ type: 'text', text }];
      if (block.type === 'thinking') return [];
      const input = parseJson(text);
      const { callId: call_id, name } = block;
      return isJsonObject(input)
        ? [{ type: 'tool_call', call_id, name, input }]
        : [{ type: 'tool_call', call_id, name, input: {}, malformed: text }];
    });
  }

  /**
   * What to pay for: the provider's count, but of an answer that was cut never less output than was heard. A call
   * that never reached the server costs nothing; one that ended without a count is estimated.
   */
  usageFor(answer: {
    readonly heardTokens: number;
    readonly inputTokens: number;
    readonly isWhole: boolean;
    readonly isBilled: boolean;
  }): Usage {
    const { heardTokens, inputTokens, isWhole, isBilled } = answer;
    if (this.#usage && isWhole) return this.#usage;
    if (!this.#usage && !this.#started && !isBilled) return NO_USAGE;
    const counted = this.#usage ?? { ...NO_USAGE, input_tokens: inputTokens };
    return { ...counted, output_tokens: Math.max(counted.output_tokens, heardTokens) };
  }

  #spoken(type: 'text' | 'thinking'): OpenBlock {
    const last = this.#blocks.at(-1);
    return last?.type === type ? last : this.#open(type, '', '');
  }

  #open(type: OpenBlock['type'], callId: string, name: string): OpenBlock {
    const block = { type, callId, name, text: new GrowingText() };
    this.#blocks.push(block);
    return block;
  }

  #call(callId: string): OpenBlock | undefined {
    return this.#blocks.findLast((block) => block.callId === callId && block.type === 'tool_call');
  }
}
