import type { ApprovalAttendant } from '../../../kernel/app/api/approvals.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import {
  type ApprovalDialog,
  createApprovalDialog,
  type DialogOptions,
} from '../dialogs/approval-dialog.ts';
import type { Key, Keyboard, KeyHandlers } from '../keyboard.ts';
import type { Footer } from '../render/live-view.ts';

export interface SlotOptions extends Omit<DialogOptions, 'io'> {
  readonly env: DialogOptions['io']['env'];
  /** True if the input field has text: keys that complete a message must not decide about a request. */
  readonly isTyping: () => boolean;
  readonly keyboard: () => Pick<Keyboard, 'suspend' | 'lend'> | undefined;
  readonly onChange: () => void;
}

/**
 * The approval dialog of a conversation, one for each run. It has the keys while a request waits, unless a message was
 * being typed when the request came: then the message comes first.
 */
export class DialogSlot {
  readonly #options: SlotOptions;
  #dialog: ApprovalDialog | undefined;
  #handlers: KeyHandlers | undefined;
  #footer: Footer | undefined;
  #hasKeys = false;
  #isFirst = false;

  constructor(options: SlotOptions) {
    this.#options = options;
  }

  /** The dialog's lines; undefined: nothing waits for the person. */
  get footer(): Footer | undefined {
    return this.#footer;
  }

  /** True if the next key is for the dialog. */
  get hasKeys(): boolean {
    return this.#footer !== undefined && this.#hasKeys;
  }

  /** Returns a dialog for the run that starts now. `isFirst`: the person wants to decide before anything else. */
  open(isFirst = false): ApprovalAttendant {
    this.#isFirst = isFirst;
    const { env, view, sink, colors } = this.#options;
    this.#dialog = createApprovalDialog({
      io: { env, openKeyboard: (handlers) => Promise.resolve(this.#lendKeys(handlers)) },
      view: { ...view, print: view.print, setFooter: this.#show, hold: view.hold },
      sink,
      colors,
    });
    return this.#dialog;
  }

  event(event: LogEvent | UnknownEvent): void {
    this.#dialog?.event(event);
  }

  /** Leaves what waits pending, and ends the dialog of this run. */
  close(): void {
    this.#dialog?.close();
    this.#dialog = undefined;
  }

  /** Draws the dialog for the present size of the terminal. */
  redraw(): void {
    this.#handlers?.onRedraw();
  }

  /** Takes a key; false if it is for the input field. */
  press(key: Key): boolean {
    if (this.#footer === undefined) return false;
    if (this.#hasKeys) {
      this.#handlers?.onKey(key);
      return true;
    }
    if (key.name === 'tab') this.#hasKeys = true;
    return this.#hasKeys;
  }

  /** Gives the keys to the dialog once the message that was being typed has gone. */
  fieldChanged(): void {
    if (!this.#options.isTyping()) this.#hasKeys = true;
  }

  #lendKeys(handlers: KeyHandlers): Keyboard {
    this.#handlers = handlers;
    return {
      suspend: () => this.#options.keyboard()?.suspend(),
      lend: () => this.#options.keyboard()?.lend() ?? (() => {}),
      close: () => {
        if (this.#handlers === handlers) this.#handlers = undefined;
      },
    };
  }

  readonly #show = (footer: Footer | undefined): void => {
    if (footer !== undefined && this.#footer === undefined) {
      this.#hasKeys = this.#isFirst || !this.#options.isTyping();
    }
    this.#footer = footer;
    this.#options.onChange();
  };
}
