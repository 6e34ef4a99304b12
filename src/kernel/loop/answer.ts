import { type Clock, isoTime, overReason } from '../core/clock.ts';
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
import { NO_USAGE, promptTokens, type Usage } from '../core/usage.ts';
import type {
  ModelEvent,
  ModelProvider,
  ModelRequest,
  ModelStream,
  ProviderFailure,
} from '../providers/provider.ts';
import { consult } from './consult.ts';
import { type Allowance, type Bound, StreamBound } from './meters.ts';
import type { Interrupt, StreamWatcher, WhatRuns } from './ports.ts';
import { type Run, tellOnce } from './run.ts';
import { isStopped, orStopped } from './stop.ts';

/** Answers that are over by then are not announced: most of their calls can't be cut. */
const SLOW_MS = 250;

/** Announces an answer that takes its time, with what would tell its cost if the process died before its end. */
export class AnswerStart {
  readonly #clock: Pick<Clock, 'now' | 'monotonic'>;
  readonly #turn: number;
  readonly #sinceMs: number;
  #responseId: string | undefined;
  #counted: { readonly at: string; readonly usage: Usage } | undefined;
  #hasText = false;
  #isOver = false;

  constructor(clock: Pick<Clock, 'now' | 'monotonic'>, turn: number) {
    this.#clock = clock;
    this.#turn = turn;
    this.#sinceMs = clock.monotonic();
  }

  /** Returns the announcement, once, with the first event of a slow answer that leaves something to tell. */
  take(event: ModelEvent): EventDraft | undefined {
    if (this.#isOver) return undefined;
    this.#note(event);
    if (this.#isOver) return undefined;
    if (this.#responseId === undefined && this.#counted === undefined) return undefined;
    if (this.#clock.monotonic() - this.#sinceMs < SLOW_MS) return undefined;
    this.#isOver = true;
    const id = this.#responseId === undefined ? {} : { response_id: this.#responseId };
    return {
      event_type: 'answer_started',
      payload: { turn: this.#turn, ...id, ...this.#counted },
    };
  }

  #note(event: ModelEvent): void {
    switch (event.type) {
      case 'start':
        this.#responseId = event.id;
        return;
      case 'usage':
        // a count in the middle would hide what came before it
        if (!this.#hasText) {
          this.#counted ??= { at: isoTime(this.#clock.now()), usage: event.usage };
        }
        return;
      case 'finish':
      case 'error':
        this.#isOver = true;
        return;
      case 'text_delta':
      case 'thinking_delta':
      case 'toolcall_start':
      case 'toolcall_delta':
      case 'toolcall_end':
        this.#hasText = true;
    }
  }
}

/** The result of one model call. `partial` is the text before it was cut or failed. */
export type Attempt =
  | { readonly kind: 'answered'; readonly message: AssistantMessage }
  | {
      readonly kind: 'failed';
      readonly failure: ProviderFailure;
      readonly partial: AssistantMessage;
    }
  | { readonly kind: 'stopped'; readonly partial: AssistantMessage }
  | { readonly kind: 'interrupted'; readonly by: Interrupt; readonly partial: AssistantMessage }
  /** The answer passed a limit of the thread. */
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
  /** `whole` is set if the answer had ended, so that nothing of it is estimated. */
  | { readonly kind: 'interrupted'; readonly by: Interrupt; readonly whole?: Finish };

export interface PlannedCall {
  readonly request: ModelRequest;
  readonly allowance: Allowance;
  /** The most that its input can be; what a call costs whose input its server has not counted. */
  readonly mostInputTokens: number;
}

/**
 * Streams one answer into the log as deltas and charges for it, however it ends. Costs O(1) per delta, and reads the
 * stream no faster than the log accepts it.
 */
export async function attemptAnswer(
  run: Run,
  provider: ModelProvider,
  { request, allowance, mostInputTokens }: PlannedCall,
): Promise<Attempt> {
  const call = new AbortController();
  const onStop = (): void => call.abort();
  const { signal } = run.stop;
  if (signal.aborted) call.abort();
  else signal.addEventListener('abort', onStop, { once: true });
  const partial = new PartialAnswer();
  const bound = new StreamBound(allowance, run.models.current.pricing, run.spend.answerRatio);
  const isSent = !signal.aborted;
  const watcher = run.conversation.watchAnswer(run.spend.turn);
  const { clock } = run.ports;
  const start = run.models.traits.embedded ? undefined : new AnswerStart(clock, run.spend.turn);
  const answer = { partial, bound, watcher, request, mostInputTokens, start };
  const end = (close: Close): Attempt => attemptOf(run, answer, close, isSent);
  try {
    return end(await readAnswer(run, provider.stream(request, call.signal), answer));
  } catch (error) {
    // the port promises not to throw: if it does, the answer failed in the middle
    return end({ kind: 'failed', failure: { message: messageOf(error), phase: 'stream' } });
  } finally {
    signal.removeEventListener('abort', onStop);
    call.abort(overReason());
  }
}

/** An answer that is being read. */
interface Answer {
  readonly partial: PartialAnswer;
  readonly bound: StreamBound;
  readonly watcher: StreamWatcher | undefined;
  readonly request: ModelRequest;
  readonly mostInputTokens: number;
  /** Absent for an answer that costs nothing. */
  readonly start: AnswerStart | undefined;
}

async function readAnswer(run: Run, stream: ModelStream, answer: Answer): Promise<Close> {
  const { partial, bound, watcher, request, start } = answer;
  const { outbox, stop, models } = run;
  const reader = new StreamReader(stream, stop.signal);
  try {
    for (;;) {
      const event = reader.ready() ?? (await reader.next());
      if (event === 'stopped') return { kind: 'stopped' };
      if (event === 'ended') return { kind: 'failed', failure: CUT_OFF };
      post(outbox, start?.take(event));
      post(outbox, deltaOf(event));
      partial.take(event);
      let by = watcher?.observe(event);
      if (!by && watcher && event.type === 'finish') {
        by = await lateInterrupt(run, watcher, usageOf(run, answer, WHOLE));
      }
      // steps are no tokens: what they pass on has no bound
      const passed = models.traits.replayable ? undefined : bound.take(event);
      const close = by ? interrupted(by, event) : (closeOf(event) ?? exceeded(passed, request));
      if (close) return close;
      if (outbox.isFull) await outbox.room();
    }
  } finally {
    reader.close();
  }
}

function post(outbox: Run['outbox'], draft: EventDraft | undefined): void {
  if (draft) outbox.post(draft);
}

const CUT_OFF: ProviderFailure = { message: 'the stream ended without a finish', phase: 'stream' };
const FILTERED: ProviderFailure = {
  message: 'the provider filtered the answer',
  type: 'content_filtered',
  phase: 'response',
};

/** Closes an answer that passed a bound. The rest of it is not read, kept or paid for. */
function exceeded(passed: Bound | undefined, request: ModelRequest): Close | undefined {
  if (passed !== 'output') return passed && { kind: 'exceeded', limit: passed };
  const message = `the server ignored max_tokens ${request.max_tokens}, so its answer was stopped`;
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

/** Waits for slow checks of the complete answer, unless the run stops. */
async function lateInterrupt(
  run: Run,
  watcher: StreamWatcher,
  uncharged: Usage,
): Promise<Interrupt | undefined> {
  let asked: Promise<unknown> | undefined;
  const settled = watcher.settle(
    async (call) => await whatRuns(run, call),
    async (question) => await (asked = consult(run, question, uncharged)),
  );
  const by = await orStopped(settled, run.stop.signal);
  // what an open question cost is charged before the run ends
  if (isStopped(by)) await asked;
  return isStopped(by) ? undefined : by;
}

/** Returns the tool and the input that the gates will judge; undefined if the call can never run. */
async function whatRuns(run: Run, { name, input }: ToolCallBlock): ReturnType<WhatRuns> {
  const { ports } = run;
  try {
    const resolution = await ports.tools.resolve(name, input);
    if (resolution.kind === 'unknown') return undefined;
    const { tool, input: resolved } = resolution.call;
    const checked = await ports.validate(tool.inputSchema, resolved);
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

/** The content of an answer. A last call that was cut before its arguments must not run with their defaults. */
function uncut({ content, reason }: Finish): readonly AssistantBlock[] {
  const last = content.at(-1);
  const isCut = reason === 'max_tokens' && last?.type === 'tool_call';
  return isCut && Object.keys(last.input).length === 0
    ? [...content.slice(0, -1), { malformed: '', ...last }]
    : content;
}

const WHOLE = { isWhole: true, isBilled: true };

/** Returns what an answer is charged for. */
function usageOf(
  { models, spend }: Run,
  { partial, bound, mostInputTokens }: Answer,
  end: { readonly isWhole: boolean; readonly isBilled: boolean },
): Usage {
  return partial.usageFor({
    receivedTokens: spend.answerRatio.tokensOf(bound.bytes),
    inputTokens: mostInputTokens,
    isFree: models.traits.embedded,
    ...end,
  });
}

/** Charges for the answer and returns the result of its call. */
function attemptOf(run: Run, answer: Answer, close: Close, isSent: boolean): Attempt {
  const { conversation, models, spend } = run;
  const { partial: received, request, bound } = answer;
  const whole = wholeOf(close);
  const content = whole ? uncut(whole) : received.blocks();
  const usage = usageOf(run, answer, {
    isWhole: whole !== undefined,
    isBilled: isSent && (close.kind !== 'failed' || mayBeBilled(close.failure)),
  });
  if (whole && !models.traits.embedded && !received.hasCounted(bound.bytes)) {
    const { provider, id } = models.current;
    tellOnce(
      run,
      `${provider}/${id} reports no usable count of tokens: tokens and spend of its answers are estimates`,
    );
  }
  spend.charge(usage, models.current.pricing);
  const message = (stop_reason: StopReason): AssistantMessage => ({
    role: 'assistant',
    content,
    provider: models.current.provider,
    model: request.model,
    stop_reason,
    usage,
  });
  if (close.kind === 'finish') {
    conversation.calibrate(received.countedInput);
    spend.answerRatio.learn(bound.bytes, usage.output_tokens);
    const spoken = message(close.event.reason);
    return close.event.reason === 'content_filtered'
      ? { kind: 'failed', failure: FILTERED, partial: spoken }
      : { kind: 'answered', message: spoken };
  }
  const partial = message('aborted');
  if (close.kind === 'interrupted') return { kind: 'interrupted', by: close.by, partial };
  if (close.kind === 'exceeded') return { kind: 'exceeded', limit: close.limit, partial };
  if (close.kind === 'stopped' || run.stop.signal.aborted) return { kind: 'stopped', partial };
  return { kind: 'failed', failure: close.failure, partial };
}

/** True if a call that failed may have reached the server, which then bills its input even without an answer. */
export function mayBeBilled({ phase, type = '' }: ProviderFailure): boolean {
  if (phase === 'stream') return !REFUSALS.has(type);
  return phase === 'stalled' || phase === 'aborted';
}

/** Failures with which a server refuses a request in a stream: unless an answer had begun, it read nothing. */
const REFUSALS: ReadonlySet<string> = new Set([
  'overloaded_error',
  'rate_limit_error',
  'rate_limit_exceeded',
  'too_many_requests',
]);

/** A prompt has tokens and so has an answer: a count of zero is a missing one, and estimated like it. */
function plausible(usage: Usage, receivedTokens: number, inputTokens: number): Usage {
  const { input_tokens, output_tokens } = usage;
  return {
    ...usage,
    input_tokens: promptTokens(usage) > 0 ? input_tokens : inputTokens,
    output_tokens: output_tokens > 0 ? output_tokens : receivedTokens,
  };
}

/** Reads a stream event by event, and leaves it as soon as the signal aborts. */
class StreamReader {
  readonly #stream: ModelStream;
  readonly #iterator: AsyncIterator<ModelEvent>;
  readonly #signal: AbortSignal;
  // one listener for the whole stream: racing each event against the signal would pile up a million of them
  readonly #onAbort = (): void => this.#leave?.('stopped');
  #leave: ((event: 'stopped') => void) | undefined;

  constructor(stream: ModelStream, signal: AbortSignal) {
    this.#stream = stream;
    this.#iterator = stream[Symbol.asyncIterator]();
    this.#signal = signal;
    signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  /** Returns an event that has come already. */
  ready(): ModelEvent | undefined {
    return this.#signal.aborted ? undefined : this.#stream.ready?.();
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
    // a stream that hangs in its clean-up must not block the run
    this.#iterator.return?.().catch(() => undefined);
  }
}

interface OpenBlock {
  readonly type: 'text' | 'thinking' | 'tool_call';
  readonly callId: string;
  readonly name: string;
  readonly text: GrowingText;
}

/** Collects the blocks of an answer, for the record of one that does not finish. */
class PartialAnswer {
  readonly #blocks: OpenBlock[] = [];
  #usage: Usage | undefined;
  #started = false;

  take(event: ModelEvent): void {
    switch (event.type) {
      case 'start':
        this.#started = true;
        return;
      case 'text_delta':
        this.#openText('text').text.add(event.text);
        return;
      case 'thinking_delta':
        this.#openText('thinking').text.add(event.text);
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

  /** Returns text and calls. Reasoning is dropped: no provider accepts it back without its signature. */
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

  /** The input tokens that the provider has counted; 0 if it has not. An estimate calibrates nothing. */
  get countedInput(): number {
    return this.#usage ? promptTokens(this.#usage) : 0;
  }

  /** True if the provider has counted both the prompt and an answer of so many bytes. */
  hasCounted(bytes: number): boolean {
    return this.countedInput > 0 && (bytes === 0 || (this.#usage?.output_tokens ?? 0) > 0);
  }

  /**
   * Returns the usage to pay for: the provider's count, but for a cut answer at least the output received. A call that
   * never reached the server costs nothing. A call without a count is estimated.
   */
  usageFor(answer: {
    readonly receivedTokens: number;
    readonly inputTokens: number;
    readonly isWhole: boolean;
    /** True for a model that runs in this process, whose zeros are facts. */
    readonly isFree: boolean;
    readonly isBilled: boolean;
  }): Usage {
    const { receivedTokens, inputTokens, isWhole, isFree, isBilled } = answer;
    if (this.#usage && isWhole)
      return isFree ? this.#usage : plausible(this.#usage, receivedTokens, inputTokens);
    if (!this.#usage && !this.#started && !isBilled) return NO_USAGE;
    const counted = this.#usage ?? { ...NO_USAGE, input_tokens: inputTokens };
    return { ...counted, output_tokens: Math.max(counted.output_tokens, receivedTokens) };
  }

  #openText(type: 'text' | 'thinking'): OpenBlock {
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
