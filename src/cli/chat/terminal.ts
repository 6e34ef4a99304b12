import { EXIT, type ExitCode, toRyeError } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { ThreadResult } from '../../core/thread.ts';
import { type Cost, costSince } from '../../core/usage.ts';
import type { Io } from '../io.ts';
import type { Key, Keyboard } from '../keyboard.ts';
import { resultText } from '../output.ts';
import type { LiveView } from '../render/live-view.ts';
import { payloadOf } from '../render/progress-line.ts';
import { neutralize, oneLine, wrapText } from '../terminal-text.ts';
import { act, type ChatDesk, needsIdle } from './actions.ts';
import { echoLines, failureLines, type LineStyle, meterLines } from './chat-lines.ts';
import { DialogSlot } from './dialog-slot.ts';
import { type Editor, type EditorEffect, openEditor, press, withText } from './editor.ts';
import type { ChatHistory } from './history.ts';
import { drawField } from './input-field.ts';
import { messageOfText } from './message-lines.ts';
import { type Slash, slashOf } from './slash.ts';

export interface TerminalChatOptions {
  readonly desk: ChatDesk;
  readonly io: Pick<Io, 'stdout' | 'openKeyboard' | 'env'>;
  readonly view: LiveView;
  readonly history: ChatHistory;
  /** Printed first. */
  readonly intro: readonly string[];
  /** The directive runs before the first message. */
  readonly startsAlone: boolean;
  /** Effect of an empty message: it continues an answer that was cut short, or shows what waits for a decision. */
  readonly next: EmptyMessage;
  /** The cost of the thread so far. */
  readonly spent: Cost | undefined;
  /** Kills the running tools at once. */
  readonly hurry: () => void;
}

export type EmptyMessage = 'nothing' | 'continues' | 'decides';

const IDLE_HINT = 'Ask anything; /help lists the commands';
const RUNNING_HINT = 'Type to steer the answer; Ctrl-C stops it';
const STOPPING_HINT = 'stopping; Ctrl-C again kills running tools';
const LEAVE_HINT = 'press Ctrl-C again to leave';
const NEXT_HINTS: Readonly<Record<EmptyMessage, string>> = {
  nothing: IDLE_HINT,
  continues: 'Ask anything, or press Enter to continue the interrupted answer',
  decides: 'Press Enter to decide about what waits',
};
const TYPING_HINT = 'Tab decides now; Enter sends your message first';
/** Milliseconds for a run that only waits for a decision to become suspended. */
const SUSPEND_MS = 1000;

/**
 * A conversation on a terminal: output scrolls by above, and the input field stays below it. What is typed while an
 * answer is made steers it.
 */
export class TerminalChat {
  readonly #options: TerminalChatOptions;
  #editor: Editor;
  #keyboard: Keyboard | undefined;
  /** Messages to the running answer that it has not got yet, by their delivery. */
  readonly #queued = new Map<string, string>();
  /** The message that is being sent: it is shown as sent once a signature in the log covers it. */
  #sending: string | undefined;
  /** The log has the message that is being sent, but not yet its signature: a crash would move it out of the log. */
  #isLogged = false;
  #work: Promise<void> = Promise.resolve();
  #action: AbortController | undefined;
  /** Commands that wait for the answer. */
  readonly #pending: { readonly slash: Slash; readonly text: string }[] = [];
  #isStopping = false;
  #next: EmptyMessage;
  readonly #slot: DialogSlot;
  #mayLeave = false;
  #spent: Cost | undefined;
  #budget: number | undefined;
  #finish: (exitCode: ExitCode) => void = () => {};

  constructor(options: TerminalChatOptions) {
    this.#options = options;
    this.#editor = openEditor(options.history.read());
    this.#next = options.next;
    const { io, view, desk } = options;
    this.#slot = new DialogSlot({
      env: io.env,
      sink: io.stdout,
      view,
      colors: desk.colors,
      isTyping: () => this.#editor.text !== '',
      keyboard: () => this.#keyboard,
      onChange: () => this.#draw(),
    });
    this.#spent = options.spent;
  }

  /** Holds the conversation until the person leaves. */
  async run(): Promise<ExitCode> {
    const { desk, io, view, intro, startsAlone } = this.#options;
    const finished = new Promise<ExitCode>((resolve) => {
      this.#finish = resolve;
    });
    desk.signal.addEventListener('abort', () => this.#finish(EXIT.cancelled), { once: true });
    if (desk.signal.aborted) this.#finish(EXIT.cancelled);
    view.print(intro);
    this.#keyboard = await io.openKeyboard({
      onKey: this.#onKey,
      onRedraw: () => {
        this.#slot.redraw();
        this.#draw();
      },
      onEnd: () => this.#finish(EXIT.cancelled),
    });
    try {
      if (startsAlone) this.#work = this.#answer(undefined);
      this.#draw();
      const exitCode = await finished;
      await this.#leavePending();
      desk.conversation.interrupt('interrupted because the chat ended');
      this.#action?.abort();
      await this.#work;
      return exitCode;
    } finally {
      view.setFooter(undefined);
      view.close();
      this.#keyboard.close();
    }
  }

  /** A run that only waits for a decision is suspended, not cancelled, so that the decision can be made later. */
  async #leavePending(): Promise<void> {
    if (this.#slot.footer === undefined) return;
    this.#slot.close();
    await Promise.race([this.#work, new Promise((resolve) => setTimeout(resolve, SUSPEND_MS))]);
  }

  /** Shows an event of a run. */
  readonly event = (event: LogEvent | UnknownEvent): void => {
    this.#budget = budgetOf(event) ?? this.#budget;
    this.#isLogged ||= isAccepted(event);
    if (this.#sending !== undefined && this.#isLogged && event.event_type === 'checkpoint') {
      this.#showSent(this.#sending);
    }
    const id = payloadOf(event, 'custom_message')?.details?.['delivery_id'];
    const delivered = typeof id === 'string' ? this.#queued.get(id) : undefined;
    if (typeof id === 'string' && delivered !== undefined) {
      this.#queued.delete(id);
      const { view } = this.#options;
      view.print(['', ...echoLines(delivered, this.#style, 'delivered'), '']);
      this.#draw();
    }
    this.#options.view.event(event);
    this.#slot.event(event);
  };

  readonly #onKey = (key: Key): void => {
    if (this.#slot.press(key)) {
      this.#draw();
      return;
    }
    const { editor, effect } = press(this.#editor, key);
    this.#editor = editor;
    if (effect?.kind !== 'interrupt') this.#mayLeave = false;
    if (effect !== undefined) this.#apply(effect);
    this.#slot.fieldChanged();
    if (effect?.kind !== 'suspend') this.#draw();
  };

  #apply(effect: EditorEffect): void {
    switch (effect.kind) {
      case 'send':
        this.#send(effect.text);
        break;
      case 'interrupt':
        this.#interrupt();
        break;
      case 'escape':
        if (this.#isBusy) this.#interrupt();
        break;
      case 'end':
        this.#finish(EXIT.ok);
        break;
      case 'suspend':
        this.#options.view.setFooter(undefined);
        this.#keyboard?.suspend();
        break;
    }
  }

  get #style(): LineStyle {
    const { desk, io } = this.#options;
    return { colors: desk.colors, columns: io.stdout.columns };
  }

  #warn(text: string): void {
    const { colors, columns } = this.#style;
    this.#options.view.print(wrapText(text, columns).map(colors.yellow));
  }

  get #isBusy(): boolean {
    return this.#action !== undefined || this.#options.desk.conversation.isRunning;
  }

  #interrupt(): void {
    const { desk, hurry } = this.#options;
    if (this.#action !== undefined) this.#action.abort('interrupted by Ctrl-C');
    else if (!desk.conversation.isRunning) {
      if (this.#mayLeave) this.#finish(EXIT.ok);
      this.#mayLeave = true;
    } else if (this.#isStopping) hurry();
    else {
      this.#isStopping = true;
      desk.conversation.interrupt();
    }
  }

  #send(text: string): void {
    const { desk, history, view } = this.#options;
    if (text === '') {
      if (this.#next !== 'nothing' && !this.#isBusy) this.#work = this.#answer(undefined);
      return;
    }
    let slash: Slash | undefined;
    try {
      slash = slashOf(text);
    } catch (error) {
      view.print(['', ...failureLines(toRyeError(error), this.#style)]);
      this.#editor = withText(this.#editor, text);
      return;
    }
    history.add(text);
    if (slash?.name === 'quit') this.#finish(EXIT.ok);
    else if (this.#action !== undefined) {
      this.#warn('wait for the command, or stop it with Ctrl-C');
      this.#editor = withText(this.#editor, text);
    } else if (slash !== undefined) {
      if (desk.conversation.isRunning && needsIdle(slash)) this.#pending.push({ slash, text });
      else void this.#command(slash, text);
    } else if (desk.conversation.isRunning) void this.#steer(messageOfText(text));
    else if (this.#next === 'decides') {
      this.#warn('decide first; your message is kept');
      this.#editor = withText(this.#editor, text);
      this.#work = this.#answer(undefined);
    } else this.#work = this.#answer(messageOfText(text));
  }

  async #command(slash: Slash, text: string): Promise<void> {
    const { desk, view } = this.#options;
    const action = new AbortController();
    this.#action = action;
    view.print(['', ...echoLines(text, this.#style)]);
    try {
      const { draft } = await act(slash, { ...desk, signal: action.signal });
      if (draft !== undefined) this.#editor = withText(this.#editor, draft);
      if (slash.name === 'new') this.#spent = undefined;
    } catch (error) {
      view.print(failureLines(toRyeError(error), this.#style));
    }
    this.#action = undefined;
    this.#draw();
  }

  async #steer(message: string): Promise<void> {
    const { desk, view } = this.#options;
    try {
      const { delivery } = await desk.conversation.steer(message);
      this.#queued.set(delivery.delivery_id, message);
    } catch (error) {
      view.print(failureLines(toRyeError(error), this.#style));
      this.#editor = withText(this.#editor, message);
    }
    this.#draw();
  }

  /** Makes an answer, and then those to messages that came too late for it. */
  async #answer(message: string | undefined): Promise<void> {
    const { desk, view } = this.#options;
    this.#sending = message;
    this.#isLogged = false;
    const attendant = this.#slot.open(this.#next === 'decides');
    this.#next = 'nothing';
    try {
      const running = desk.conversation.send(message, attendant);
      this.#draw();
      let result = await running;
      if (this.#sending !== undefined) this.#showSent(this.#sending);
      this.#report(result);
      while (result.success && (await desk.conversation.waiting()) > 0) {
        result = await desk.conversation.send(undefined, this.#slot.open());
        this.#report(result);
      }
      this.#next = nextOf(result);
    } catch (error) {
      view.settle();
      view.print(failureLines(toRyeError(error), this.#style));
      this.#returnUnsent();
    }
    this.#sending = undefined;
    this.#slot.close();
    this.#isStopping = false;
    for (const { slash, text } of this.#pending.splice(0)) await this.#command(slash, text);
    this.#draw();
  }

  /** Puts a message that the log never got back into the field, or on the screen if the person has typed another one. */
  #returnUnsent(): void {
    const { view } = this.#options;
    if (this.#sending === undefined) return;
    if (this.#editor.text === '') this.#editor = withText(this.#editor, this.#sending);
    else view.print(echoLines(this.#sending, this.#style, 'not sent'));
  }

  #showSent(message: string): void {
    const { view } = this.#options;
    this.#sending = undefined;
    view.print(['', ...echoLines(message, this.#style), '']);
    this.#draw();
  }

  #report(result: ThreadResult): void {
    const { view } = this.#options;
    view.settle();
    const text = neutralize(resultText(result)).trim();
    const isShown =
      result.outputs === undefined && view.shownText().trim() === result.result.trim();
    if (result.success && !isShown && text !== '') view.print(wrapText(text, this.#style.columns));
    const cost = this.#spent ? costSince(this.#spent, result.cost) : result.cost;
    this.#spent = result.cost;
    const facts = { result, cost, budget: this.#budget };
    view.print(['', ...meterLines(facts, this.#style)]);
  }

  #draw(): void {
    const { view, desk, io } = this.#options;
    const { columns } = io.stdout;
    const { footer, hasKeys } = this.#slot;
    const rule = desk.colors.dim('─'.repeat(Math.max(1, columns - 1)));
    if (footer && hasKeys) {
      const { lines, cursor } = footer;
      const place = cursor && { row: cursor.row + 1, column: cursor.column };
      view.setFooter({ lines: [rule, ...lines], ...(place ? { cursor: place } : {}) });
      return;
    }
    const queued = [...this.#queued.values(), ...this.#pending.map(({ text }) => text)];
    const waiting = [
      ...(this.#sending === undefined ? [] : [`  sending: ${oneLine(this.#sending)}`]),
      ...queued.map((text) => `  queued: ${oneLine(text)}`),
    ].map(desk.colors.dim);
    const request = footer ? [...footer.lines, desk.colors.yellow(TYPING_HINT)] : [];
    const above = [...request, rule, ...waiting];
    const field = drawField(this.#editor, {
      columns,
      rows: Math.max(1, Math.floor(io.stdout.rows / 3)),
      colors: desk.colors,
      hint: this.#hint(),
    });
    const { row, column } = field.cursor;
    view.setFooter({
      lines: [...above, ...field.lines],
      cursor: { row: above.length + row, column },
    });
  }

  #hint(): string {
    if (this.#mayLeave) return LEAVE_HINT;
    if (this.#action !== undefined) return 'Ctrl-C stops the command';
    if (!this.#options.desk.conversation.isRunning) {
      return NEXT_HINTS[this.#next];
    }
    return this.#isStopping ? STOPPING_HINT : RUNNING_HINT;
  }
}

/** True once the log has the message of a run: no crash loses it from here on. */
function isAccepted(event: LogEvent | UnknownEvent): boolean {
  const role = payloadOf(event, 'message')?.message.role;
  return role === 'user' || event.event_type === 'turn_started';
}

/** Returns what an empty message does after a run. */
function nextOf({ success, waiting_for: waitingFor }: ThreadResult): EmptyMessage {
  if (success) return 'nothing';
  return waitingFor === undefined ? 'continues' : 'decides';
}

/** Returns the spend limit that a run starts with. */
function budgetOf(event: LogEvent | UnknownEvent): number | undefined {
  const started = payloadOf(event, 'thread_started') ?? payloadOf(event, 'run_started');
  const spend = started?.limits['spend'];
  return typeof spend === 'number' ? spend : undefined;
}
