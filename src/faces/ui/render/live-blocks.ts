import { callLabel, directiveCall } from '../../../kernel/app/api/trees.ts';
import type { EventPayloads } from '../../../kernel/core/events.ts';
import { type JsonObject, jsonEquals } from '../../../kernel/core/json.ts';
import { inputsLabel } from '../../../kernel/core/label.ts';
import { type DiffLine, diffOf, replacementsIn } from '../../../kernel/core/line-diff.ts';
import {
  type ToolCallBlock,
  type ToolResultMessage,
  textOf,
} from '../../../kernel/core/message.ts';
import { formatSeconds, formatUsd } from '../../../kernel/core/usage.ts';
import { type Colors, neutralize, wrapText } from '../terminal-text.ts';
import { oneLine, type Shown, visible } from '../visible.ts';
import { failureReason, isReturn, outcomeWords, toolName } from './call-line.ts';
import { MarkdownStream } from './markdown-stream.ts';
import { layRow } from './row.ts';

function changesOf(before: string, after: string): readonly DiffLine[] {
  const lines = diffOf(before, after);
  return lines.some(({ kind }) => kind === 'add' || kind === 'remove') ? lines : [];
}

/** Returns the changes of a call that edits or writes a file, as far as its input tells them. */
function callDiff(tool: string, input: JsonObject, before = ''): readonly DiffLine[] {
  const { content: after } = input;
  if (tool === 'write') return typeof after === 'string' ? changesOf(before, after) : [];
  if (tool !== 'edit' && tool !== 'multi_edit') return [];
  return replacementsIn(input).flatMap((one) => changesOf(one.before, one.after));
}

const SIGNS = { add: '+', remove: '-', same: ' ', gap: '…' } as const;

/** Paints at most `max` lines of a diff, then the number of the others. */
function paintDiff(lines: readonly DiffLine[], max: number, colors: Colors): readonly string[] {
  const shown = lines.length > max + 1 ? lines.slice(0, max) : lines;
  const rest = lines.length - shown.length;
  return [
    ...shown.map(({ kind, text }) => {
      const line = `${SIGNS[kind]} ${visible(text).replaceAll('\t', '    ')}`;
      if (kind === 'add') return colors.green(line);
      return kind === 'remove' ? colors.red(line) : colors.dim(line);
    }),
    ...(rest === 0 ? [] : [colors.dim(`… ${rest} more lines`)]),
  ];
}

export interface BlockStyle {
  readonly colors: Colors;
  readonly columns: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: number;
  readonly isVerbose: boolean;
  /** True while a call runs, for which the others may have to wait. */
  readonly isBusy: boolean;
}

/** A part of the view. It is printed for good as soon as it and all parts before it are final. */
export interface Block {
  readonly kind: 'text' | 'line' | 'call' | 'thought';
  /** True if nothing of it can change any more. */
  readonly isDone: boolean;
  /** Returns the lines that have become final and were not returned before. */
  take(style: BlockStyle): readonly string[];
  /** Returns the lines that may still change. */
  rest(style: BlockStyle): readonly string[];
}

const INDENT = '  ';

/** Text of the model, rendered block by block. */
export class TextBlock implements Block {
  readonly kind = 'text';
  readonly #stream = new MarkdownStream();
  isDone = false;

  push(text: string): void {
    this.#stream.push(text);
  }

  take(style: BlockStyle): readonly string[] {
    const markdown = inner(style);
    return indented(this.isDone ? this.#stream.end(markdown) : this.#stream.take(markdown));
  }

  rest(style: BlockStyle): readonly string[] {
    return this.isDone ? [] : indented(this.#stream.pending(inner(style)));
  }
}

function inner({ colors, columns }: BlockStyle): { colors: Colors; columns: number } {
  return { colors, columns: Math.max(1, columns - INDENT.length - 1) };
}

function indented(lines: readonly string[]): readonly string[] {
  return lines.map((line) => (line === '' ? '' : `${INDENT}${line}`));
}

/** A part whose reason the end of the run may repeat. It stays open until that is known, so that the reason is shown once. */
export interface Held extends Block {
  /** Makes it final. What `told`, the reason of the end, contains is not shown. */
  release(told: string): void;
}

/** A line that is shown unless the reason of the end contains its reason. */
export class HeldLine implements Held {
  readonly kind = 'line';
  readonly #reason: Shown;
  readonly #line: string;
  isDone = false;
  #isTold = false;

  constructor(reason: Shown, line: string) {
    this.#reason = reason;
    this.#line = line;
  }

  release(told: string): void {
    this.isDone = true;
    // what a step of a shipped directive told is the end of the reason
    this.#isTold = told.includes(this.#reason) || (told !== '' && this.#reason.endsWith(told));
  }

  take(): readonly string[] {
    return this.isDone && !this.#isTold ? [this.#line] : [];
  }

  rest(): readonly string[] {
    return this.take();
  }
}

/** Lines that are final from the start. */
export function lineBlock(lines: readonly string[]): Block {
  return { kind: 'line', isDone: true, take: () => lines, rest: () => [] };
}

const THOUGHT_LINES = 5;

/** Thinking of the model: folded to one line, or the whole text with --verbose. */
export class ThoughtBlock implements Block {
  readonly kind = 'thought';
  #text = '';
  readonly #startedAt: number;
  #endedAt: number | undefined;

  constructor(now: number) {
    this.#startedAt = now;
  }

  get isDone(): boolean {
    return this.#endedAt !== undefined;
  }

  push(text: string): void {
    this.#text += text;
  }

  end(now: number): void {
    this.#endedAt ??= now;
  }

  take(style: BlockStyle): readonly string[] {
    if (!this.isDone) return [];
    const all = style.isVerbose ? this.#lines(style) : [];
    return [this.#title(style), ...all];
  }

  rest(style: BlockStyle): readonly string[] {
    if (this.isDone) return [];
    return [this.#title(style), ...this.#lines(style).slice(-THOUGHT_LINES)];
  }

  #title({ colors, now, isVerbose }: BlockStyle): string {
    const took = formatSeconds(((this.#endedAt ?? now) - this.#startedAt) / 1000);
    const mark = isVerbose || !this.isDone ? '▾' : '▸';
    return colors.dim(`${INDENT}${mark} ${this.isDone ? `thought for ${took}` : 'thinking'}`);
  }

  #lines({ colors, columns }: BlockStyle): readonly string[] {
    const text = visible(this.#text, { isProse: true }).replaceAll('\t', ' ').trim();
    return wrapText(text, columns - 6).map((line) => colors.dim(colors.italic(`    ${line}`)));
  }
}

const TAIL_LINES = 5;
const TAIL_CHARACTERS = 4096;
const DIFF_LINES = 12;
const VERBOSE_DIFF_LINES = 200;

type Settled = EventPayloads['tool_settled'];

const MARKS = { queued: '○', open: '◐', waiting: '‖', good: '●', bad: '✗' } as const;
const CHILD_MARKS = { ...MARKS, good: '✓' } as const;

/** A child thread as its parent's view knows it. */
interface Child {
  readonly threadId: string;
  activity: string;
  turns: number;
  status?: string;
  spend?: number;
}

/** A call of the model, or a child thread: one line, with the tail of its output while it runs. */
export class CallBlock implements Held {
  readonly kind = 'call';
  #startedAt: number;
  #name: string;
  #input: JsonObject;
  #isStarted = false;
  #isHeld = false;
  #told = '';
  #label: string;
  #tail = '';
  #settled: Settled | undefined;
  #result: ToolResultMessage | undefined;
  #refusedBy: string | undefined;
  #seconds: number | undefined;
  #hasEnded = false;
  #isWaiting = false;
  /** The content of the file that the call writes, before it. */
  before: string | undefined;
  child: Child | undefined;

  constructor({ name, input }: Pick<ToolCallBlock, 'name' | 'input'>, now: number) {
    this.#name = name;
    this.#input = input;
    this.#label = oneLine(callLabel(name, input));
    this.#startedAt = now;
  }

  /** The directive that the call runs. */
  get directive(): string | undefined {
    return directiveCall(this.#name, this.#input)?.directive;
  }

  /** True if the call starts a child with these inputs, apart from defaults. */
  passes(inputs: JsonObject): boolean {
    const given = Object.entries(directiveCall(this.#name, this.#input)?.inputs ?? {});
    const isGiven = this.directive !== undefined;
    return (
      isGiven && given.every(([name, value]) => jsonEquals(inputs[name] ?? null, value ?? null))
    );
  }

  get isDone(): boolean {
    return (this.#hasEnded || this.#isAnswered) && !this.#isHeld;
  }

  get #isAnswered(): boolean {
    return this.#settled !== undefined && this.#result !== undefined;
  }

  /** True from the start of the call to its end. */
  get isRunning(): boolean {
    return this.#isStarted && this.#settled === undefined && !this.#hasEnded;
  }

  /** The call of a tool begins: its ID is known, and its time counts from now. */
  start({ tool, input }: { readonly tool: string; readonly input: JsonObject }, now: number): void {
    // a person may have given another input
    if (toolName(tool) === toolName(this.#name)) this.#input = input;
    this.identify(tool);
    if (!this.#isStarted) this.#startedAt = now;
    this.#isStarted = true;
    this.#isWaiting = false;
  }

  /** Replaces the wire name, which the model uses, by the ID of the tool. */
  identify(tool: string): void {
    if (isReturn(this.#name)) return;
    this.#name = tool;
    if (!this.child) this.#label = oneLine(callLabel(tool, this.#input));
  }

  name(directive: string, inputs: JsonObject): void {
    this.#label = oneLine(inputsLabel(directive, inputs));
  }

  progress(text: string): void {
    this.#tail = (this.#tail + text).slice(-TAIL_CHARACTERS);
  }

  settle(settled: Settled, refusedBy: string | undefined): void {
    this.#settled = settled;
    this.#isHeld = !this.#succeeded();
    if (settled.outcome !== 'unknown') this.identify(settled.tool);
    this.#refusedBy = settled.outcome === 'blocked' ? refusedBy : undefined;
  }

  release(told: string): void {
    this.#isHeld = false;
    this.#told = told;
  }

  /** The call waits for the decision of a person; it starts afterwards, or is refused. */
  wait(): void {
    this.#isWaiting = true;
  }

  answer(result: ToolResultMessage): void {
    this.#result = result;
  }

  endChild(status: string, spend: number, now: number): void {
    if (!this.child) return;
    this.child.status = status;
    this.child.spend = spend;
    this.#seconds = (now - this.#startedAt) / 1000;
    if (this.directive === undefined) this.#hasEnded = true;
  }

  /** Ends a call whose result never came. */
  end(now: number): void {
    if (this.isDone) return;
    this.#seconds ??= (now - this.#startedAt) / 1000;
    this.#hasEnded = true;
  }

  take(style: BlockStyle): readonly string[] {
    if (!this.isDone || this.#isHidden) return [];
    return [this.#line(style), ...this.#details(style)];
  }

  /** The outputs are shown at the end of the run; a return is only shown if it fails. */
  get #isHidden(): boolean {
    return isReturn(this.#name) && (this.#settled === undefined || this.#succeeded());
  }

  rest(style: BlockStyle): readonly string[] {
    if (this.#isHidden) return [];
    if (this.isDone || this.#isAnswered) return [this.#line(style), ...this.#details(style)];
    if (this.#settled !== undefined) return [this.#line(style)];
    return [this.#line(style), ...this.#tailLines(style)];
  }

  #words({ isBusy }: BlockStyle): string {
    const { child } = this;
    if (child) return child.status ?? (this.#hasEnded ? 'running' : child.activity);
    if (this.#settled === undefined && this.#isWaiting) return 'waits for you';
    if (this.#settled === undefined && this.#hasEnded) return 'no result';
    if (this.#settled === undefined) return isBusy && !this.#isStarted ? 'queued' : '';
    return outcomeWords(this.#name, {
      outcome: this.#settled.outcome,
      code: this.#settled.code,
      data: this.#result?.data,
      text: this.#result === undefined ? '' : textOf(this.#result.content),
    });
  }

  #line(style: BlockStyle): string {
    const { colors, columns, now } = style;
    const state = this.#state();
    const seconds = this.#duration(now);
    const spend = this.child?.spend;
    const marks = this.child ? CHILD_MARKS : MARKS;
    const isOver = state === 'good' || state === 'bad';
    const facts = [
      ...(isOver || (seconds >= 1 && state !== 'queued') ? [formatSeconds(seconds)] : []),
      ...(spend === undefined ? [] : [formatUsd(spend)]),
    ];
    const { cyan, yellow, green, red } = colors;
    const paints = { queued: colors.dim, open: cyan, waiting: yellow, good: green, bad: red };
    return layRow(
      {
        mark: marks[state],
        label: this.#label,
        words: this.#words(style),
        facts,
        paintMark: paints[state],
        paintWords: state === 'bad' ? colors.red : colors.dim,
      },
      columns,
      colors,
    );
  }

  #state(): keyof typeof MARKS {
    const status = this.child?.status;
    if (status !== undefined) return status === 'completed' ? 'good' : 'bad';
    if (this.#settled === undefined && this.#isWaiting) return 'waiting';
    if (this.#settled === undefined && this.#hasEnded && !this.child) return 'bad';
    if (this.#settled === undefined) return this.#isStarted || this.child ? 'open' : 'queued';
    return this.#succeeded() ? 'good' : 'bad';
  }

  #duration(now: number): number {
    if (this.#seconds !== undefined) return this.#seconds;
    if (this.#settled !== undefined) return this.#settled.duration_ms / 1000;
    return Math.floor((now - this.#startedAt) / 1000);
  }

  #succeeded(): boolean {
    const outcome = this.#settled?.outcome;
    return outcome === 'ok' || outcome === 'substituted';
  }

  /** The reason of a failure, the end of a command's output, or the change of a file. */
  #details(style: BlockStyle): readonly string[] {
    const { colors, columns, isVerbose } = style;
    if (this.#settled === undefined || (this.child && this.#succeeded())) return [];
    const words = this.#words(style);
    if (this.#succeeded()) {
      const diff = callDiff(toolName(this.#name), this.#input, this.before);
      const lines = paintDiff(diff, isVerbose ? VERBOSE_DIFF_LINES : DIFF_LINES, colors);
      return lines.map((line) => `    ${line}`);
    }
    if (words.startsWith('exit ') || words === 'timed out') return this.#tailLines(style);
    const text = this.#result === undefined ? '' : textOf(this.#result.content);
    const { outcome, reason } = this.#settled;
    const why = failureReason(words, { outcome, reason, text });
    if (why === undefined || this.#told.includes(why)) return [];
    const room = Math.max(8, columns - 6);
    const lines = wrapText(namingHook(this.#refusedBy, why), room);
    return lines.map((line) => colors.red(`    ${line}`));
  }

  #tailLines({ colors }: BlockStyle): readonly string[] {
    // a carriage return starts the line again
    const text = this.#tail.replaceAll('\r\n', '\n').replaceAll(/[^\n]*\r/g, '');
    return neutralize(text)
      .split('\n')
      .map(oneLine)
      .filter((line) => line !== '')
      .slice(-TAIL_LINES)
      .map((line) => colors.dim(`    │ ${line}`));
  }
}

/** Puts the hook that refused before its reason, which may name it already. */
function namingHook(hook: string | undefined, why: string): string {
  if (hook === undefined || why.startsWith(`hook ${hook} `) || why.startsWith(`hook ${hook}:`)) {
    return why;
  }
  const suffix = ` (hook ${hook})`;
  return `hook ${hook}: ${why.endsWith(suffix) ? why.slice(0, -suffix.length) : why}`;
}

/** Makes the block of a child thread that no call of the view started. */
export function childBlock(directive: string, child: Child, now: number): CallBlock {
  const block = new CallBlock({ name: directive, input: {} }, now);
  block.name(directive, {});
  block.child = child;
  return block;
}
