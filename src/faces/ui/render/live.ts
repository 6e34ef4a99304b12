import { readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { messageOf } from '../../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  toText,
} from '../../../kernel/core/json.ts';
import type { ThreadResult } from '../../../kernel/core/thread.ts';
import { formatTable, printLines, wrapped } from '../../cli/output.ts';
import {
  type Editor,
  folded,
  labelled,
  openEditor,
  press,
  unfolded,
  withDraft,
} from '../chat/editor.ts';
import { drawField } from '../chat/input-field.ts';
import { createApprovalDialog } from '../dialogs/approval-dialog.ts';
import type { Io, Sink } from '../io.ts';
import type { Key, Keyboard } from '../keyboard.ts';
import { type Colors, truncate } from '../terminal-text.ts';
import { linesOf, oneLine, replaced, type Shown, shown, trimmed, visible } from '../visible.ts';
import { echoLines, type LineStyle } from './echo.ts';
import { createLiveView, type LiveView } from './live-view.ts';
import { renderMarkdown } from './markdown.ts';
import { outcomeLines } from './outcome.ts';
import { payloadOf } from './progress-line.ts';
import { printFailure, printResult, type Renderer, type Steering } from './text.ts';

interface Screen {
  readonly io: Pick<Io, 'openKeyboard'>;
  readonly view: LiveView;
  readonly sink: Sink;
  readonly colors: Colors;
}

const HINT = 'a message to the model; Enter sends, Ctrl-C detaches';

/** An input field below a thread that another process runs: a message that is typed there steers it. */
class SteerField {
  readonly #screen: Screen;
  readonly #steering: Steering;
  #editor: Editor = { ...openEditor([]), pastes: new Map() };
  #keyboard: Keyboard | undefined;
  /** Sent, and not yet seen by the model. */
  #queued: readonly { readonly id: string; readonly text: string; readonly outlook: string }[] = [];
  #isClosed = false;

  private constructor(screen: Screen, steering: Steering) {
    this.#screen = screen;
    this.#steering = steering;
  }

  static async open(screen: Screen, steering: Steering): Promise<SteerField> {
    const field = new SteerField(screen, steering);
    field.#keyboard = await screen.io.openKeyboard({
      onKey: field.#onKey,
      onRedraw: field.#draw,
      onEnd: steering.detach,
    });
    field.#draw();
    return field;
  }

  /** Forgets a message that the model has got: the output shows it. */
  readonly event = (event: LogEvent | UnknownEvent): void => {
    const id = payloadOf(event, 'custom_message')?.details?.['delivery_id'];
    const left = this.#queued.filter((one) => one.id !== id);
    if (left.length === this.#queued.length) return;
    this.#queued = left;
    this.#draw();
  };

  /** Ends the field. What was typed and not sent stays on the screen. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const { view } = this.#screen;
    view.setFooter(undefined);
    const unsent = this.#editor.text.trim() === '' ? '' : labelled(this.#editor, this.#editor.text);
    const left = [
      ...this.#queued.flatMap(({ text }) => echoLines(folded(text), this.#style, 'queued')),
      ...(unsent === '' ? [] : echoLines(unsent, this.#style, 'not sent')),
    ];
    if (left.length > 0) view.print(['', ...left]);
    this.#keyboard?.close();
  }

  get #style(): LineStyle {
    const { colors, sink } = this.#screen;
    return { colors, columns: sink.columns };
  }

  readonly #onKey = (key: Key): void => {
    const { editor, effect } = press(this.#editor, key);
    this.#editor = editor;
    if (effect?.kind === 'interrupt' || effect?.kind === 'end') {
      this.#steering.detach();
      return;
    }
    if (effect?.kind === 'suspend') {
      this.#screen.view.setFooter(undefined);
      this.#keyboard?.suspend();
      return;
    }
    if (effect?.kind === 'send' && effect.text !== '') void this.#send(effect.text);
    this.#draw();
  };

  async #send(typed: string): Promise<void> {
    const text = unfolded(this.#editor, typed);
    try {
      const { id, outlook } = await this.#steering.send(text);
      this.#queued = [...this.#queued, { id, text, outlook }];
    } catch (error) {
      // the text comes back: it was not sent
      if (this.#editor.text === '') this.#editor = withDraft(this.#editor, text);
      const { view, colors } = this.#screen;
      view.print([colors.red(oneLine(`not sent: ${messageOf(error)}`))]);
    }
    this.#draw();
  }

  readonly #draw = (): void => {
    if (this.#isClosed) return;
    const { view, sink, colors } = this.#screen;
    const { columns } = sink;
    const rows = Math.max(1, Math.floor(sink.rows / 3));
    const { lines, cursor } = drawField(this.#editor, { columns, rows, colors, hint: HINT });
    const above = [
      '─'.repeat(Math.max(1, columns - 1)),
      ...this.#queued.map(({ text, outlook }) =>
        truncate(`  queued: ${oneLine(folded(text))} (${oneLine(outlook)})`, columns - 1),
      ),
    ].map((line) => colors.dim(line));
    const place = { row: above.length + cursor.row, column: cursor.column };
    view.setFooter({ lines: [...above, ...lines], cursor: place });
  };
}

const INDENT = '  ';

/**
 * Formats the outputs of a run for a terminal: a value after its name, a text of several lines and a list of objects
 * below it. Pipes get each output on one line instead.
 */
function outputLines(outputs: JsonObject, sink: Sink): readonly Shown[] {
  return Object.entries(outputs).flatMap(([name, value]) => outputOf(oneLine(name), value, sink));
}

function outputOf(name: Shown, value: JsonValue | undefined, sink: Sink): readonly Shown[] {
  if (value === undefined) return [shown`${name}:`];
  const table = tableOf(value, { ...sink, columns: sink.columns - INDENT.length });
  if (table !== undefined)
    return [shown`${name}:`, ...table.map((line) => shown`${INDENT}${line}`)];
  const text = trimmed(replaced(visible(toText(value)), /\t/g, () => shown`${INDENT}`));
  const lines = linesOf(text);
  if (lines.length === 1) return wrapped(shown`${name}: ${text}`, sink);
  const below = lines.flatMap((line) => wrapped(shown`${INDENT}${line}`, sink));
  return [shown`${name}:`, ...below];
}

/** Formats a list of objects with a column for each member; undefined for any other value. */
function tableOf(value: JsonValue, sink: Sink): readonly Shown[] | undefined {
  if (!Array.isArray(value) || value.length === 0 || !value.every(isJsonObject)) return undefined;
  const rows = value.map((row) => new Map(cellsOf(row)));
  const names = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  const filled = names.filter((name) => rows.some((row) => (row.get(name) ?? '') !== ''));
  if (filled.length === 0) return undefined;
  return formatTable(
    filled,
    rows.map((row) => filled.map((name) => row.get(name) ?? '')),
    sink,
  );
}

/** Returns the members of an object as text. The members of an object in it have its name before theirs. */
function cellsOf(row: JsonObject): readonly (readonly [name: string, text: string])[] {
  return Object.entries(row).flatMap(([name, value]) => {
    if (isJsonObject(value)) {
      return Object.entries(value).map(
        ([member, inner]) => [`${name}.${member}`, textOf(inner)] as const,
      );
    }
    return [[name, textOf(value)] as const];
  });
}

function textOf(value: JsonValue | undefined): string {
  return value === undefined || value === null ? '' : toText(value);
}

export interface LiveOptions {
  readonly colors: Colors;
  readonly isVerbose: boolean;
  /** The project's folder, for the changes of files; undefined: they are unknown. */
  readonly folder: string | undefined;
  /** False: no header, outcome and cost, because only the answer is asked for. */
  readonly hasFrame: boolean;
}

/**
 * Renders a run for a person at a terminal. The text goes to stdout if that is the terminal too, so that the result is
 * printed once.
 */
export function createLiveRenderer(io: Io, options: LiveOptions): Renderer {
  const { colors, isVerbose, folder, hasFrame } = options;
  const ownsStdout = io.stdout.isTty;
  const sink = ownsStdout ? io.stdout : io.stderr;
  const view = createLiveView({
    io,
    sink,
    colors,
    isVerbose,
    hasHeader: hasFrame,
    words: ownsStdout ? 'all' : 'between',
    readFile: (file) => readSmallFile(folder, file),
  });
  const dialog = io.stdinIsTty ? createApprovalDialog({ io, view, sink, colors }) : undefined;
  let field: SteerField | undefined;
  const close = (told?: string): void => {
    dialog?.close();
    field?.close();
    view.close(told);
  };
  const finish = (result: ThreadResult): void => {
    close(oneLine(result.error?.message ?? ''));
    if (!ownsStdout) printResult(result, io);
    else if (result.outputs) printLines(io, [shown``, ...outputLines(result.outputs, sink)]);
    // that of a failure is the model's last text, which was shown when it came
    else if (result.success && !view.hasShown(result.result)) {
      printMarkdown(result.result, sink, colors);
    }
    if (!result.success || hasFrame || isVerbose) sink.write(shown`\n`);
    printFailure(result, io);
    if (hasFrame || isVerbose || !result.success) {
      const lines = outcomeLines(result, { colors, columns: sink.columns });
      for (const line of lines) sink.write(shown`${line}\n`);
    }
  };
  if (!dialog) return { event: view.event, finish, close };
  const event: Renderer['event'] = (one) => {
    view.event(one);
    dialog.event(one);
    field?.event(one);
  };
  const openField: Renderer['openField'] = async (steering) => {
    field = await SteerField.open({ io, view, sink, colors }, steering);
  };
  return { event, finish, close, attendant: dialog, openField };
}

function printMarkdown(text: string, sink: Sink, colors: Colors): void {
  const lines = renderMarkdown(text, { colors, columns: sink.columns - 1 });
  for (const line of lines) sink.write(shown`${line}\n`);
}

const MAX_BYTES = 256 * 1024;

/** Returns the text of a small file of the project; undefined if it cannot be read. */
function readSmallFile(folder: string | undefined, file: string): string | undefined {
  if (folder === undefined) return undefined;
  try {
    const whole = path.resolve(folder, file);
    const facts = statSync(whole);
    return facts.isFile() && facts.size <= MAX_BYTES ? readFileSync(whole, 'utf8') : undefined;
  } catch {
    return undefined;
  }
}
