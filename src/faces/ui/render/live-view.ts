import { accountOf, lineOf, waitText } from '../../../kernel/app/api/trees.ts';
import type { EventPayloads, LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import type { JsonObject } from '../../../kernel/core/json.ts';
import {
  type AssistantMessage,
  type Message,
  textOf,
  toolCallsOf,
} from '../../../kernel/core/message.ts';
import { count } from '../../cli/output.ts';
import type { Io, Sink } from '../io.ts';
import { type Colors, wrapText } from '../terminal-text.ts';
import { oneLine, type Shown, shown } from '../visible.ts';
import { toolName } from './call-line.ts';
import { deliveredText } from './delivered.ts';
import { echoLines } from './echo.ts';
import { type CursorPlace, createLiveArea } from './live-area.ts';
import {
  type Block,
  type BlockStyle,
  CallBlock,
  childBlock,
  type Held,
  HeldLine,
  lineBlock,
  TextBlock,
  ThoughtBlock,
} from './live-blocks.ts';
import { Meters, shortModel, shortUsd } from './meters.ts';
import { payloadOf, runLine, wordedLines } from './progress-line.ts';
import { paint } from './text.ts';

/** The waits for a provider that does not answer, from the first to the next answer. */
class RetryWait {
  #wait: EventPayloads['retry_scheduled'] | undefined;
  #dueMs = 0;
  #sinceMs = 0;
  #retries = 0;

  /** Takes an event of the thread. Returns a line about all waits once the provider answers again. */
  take(event: LogEvent | UnknownEvent, nowMs: number): Shown | undefined {
    const wait = payloadOf(event, 'retry_scheduled');
    if (wait) {
      if (this.#retries === 0) this.#sinceMs = nowMs;
      this.#retries += 1;
      this.#wait = wait;
      this.#dueMs = nowMs + wait.delay_ms;
      return undefined;
    }
    const { event_type: type } = event;
    if (type === 'request_started') this.#dueMs = 0;
    if (!ANSWERS.has(type) || this.#wait === undefined) return undefined;
    const { reason = 'no answer' } = this.#wait;
    const seconds = Math.round((nowMs - this.#sinceMs) / 1000);
    const retries = this.#retries === 1 ? '1 retry' : `${this.#retries} retries`;
    this.reset();
    return oneLine(`${reason} for ${seconds} s, ${retries}`);
  }

  /** Returns the countdown to the next attempt; undefined while none is waited for. */
  line(nowMs: number): Shown | undefined {
    if (this.#wait === undefined || this.#dueMs === 0) return undefined;
    return shown`${oneLine(waitText(this.#wait, this.#dueMs - nowMs))} (Ctrl-C to stop)`;
  }

  reset(): void {
    this.#wait = undefined;
    this.#retries = 0;
  }
}

/** Events that only come with an answer. */
const ANSWERS: ReadonlySet<string> = new Set([
  'token_delta',
  'thinking_delta',
  'toolcall_delta',
  'tool_call_start',
  'cost',
]);

export interface LiveViewOptions {
  readonly io: Pick<Io, 'monotonic' | 'repeat'>;
  /** The terminal. Its size is read at each drawing. */
  readonly sink: Sink;
  readonly colors: Colors;
  /** Also shows thinking, hooks, requests and the cost of each turn. */
  readonly isVerbose?: boolean;
  /** False: no line with the directive, model, limits and ID. */
  readonly hasHeader?: boolean;
  /** True: turns are counted from the start of the run, as the person does in a conversation. */
  readonly countsFromRun?: boolean;
  /** `between`: the last message of a run is not shown, because stdout gets it. */
  readonly words?: 'all' | 'between';
  /** Reads a file before a call writes it, for the diff. */
  readonly readFile?: (path: string) => string | undefined;
}

/** Lines below the status line that stay there, such as an input field. */
export interface Footer {
  readonly lines: readonly string[];
  /** Place of the cursor in `lines`; absent: no cursor. */
  readonly cursor?: CursorPlace;
}

/** Shows the events of runs on a terminal, and rewrites unfinished lines in place. */
export interface LiveView {
  /** Shows an event of the thread, or of a child in this process. Never throws. */
  readonly event: (event: LogEvent | UnknownEvent) => void;
  /** Prints whole lines for good, above the unfinished ones. The caller neutralizes foreign text. */
  readonly print: (lines: readonly string[]) => void;
  /**
   * Ends a run: everything is printed for good, and the status line goes. The next event begins another run. `told` is the
   * reason of the end that is printed next.
   */
  readonly settle: (told?: string) => void;
  readonly setFooter: (footer: Footer | undefined) => void;
  readonly redraw: () => void;
  /** Leaves the terminal to another program until the returned function is called. */
  readonly hold: () => () => void;
  /** The part of the model's context that the last request took, such as `context 6%`; undefined before the first. */
  readonly context: () => string | undefined;
  /** True if the end of a result is the last message on the screen: the rest of it is an answer that it continues. */
  readonly hasShown: (result: string) => boolean;
  /** Settles, then restores the terminal. */
  readonly close: (told?: string) => void;
}

const TICK_MS = 120;
const MIN_DRAW_MS = 40;

/** Returns a view that is not drawn yet. */
export function createLiveView(options: LiveViewOptions): LiveView {
  return new View(options);
}

class View implements LiveView {
  readonly #options: LiveViewOptions;
  readonly #area: ReturnType<typeof createLiveArea>;
  readonly #stopTicking: () => void;
  #blocks: Block[] = [];
  readonly #calls = new Map<string, CallBlock>();
  readonly #children = new Map<string, CallBlock>();
  #meters: Meters;
  #isRunning = false;
  #footer: Footer | undefined;
  #lastKind: Block['kind'] | undefined;
  /** Text of the current message that has arrived in pieces. */
  #streamed = '';
  #shown = '';
  /** A message that is the answer unless another turn begins. */
  #held: string | undefined;
  #refusedBy: string | undefined;
  readonly #retry = new RetryWait();
  /** The last failure of a model call. */
  #problem = '';
  #drawnAt = Number.NEGATIVE_INFINITY;
  #drawMs = 0;

  constructor(options: LiveViewOptions) {
    this.#options = options;
    this.#area = createLiveArea(options.sink);
    this.#meters = new Meters(options.io.monotonic(), options.countsFromRun === true);
    this.#stopTicking = options.io.repeat(TICK_MS, () => {
      if (this.#isRunning) this.#draw();
    });
  }

  readonly event = (event: LogEvent | UnknownEvent): void => {
    if (event.event_type.startsWith('child.')) this.#childEvent(event as UnknownEvent);
    else {
      this.#isRunning = true;
      this.#meters.update(event, this.#now());
      this.#own(event);
    }
    this.#flush();
  };

  readonly print = (lines: readonly string[]): void => {
    this.#area.print(lines);
  };

  readonly settle = (told = ''): void => {
    this.#endMessage();
    this.#release(told);
    for (const block of this.#blocks) if (block instanceof CallBlock) block.end(this.#now());
    this.#isRunning = false;
    this.#retry.reset();
    this.#lastKind = undefined;
    this.#held = undefined;
    this.#calls.clear();
    this.#children.clear();
    this.#flush();
    this.#draw();
  };

  readonly setFooter = (footer: Footer | undefined): void => {
    this.#footer = footer;
    this.#draw();
  };

  readonly redraw = (): void => {
    this.#draw();
  };

  readonly hold = (): (() => void) => this.#area.hold();

  readonly context = (): string | undefined => this.#meters.context();

  readonly hasShown = (result: string): boolean => {
    const last = this.#shown.trim();
    return last === '' ? result.trim() === '' : result.trim().endsWith(last);
  };

  readonly close = (told?: string): void => {
    this.#stopTicking();
    this.settle(told);
    this.#area.close();
  };

  #now(): number {
    return this.#options.io.monotonic();
  }

  get #style(): BlockStyle {
    const { sink, colors, isVerbose = false } = this.#options;
    const isBusy = this.#blocks.some((block) => block instanceof CallBlock && block.isRunning);
    return { colors, columns: sink.columns, now: this.#now(), isVerbose, isBusy };
  }

  #own(event: LogEvent | UnknownEvent): void {
    const isAnswer = payloadOf(event, 'message')?.message.role === 'assistant';
    this.#noteRetry(event);
    if (isAnswer || CONTINUES.has(event.event_type)) this.#release('');
    const text = payloadOf(event, 'token_delta')?.text;
    if (text !== undefined) {
      this.#speak(text);
      return;
    }
    const thought = payloadOf(event, 'thinking_delta')?.text;
    if (thought !== undefined) {
      this.#think(thought);
      return;
    }
    const message = payloadOf(event, 'message')?.message;
    if (message) this.#message(message);
    else this.#progress(event);
  }

  /** A retry tells about the failure before it: by a countdown, and by one line once the waits are over. */
  #noteRetry(event: LogEvent | UnknownEvent): void {
    const problem = payloadOf(event, 'error_classified')?.message;
    if (problem !== undefined) this.#problem = oneLine(problem);
    if (payloadOf(event, 'retry_scheduled')) this.#release(this.#problem);
    const over = this.#retry.take(event, this.#now());
    if (over === undefined) return;
    this.#add(lineBlock([paint('warning', shown`  ! ${over}`, this.#options.colors)]));
  }

  #progress(event: LogEvent | UnknownEvent): void {
    this.#callEvent(event);
    const hook = payloadOf(event, 'hook_fired');
    if (hook && REFUSALS.has(hook.outcome)) this.#refusedBy = hook.id;
    const settled = payloadOf(event, 'tool_settled');
    if (settled) {
      this.#calls.get(settled.call_id)?.settle(settled, this.#refusedBy);
      this.#refusedBy = undefined;
    }
    const child = payloadOf(event, 'child_thread_started');
    if (child) this.#startChild(child.child_thread_id, child.directive);
    const ended = payloadOf(event, 'child_thread_finished');
    if (ended) {
      this.#meters.updateChild(ended.child_thread_id, ended.spend);
      this.#children.get(ended.child_thread_id)?.endChild(ended.status, ended.spend, this.#now());
    }
    if (payloadOf(event, 'turn_started')) this.#releaseHeld();
    this.#delivered(event);
    this.#header(event);
    if (!SHOWN_BY_BLOCKS.has(event.event_type)) this.#line(event);
    if (this.#options.isVerbose === true) this.#details(event);
  }

  /** Shows a message of a person as soon as the thread has it. */
  #delivered(event: LogEvent | UnknownEvent): void {
    const text = deliveredText(event);
    if (text === undefined) return;
    this.#endMessage();
    this.#add(lineBlock(['', ...echoLines(text, this.#style, 'delivered'), '']));
  }

  #callEvent(event: LogEvent | UnknownEvent): void {
    const started = payloadOf(event, 'tool_call_start');
    if (started) this.#startCall(started);
    const asked = payloadOf(event, 'approval_requested')?.request.call_id;
    if (asked !== undefined) this.#calls.get(asked)?.wait();
    const piece = payloadOf(event, 'tool_call_progress');
    if (piece) this.#calls.get(piece.call_id)?.progress(piece.text);
  }

  #header(event: LogEvent | UnknownEvent): void {
    const started = payloadOf(event, 'thread_started') ?? payloadOf(event, 'run_started');
    if (!started || this.#options.hasHeader === false) return;
    const directive = payloadOf(event, 'thread_started')?.directive;
    const line = headerLine(
      { ...started, directive, threadId: event.thread_id },
      this.#options.colors,
    );
    this.#add(lineBlock([line, '']));
  }

  #line(event: LogEvent | UnknownEvent): void {
    const isTold = TOLD_OTHERWISE.has(event.event_type) && this.#options.isVerbose !== true;
    const line = isTold ? undefined : runLine(event);
    if (line === undefined) return;
    this.#endMessage();
    const mark = line.tone === 'plain' ? '·' : '!';
    const { colors } = this.#options;
    const text = paint(line.tone, shown`  ${mark} ${line.text}`, colors);
    const { reason } = line;
    if (reason !== undefined) return this.#add(new HeldLine(reason, text));
    const more = wordedLines(event).map((one) => paint(line.tone, shown`    ${one}`, colors));
    this.#add(lineBlock([text, ...more]));
  }

  #details(event: LogEvent | UnknownEvent): void {
    const account = accountOf(event);
    if (!account?.readers.includes('verbose')) return;
    this.#endMessage();
    const { colors, sink } = this.#options;
    const [first = '', ...rest] = wrapText(
      oneLine(`${account.lead}${lineOf(account)}`),
      Math.max(8, sink.columns - 5),
    );
    const lines = [`  · ${first}`, ...rest.map((line) => `    ${line}`)];
    this.#add(lineBlock(lines.map((line) => colors.dim(line))));
  }

  #speak(text: string): void {
    this.#endThought();
    this.#streamed += text;
    if (this.#options.words === 'between') return;
    this.#textBlock().push(text);
  }

  #textBlock(): TextBlock {
    const last = this.#blocks.at(-1);
    if (last instanceof TextBlock && !last.isDone) return last;
    const block = new TextBlock();
    this.#add(block);
    return block;
  }

  #think(text: string): void {
    const last = this.#blocks.at(-1);
    if (last instanceof ThoughtBlock && !last.isDone) {
      last.push(text);
      return;
    }
    this.#endMessage();
    const block = new ThoughtBlock(this.#now());
    block.push(text);
    this.#add(block);
  }

  #endThought(): void {
    for (const block of this.#blocks) if (block instanceof ThoughtBlock) block.end(this.#now());
  }

  /** Makes final what waited for the end of the run. */
  #release(told: string): void {
    for (const block of this.#blocks) if (isHeld(block)) block.release(told);
  }

  /** Ends the text that has arrived in pieces. */
  #endMessage(): void {
    this.#endThought();
    for (const block of this.#blocks) if (block instanceof TextBlock) block.isDone = true;
    this.#streamed = '';
  }

  #message(message: Message): void {
    if (message.role === 'tool_result') this.#calls.get(message.call_id)?.answer(message);
    if (message.role === 'assistant') this.#answer(message);
  }

  #answer(message: AssistantMessage): void {
    const text = textOf(message.content);
    const calls = toolCallsOf(message);
    if (this.#options.words === 'between') {
      this.#releaseHeld();
      if (calls.length === 0) this.#held = text;
      else this.#whole(text);
    } else if (text.startsWith(this.#streamed)) this.#whole(text.slice(this.#streamed.length));
    this.#endMessage();
    if (this.#held === undefined && text.trim() !== '') this.#shown = text;
    for (const call of calls) {
      const block = new CallBlock(call, this.#now());
      this.#calls.set(call.call_id, block);
      this.#add(block);
    }
  }

  #whole(text: string): void {
    if (text.trim() !== '') this.#textBlock().push(text);
  }

  #releaseHeld(): void {
    const text = this.#held ?? '';
    this.#held = undefined;
    if (text === '') return;
    this.#whole(text);
    this.#endMessage();
  }

  #startCall(call: { call_id: string; tool: string; name: string; input: JsonObject }): void {
    const { call_id: id, tool, name, input } = call;
    let block = this.#calls.get(id);
    if (!block) {
      block = new CallBlock({ name, input }, this.#now());
      this.#calls.set(id, block);
      this.#add(block);
    }
    block.start(call, this.#now());
    const { path } = input;
    if (toolName(tool) === 'write' && typeof path === 'string') {
      block.before = this.#options.readFile?.(path);
    }
  }

  #startChild(threadId: string, directive: string): void {
    const child = { threadId, activity: 'starting', turns: 0 };
    const waiting = [...this.#calls.values()].find(
      (call) => call.directive === directive && !call.child && !call.isDone,
    );
    const block = waiting ?? childBlock(directive, child, this.#now());
    block.child = child;
    if (!waiting) this.#add(block);
    this.#children.set(threadId, block);
  }

  #childEvent(event: UnknownEvent): void {
    const own = { ...event, event_type: event.event_type.slice('child.'.length) };
    const cost = payloadOf(own, 'cost');
    if (cost) this.#meters.updateChild(event.thread_id, cost.total.spend);
    const started = payloadOf(own, 'thread_started');
    if (started) this.#nameChild(event.thread_id, started.directive, started.inputs);
    const child = this.#children.get(event.thread_id)?.child;
    const activity = ACTIVITIES.has(own.event_type) ? accountOf(own)?.text : undefined;
    if (child && activity !== undefined) child.activity = toolName(activity);
  }

  /** Children of one directive that start together belong to the calls with their inputs. */
  #nameChild(threadId: string, directive: string, inputs: JsonObject): void {
    const block = this.#children.get(threadId);
    if (!block) return;
    const other = [...this.#calls.values()].find(
      (call) => call.directive === directive && !call.isDone && call.passes(inputs),
    );
    if (!other) block.name(directive, inputs);
    if (!other || other === block || block.passes(inputs)) return;
    [block.child, other.child] = [other.child, block.child];
    for (const call of [block, other]) {
      if (call.child) this.#children.set(call.child.threadId, call);
    }
  }

  #add(block: Block): void {
    const needsGap =
      block.kind === 'text' && this.#lastKind !== undefined && this.#lastKind !== 'line';
    if (needsGap) this.#blocks.push(lineBlock(['']));
    this.#blocks.push(block);
    this.#lastKind = block.kind;
  }

  /** Prints what has become final. Draws the rest if the last drawing is some time ago. */
  #flush(): void {
    const style = this.#style;
    const lines: string[] = [];
    for (let first = this.#blocks[0]; first; first = this.#blocks[0]) {
      lines.push(...first.take(style));
      if (!first.isDone) break;
      this.#blocks.shift();
    }
    if (lines.length > 0) this.#draw(lines);
    else if (this.#now() - this.#drawnAt >= Math.max(MIN_DRAW_MS, 4 * this.#drawMs)) this.#draw();
  }

  #status(now: number, colors: Colors): string {
    const wait = this.#retry.line(now);
    return wait === undefined ? colors.dim(this.#meters.line(now)) : colors.yellow(wait);
  }

  #draw(printed: readonly string[] = []): void {
    const start = this.#now();
    const style = this.#style;
    const live = this.#blocks.flatMap((block) => block.rest(style));
    const status = this.#isRunning ? [this.#status(start, style.colors)] : [];
    const { lines = [], cursor } = this.#footer ?? {};
    const above = [...live, ...(status.length > 0 ? [''] : []), ...status];
    const place = cursor && { row: cursor.row + above.length, column: cursor.column };
    this.#area.update(printed, [...above, ...lines], place);
    this.#drawnAt = start;
    this.#drawMs = this.#now() - start;
  }
}

function isHeld(block: Block): block is Held {
  return 'release' in block;
}

/** Events after which the run continues, so that what went wrong before them is not its end. */
const CONTINUES: ReadonlySet<string> = new Set([
  'token_delta',
  'thinking_delta',
  'tool_call_start',
  'model_change',
]);

/** Events that the end of the run or the countdown reports. */
const TOLD_OTHERWISE: ReadonlySet<string> = new Set(['limit_reached', 'retry_scheduled']);

const REFUSALS: ReadonlySet<string> = new Set(['fail', 'abort', 'suspend']);

/** Events that tell what a child does from then on. */
const ACTIVITIES: ReadonlySet<string> = new Set([
  'turn_started',
  'request_started',
  'tool_call_start',
  'retry_scheduled',
]);

/** Events without a separate line. */
const SHOWN_BY_BLOCKS: ReadonlySet<string> = new Set([
  'thread_started',
  'tool_call_start',
  'tool_settled',
  'child_thread_started',
  'child_thread_finished',
]);

/** Returns the first line of a run: its directive, model, limits and thread. */
function headerLine(
  run: {
    readonly directive: string | undefined;
    readonly model: string;
    readonly limits: JsonObject;
    readonly threadId: string;
  },
  colors: Colors,
): string {
  const directive = run.directive?.replace(/^rye\/core\//, '');
  const parts = [
    ...(directive === undefined ? [] : [colors.bold(oneLine(directive))]),
    oneLine(shortModel(run.model)),
    ...limitText(run.limits),
    oneLine(run.threadId),
  ];
  return parts.join(colors.dim(' · '));
}

function limitText({ turns, spend }: JsonObject): readonly string[] {
  const parts = [
    ...(typeof turns === 'number' ? [count(turns, 'turn')] : []),
    ...(typeof spend === 'number' ? [shortUsd(spend)] : []),
  ];
  return parts.length === 0 ? [] : [`limit ${parts.join(', ')}`];
}
