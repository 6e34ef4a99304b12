import { messageOf } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
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
import type { Io, Sink } from '../io.ts';
import type { Key, Keyboard } from '../keyboard.ts';
import { type Colors, truncate } from '../terminal-text.ts';
import { oneLine } from '../visible.ts';
import { echoLines, type LineStyle } from './echo.ts';
import type { LiveView } from './live-view.ts';
import { payloadOf } from './progress-line.ts';
import type { Steering } from './text.ts';

interface Screen {
  readonly io: Pick<Io, 'openKeyboard'>;
  readonly view: LiveView;
  readonly sink: Sink;
  readonly colors: Colors;
}

const HINT = 'a message to the model; Enter sends, Ctrl-C detaches';

/** An input field below a thread that another process runs: a message that is typed there steers it. */
export class SteerField {
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
