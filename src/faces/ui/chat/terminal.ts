import type { ChatLine } from '../../../kernel/app/api/chat.ts';
import { needsIdle } from '../../../kernel/app/chat-commands.ts';
import { EXIT, type ExitCode, toRyeError } from '../../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import type { ThreadResult } from '../../../kernel/core/thread.ts';
import { type Cost, costSince } from '../../../kernel/core/usage.ts';
import { resultText } from '../../cli/output.ts';
import type { Io } from '../io.ts';
import type { Key, Keyboard } from '../keyboard.ts';
import { drawPicker, openPicker, type Picker, pressPicker } from '../picker.ts';
import { echoLines, type LineStyle } from '../render/echo.ts';
import type { Footer, LiveView } from '../render/live-view.ts';
import { payloadOf } from '../render/progress-line.ts';
import { type Colors, wrapText } from '../terminal-text.ts';
import { oneLine, type Shown, visible } from '../visible.ts';
import { act, type ChatDesk } from './actions.ts';
import { footerOf, ruledOff } from './chat-footer.ts';
import { failureLines, meterLines, remarkLines } from './chat-lines.ts';
import { DialogSlot } from './dialog-slot.ts';
import {
  type Editor,
  type EditorEffect,
  folded,
  labelled,
  openEditor,
  press,
  unfolded,
  withDraft,
  withText,
} from './editor.ts';
import type { HeldKeys } from './held-keys.ts';
import type { ChatHistory } from './history.ts';
import { messageOfText } from './message-lines.ts';
import { type ModelChoice, modelFace } from './model-choice.ts';
import {
  isAccepted,
  LEAVE_HINT,
  NEXT_HINTS,
  RUNNING_HINT,
  STOPPING_HINT,
  TYPING_HINT,
  WAITS_NOTE,
} from './run-facts.ts';
import { type ChatSetting, restLine } from './status-line.ts';

/** A person's choice of a model, which has the keys until it is made. */
class ModelPicking {
  #picker: Picker<ModelChoice>;
  #settle: (choice: ModelChoice | null) => void = () => {};
  /** The model; null: the person left. */
  readonly choice = new Promise<ModelChoice | null>((resolve) => {
    this.#settle = resolve;
  });

  constructor(choices: readonly ModelChoice[], at: number) {
    this.#picker = openPicker(choices, at);
  }

  /** Takes a key. Returns one that came right after the Escape that left the picker. */
  press(key: Key): Key | undefined {
    const { picker, picked } = pressPicker(this.#picker, key);
    this.#picker = picker;
    if (picked === undefined) return undefined;
    this.#settle(picked);
    const name = key.name.replace(/^alt\+/, '');
    return name !== key.name && name.length === 1 ? { name, text: name } : undefined;
  }

  leave(): void {
    this.#settle(null);
  }

  draw(style: {
    readonly colors: Colors;
    readonly columns: number;
    readonly rows: number;
  }): Footer {
    return drawPicker(this.#picker, modelFace(style.colors), style);
  }
}

/** Milliseconds for a run that only waits for a decision to become suspended. */
const SUSPEND_MS = 1000;

/**
 * A conversation on a terminal: output scrolls by above, and the input field stays below it. Messages that are typed while
 * the model answers are queued for it.
 */
export class TerminalChat {
  readonly #options: TerminalChatOptions;
  #editor: Editor;
  #keyboard: Keyboard | undefined;
  /** The message that is being sent: it is shown as sent once a signature in the log covers it. */
  #sending: Typed | undefined;
  /** The log has the message that is being sent, but not yet its signature: a crash would move it out of the log. */
  #isLogged = false;
  #work: Promise<void> = Promise.resolve();
  #action: AbortController | undefined;
  /** Typed lines that wait for the end of an answer or a command. */
  readonly #pending: Typed[] = [];
  #picking: ModelPicking | undefined;
  #isStopping = false;
  #isLeaving = false;
  readonly #slot: DialogSlot;
  #mayLeave = false;
  #isWarm = false;
  /** Resolves when the history has every message. */
  #kept = Promise.resolve();
  #spent: Cost | undefined;
  #finish: (exitCode: ExitCode) => void = () => {};

  constructor(options: TerminalChatOptions) {
    this.#options = options;
    this.#editor = { ...openEditor(options.history.read()), pastes: new Map() };
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
    const { desk, keys, view, intro, startsAlone } = this.#options;
    const finished = new Promise<ExitCode>((resolve) => {
      this.#finish = resolve;
    });
    desk.signal.addEventListener('abort', () => this.#finish(EXIT.cancelled), { once: true });
    if (desk.signal.aborted) this.#finish(EXIT.cancelled);
    view.print(intro);
    try {
      if (startsAlone) this.#work = this.#answer(undefined);
      this.#draw();
      this.#keyboard = keys.attach({
        onKey: this.#onKey,
        onRedraw: () => {
          this.#slot.redraw();
          this.#draw();
        },
        onEnd: () => this.#finish(EXIT.cancelled),
      });
      const exitCode = await finished;
      this.#isLeaving = true;
      this.#picking?.leave();
      await this.#leavePending();
      desk.chat.interrupt('interrupted because the chat ended');
      this.#action?.abort();
      await this.#work;
      view.setFooter(undefined);
      await this.#nameUnsent();
      return exitCode;
    } finally {
      view.setFooter(undefined);
      view.close();
      keys.close();
    }
  }

  /** A run that only waits for a decision is suspended, not cancelled, so that the decision can be made later. */
  async #leavePending(): Promise<void> {
    if (this.#slot.footer === undefined) return;
    this.#slot.close();
    await Promise.race([this.#work, new Promise((resolve) => setTimeout(resolve, SUSPEND_MS))]);
  }

  /** Names what was typed and not sent: queued messages wait in the thread, other text only in the history. */
  async #nameUnsent(): Promise<void> {
    const { view, history, desk } = this.#options;
    const { waiting, lost: unsent } = await desk.chat.left();
    const lost = [
      ...unsent,
      ...this.#pending.map(({ text }) => text),
      ...(this.#editor.text.trim() === '' ? [] : [unfolded(this.#editor, this.#editor.text)]),
    ];
    for (const text of lost) this.#kept = history.add(text);
    await this.#kept;
    for (const text of waiting) view.print(echoLines(folded(text), this.#style, 'queued'));
    if (waiting.length > 0) view.print(remarkLines(oneLine(WAITS_NOTE), this.#style));
    for (const text of lost) view.print(echoLines(folded(text), this.#style, 'not sent'));
  }

  /** Shows a notice above the field. */
  readonly notify = (line: Shown): void => {
    this.#options.view.print(remarkLines(line, this.#style));
  };

  /** Shows an event of a run. */
  readonly event = (event: LogEvent | UnknownEvent): void => {
    this.#isLogged ||= isAccepted(event);
    if (this.#sending !== undefined && this.#isLogged && event.event_type === 'checkpoint') {
      this.#showSent(this.#sending);
    }
    this.#options.view.event(event);
    this.#slot.event(event);
    if (payloadOf(event, 'custom_message')?.details?.['delivery_id'] !== undefined) this.#draw();
  };

  readonly #onKey = (key: Key): void => {
    if (this.#picking !== undefined) {
      const left = this.#picking.press(key);
      if (left) this.#typeInField(left);
      this.#draw();
      return;
    }
    if (this.#slot.press(key)) {
      this.#draw();
      return;
    }
    this.#typeInField(key);
  };

  #typeInField(key: Key): void {
    this.#warmUp();
    const { editor, effect } = press(this.#editor, key);
    this.#editor = editor;
    if (effect?.kind !== 'interrupt') this.#mayLeave = false;
    if (effect !== undefined) this.#apply(effect);
    this.#slot.fieldChanged();
    if (effect?.kind !== 'suspend') this.#draw();
  }

  /** Prepares the first answer while the person types, after the key is drawn. */
  #warmUp(): void {
    if (this.#isWarm) return;
    this.#isWarm = true;
    setImmediate(this.#options.warmUp);
  }

  /** Lets the person choose a model; null: none. */
  readonly #choose: NonNullable<ChatDesk['chooseModel']> = async (choices, at) => {
    this.#picking = new ModelPicking(choices, at);
    this.#draw();
    try {
      return await this.#picking.choice;
    } finally {
      this.#picking = undefined;
      this.#draw();
    }
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

  get #isRunning(): boolean {
    return this.#options.desk.chat.state.isRunning;
  }

  /** The spend limit of the conversation. */
  get #budget(): number | undefined {
    const { desk, setting } = this.#options;
    return desk.chat.state.budget ?? setting.budget;
  }

  get #isBusy(): boolean {
    return this.#action !== undefined || this.#isRunning;
  }

  #interrupt(): void {
    const { desk, hurry } = this.#options;
    if (this.#action !== undefined) this.#action.abort('interrupted by Ctrl-C');
    else if (!this.#isRunning) {
      if (this.#mayLeave) this.#finish(EXIT.ok);
      this.#mayLeave = true;
    } else if (this.#isStopping) hurry();
    else {
      this.#isStopping = true;
      desk.chat.interrupt('interrupted by Ctrl-C');
    }
  }

  #send(text: string): void {
    const { history, view, desk } = this.#options;
    if (text === '') {
      const isNothing = desk.chat.state.emptyMessage === 'nothing';
      if (!isNothing && !this.#isBusy) this.#work = this.#answer(undefined);
      return;
    }
    const typed: Typed = {
      text: unfolded(this.#editor, text),
      shown: labelled(this.#editor, text),
    };
    let slash: ChatLine | undefined;
    try {
      slash = desk.chat.parse(typed.text);
    } catch (error) {
      view.print(['', ...failureLines(toRyeError(error), this.#style)]);
      this.#editor = withText(this.#editor, text);
      return;
    }
    this.#kept = history.add(typed.text);
    if (slash?.name === 'quit') this.#finish(EXIT.ok);
    else if (slash !== undefined) this.#do({ ...typed, slash });
    else {
      const message = unfolded(this.#editor, messageOfText(text));
      this.#do({ ...typed, text: message });
    }
  }

  /** Runs a command or sends a message, now or as soon as it can be. */
  #do(typed: Typed): void {
    const { slash, text } = typed;
    const { chat } = this.#options.desk;
    const { isRunning, emptyMessage } = chat.state;
    const { beginsAlone } = chat;
    if (this.#action !== undefined) this.#pending.push(typed);
    else if (slash !== undefined) {
      if (isRunning && needsIdle(slash)) this.#pending.push(typed);
      else void this.#command(typed, slash);
    } else if (isRunning) void this.#enqueue(text);
    else if (emptyMessage === 'decides') {
      this.#warn('decide first; your message is kept');
      this.#editor = withDraft(this.#editor, text);
      this.#work = this.#answer(undefined);
    } else {
      if (beginsAlone) this.#pending.push(typed);
      this.#work = this.#answer(beginsAlone ? undefined : typed);
    }
  }

  /** Does what waited for the end of an answer or a command. */
  #doNext(): void {
    if (this.#isLeaving) return;
    for (const typed of this.#pending.splice(0)) this.#do(typed);
  }

  async #command({ shown }: Typed, slash: ChatLine): Promise<void> {
    const { desk, view } = this.#options;
    const action = new AbortController();
    this.#action = action;
    view.print(['', ...echoLines(shown, this.#style)]);
    try {
      const own = { chooseModel: this.#choose, signal: action.signal };
      const { draft } = await act(slash, { ...desk, ...own });
      if (draft !== undefined) this.#editor = withDraft(this.#editor, draft);
      if (slash.name === 'new') this.#startOver();
    } catch (error) {
      view.print(failureLines(toRyeError(error), this.#style));
    }
    this.#action = undefined;
    this.#doNext();
    this.#draw();
  }

  #startOver(): void {
    this.#spent = undefined;
  }

  /** Queues a message for the running answer. */
  async #enqueue(text: string): Promise<void> {
    try {
      await this.#options.desk.chat.send(text);
    } catch (error) {
      this.#options.view.print(failureLines(toRyeError(error), this.#style));
      this.#editor = withDraft(this.#editor, text);
    }
    this.#draw();
  }

  /** Puts queued messages back into the field after an answer that was stopped or failed. */
  async #takeBack(): Promise<void> {
    const typed = this.#pending.filter(({ slash }) => !slash).map(({ text }) => text);
    const back = [...(await this.#options.desk.chat.takeBack()), ...typed];
    const commands = this.#pending.filter(({ slash }) => slash);
    this.#pending.splice(0, this.#pending.length, ...commands);
    if (back.length === 0) return;
    const own = unfolded(this.#editor, this.#editor.text);
    this.#editor = withDraft(this.#editor, [...back, ...(own === '' ? [] : [own])].join('\n\n'));
  }

  /** Has a message answered, and then those that came too late for that answer. */
  async #answer(message: Typed | undefined): Promise<void> {
    const { desk, view } = this.#options;
    this.#sending = message;
    this.#isLogged = false;
    const { chat } = desk;
    let isFirst = chat.state.emptyMessage === 'decides';
    if (!message) view.print(['']);
    try {
      const running = chat.send(message?.text, {
        attendant: () => {
          const attendant = this.#slot.open(isFirst);
          isFirst = false;
          return attendant;
        },
        onResult: (result) => {
          if (this.#sending !== undefined) this.#showSent(this.#sending);
          this.#report(result);
        },
      });
      this.#draw();
      await running;
      const isStopped = chat.state.emptyMessage === 'continues';
      if (isStopped && !this.#isLeaving) await this.#takeBack();
    } catch (error) {
      view.settle();
      view.print(failureLines(toRyeError(error), this.#style));
      this.#returnUnsent();
      if (!this.#isLeaving) await this.#takeBack();
    }
    this.#sending = undefined;
    this.#slot.close();
    this.#isStopping = false;
    this.#doNext();
    this.#draw();
  }

  /** Puts a message that the log never got back into the field, or on the screen if the person has typed another one. */
  #returnUnsent(): void {
    if (this.#sending === undefined) return;
    if (this.#editor.text === '') this.#editor = withDraft(this.#editor, this.#sending.text);
    else this.#options.view.print(echoLines(this.#sending.shown, this.#style, 'not sent'));
  }

  #showSent({ shown }: Typed): void {
    this.#sending = undefined;
    this.#options.view.print(['', ...echoLines(shown, this.#style), '']);
    this.#draw();
  }

  #report(result: ThreadResult): void {
    const { view } = this.#options;
    view.settle(oneLine(result.error?.message ?? ''));
    const text = visible(resultText(result)).trim();
    const isShown = result.outputs === undefined && view.hasShown(result.result);
    if (result.success && !isShown && text !== '') view.print(wrapText(text, this.#style.columns));
    const cost = this.#spent ? costSince(this.#spent, result.cost) : result.cost;
    this.#spent = result.cost;
    const facts = { result, cost, budget: this.#budget };
    view.print(['', ...meterLines(facts, this.#style)]);
  }

  #draw(): void {
    const { view, desk, io } = this.#options;
    const style = { colors: desk.colors, columns: io.stdout.columns, rows: io.stdout.rows };
    const { footer, hasKeys } = this.#slot;
    if (footer && hasKeys) view.setFooter(ruledOff(footer, style));
    else if (this.#picking) view.setFooter(ruledOff(this.#picking.draw(style), style));
    else {
      const parts = {
        request: footer ? [...footer.lines, desk.colors.yellow(TYPING_HINT)] : [],
        sending: this.#sending?.shown,
        queued: [...desk.chat.state.queued.map(folded), ...this.#pending.map(({ shown }) => shown)],
        editor: this.#editor,
        hint: this.#hint(),
        rest: this.#rest(),
      };
      view.setFooter(footerOf(parts, style));
    }
  }

  /** The facts about the conversation, while no answer shows its own. */
  #rest(): readonly string[] {
    const { desk, view, setting } = this.#options;
    const { model = setting.model, isRunning } = desk.chat.state;
    if (isRunning || this.#isLeaving) return [];
    const facts = { ...setting, model, budget: this.#budget };
    const now = { spent: this.#spent?.spend ?? 0, context: view.context() };
    return [restLine(facts, now, this.#style)];
  }

  #hint(): string {
    if (this.#mayLeave) return LEAVE_HINT;
    if (this.#action !== undefined) return 'Ctrl-C stops the command';
    const { isRunning, emptyMessage } = this.#options.desk.chat.state;
    if (!isRunning) return NEXT_HINTS[emptyMessage];
    return this.#isStopping ? STOPPING_HINT : RUNNING_HINT;
  }
}

interface TerminalChatOptions {
  readonly desk: ChatDesk;
  readonly io: Pick<Io, 'stdout' | 'env'>;
  readonly keys: HeldKeys;
  readonly view: LiveView;
  readonly history: ChatHistory;
  readonly setting: ChatSetting;
  /** Printed first. */
  readonly intro: readonly string[];
  /** The directive runs before the first message. */
  readonly startsAlone: boolean;
  /** The cost of the thread so far. */
  readonly spent: Cost | undefined;
  /** Prepares what the first answer needs. */
  readonly warmUp: () => void;
  /** Kills the running tools at once. */
  readonly hurry: () => void;
}

/** A message or a command as it was typed, with its form on the screen. */
interface Typed {
  readonly text: string;
  readonly shown: string;
  readonly slash?: ChatLine | undefined;
}
