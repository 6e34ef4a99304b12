import type { ApprovalAttendant, DecideRequest, ListedApproval } from '../../app/api/approvals.ts';
import { messageOf } from '../../core/errors.ts';
import { isJsonObject, type JsonValue, parseJson } from '../../core/json.ts';
import type { Io } from '../io.ts';
import type { Key, Keyboard } from '../keyboard.ts';
import { type Colors, neutralize, oneLine } from '../terminal-text.ts';
import { requestLines } from './approval-lines.ts';
import type { LiveView } from './live-view.ts';

type Decide = Parameters<ApprovalAttendant['onRequest']>[1];
type Decision = Omit<DecideRequest, 'id'>;

interface Open {
  readonly approval: ListedApproval;
  readonly decide: Decide;
}

/** A line that a person types: a reason, an input or an answer. */
interface Field {
  readonly kind: 'deny' | 'edit' | 'answer';
  readonly text: string;
}

/** Asks a person at the terminal about each request, below the stream. */
export interface ApprovalDialog extends ApprovalAttendant {
  /** Restores the terminal. Open requests stay pending. Idempotent. */
  readonly close: () => void;
}

const KEYS =
  'y once · t this thread · n deny · e edit · d details · ? help · Ctrl-C leave it pending';
const HELP = [
  'y  approve this call once          t  approve such calls for the rest of this thread',
  'n  deny; the model reads the text  e  change the input, then approve',
  'd  show the whole request          Ctrl-C  leave it pending: the thread is suspended',
];
const PREVIEW_LINES = 6;
const PROMPTS = { deny: 'Reason: ', edit: 'Input: ', answer: 'Answer: ' } as const;

export function createApprovalDialog(
  io: Pick<Io, 'openKeyboard'>,
  view: Pick<LiveView, 'print' | 'setFooter' | 'redraw'>,
  colors: Colors,
): ApprovalDialog {
  const dialog = new Dialog(io, view, colors);
  return {
    onRequest: (approval, decide) => dialog.add({ approval, decide }),
    isThere: (id) => dialog.has(id),
    close: () => dialog.leave(),
  };
}

class Dialog {
  readonly #io: Pick<Io, 'openKeyboard'>;
  readonly #view: Pick<LiveView, 'print' | 'setFooter' | 'redraw'>;
  readonly #colors: Colors;
  #open: readonly Open[] = [];
  #field: Field | undefined;
  #keyboard: Promise<Keyboard> | undefined;
  #isLeft = false;
  #isDeciding = false;

  constructor(
    io: Pick<Io, 'openKeyboard'>,
    view: Pick<LiveView, 'print' | 'setFooter' | 'redraw'>,
    colors: Colors,
  ) {
    this.#io = io;
    this.#view = view;
    this.#colors = colors;
  }

  has(id: string): boolean {
    return !this.#isLeft && this.#open.some(({ approval }) => approval.id === id);
  }

  add(one: Open): void {
    if (this.#isLeft) return;
    this.#open = [...this.#open, one];
    if (this.#open.length === 1) this.#begin();
    else this.#draw();
  }

  leave(): void {
    if (this.#isLeft) return;
    this.#isLeft = true;
    this.#release();
  }

  /** Shows the first request. A question is answered at once. */
  #begin(): void {
    const [first] = this.#open;
    this.#field = first?.approval.kind === 'question' ? { kind: 'answer', text: '' } : undefined;
    if (!first) {
      this.#release();
      return;
    }
    this.#keyboard ??= this.#io.openKeyboard({
      onKey: (key) => this.#press(key),
      onRedraw: () => this.#view.redraw(),
      onEnd: () => this.leave(),
    });
    this.#draw();
  }

  #release(): void {
    this.#view.setFooter(undefined);
    const keyboard = this.#keyboard;
    this.#keyboard = undefined;
    void keyboard?.then((opened) => opened.close());
  }

  #draw(): void {
    const [first] = this.#open;
    if (!first) return;
    const { preview, reason, tool, id } = first.approval;
    const { bold, dim, yellow } = this.#colors;
    const more = this.#open.length > 1 ? dim(` (1 of ${this.#open.length})`) : '';
    const text = neutralize(preview.text).split('\n');
    const shown = text.slice(0, PREVIEW_LINES).map((line) => `  ${line}`);
    const rest = text.length - PREVIEW_LINES;
    const lines = [
      `${yellow('?')} ${bold(oneLine(preview.title))}  ${dim(oneLine(`${tool} ${id}`))}${more}`,
      ...shown,
      ...(rest > 0 ? [dim(`  … ${rest} more lines: d`)] : []),
      ...(reason === '' ? [] : [dim(`  ${oneLine(reason)}`)]),
    ];
    if (!this.#field) {
      this.#view.setFooter({ lines: [...lines, dim(KEYS)] });
      return;
    }
    const field = `${PROMPTS[this.#field.kind]}${oneLine(this.#field.text)}`;
    const cursor = { row: lines.length, column: field.length };
    this.#view.setFooter({ lines: [...lines, field], cursor });
  }

  #press(key: Key): void {
    if (key.name === 'ctrl+c' || key.name === 'ctrl+d') {
      this.leave();
      return;
    }
    if (this.#isDeciding) return;
    if (this.#field) this.#type(this.#field, key);
    else this.#choose(key);
    this.#draw();
  }

  #choose({ name, text }: Key): void {
    const [first] = this.#open;
    if (!first) return;
    const { approval } = first;
    if (name === 'y') void this.#decide(first, { decision: 'approve' });
    else if (name === 't') {
      const scope = approval.scopes.at(-1) ?? 'once';
      void this.#decide(first, { decision: 'approve', scope });
    } else if (name === 'n') this.#field = { kind: 'deny', text: '' };
    else if (name === 'e') this.#field = { kind: 'edit', text: JSON.stringify(approval.input) };
    else if (name === 'd') this.#view.print(requestLines(approval));
    else if (text === '?') this.#view.print(HELP);
  }

  #type(field: Field, { name, text }: Key): void {
    if (name === 'enter') this.#submit(field);
    else if (name === 'escape') this.#field = field.kind === 'answer' ? field : undefined;
    else if (name === 'backspace') this.#field = { ...field, text: field.text.slice(0, -1) };
    else if (text !== undefined) this.#field = { ...field, text: field.text + text };
  }

  #submit({ kind, text }: Field): void {
    const [first] = this.#open;
    if (!first) return;
    if (kind === 'deny') {
      void this.#decide(first, { decision: 'deny', comment: text });
      return;
    }
    if (kind === 'answer') {
      const answer = answerOf(first.approval, text);
      void this.#decide(first, { decision: 'answer', answer });
      return;
    }
    const input = parseJson(text);
    if (isJsonObject(input)) void this.#decide(first, { decision: 'approve', input });
    else this.#view.print(['The input is not a JSON object.']);
  }

  async #decide({ approval, decide }: Open, decision: Decision): Promise<void> {
    this.#isDeciding = true;
    try {
      const { state, missing } = await decide(decision);
      const more = missing > 0 ? `, ${missing} more needed` : '';
      this.#view.print([this.#colors.dim(`${approval.id} ${state}${more}`)]);
      this.#open = this.#open.filter((one) => one.approval.id !== approval.id);
    } catch (error) {
      this.#view.print([oneLine(messageOf(error))]);
    }
    this.#isDeciding = false;
    if (!this.#isLeft) this.#begin();
  }
}

/** A text is an answer as it is where a text is asked for; else it is JSON. */
function answerOf({ preview }: ListedApproval, text: string): JsonValue {
  return preview.schema?.['type'] === 'string' ? text : (parseJson(text) ?? text);
}
