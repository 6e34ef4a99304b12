import type {
  ApprovalAttendant,
  DecideRequest,
  ListedApproval,
} from '../../../kernel/app/api/approvals.ts';
import { hunksOf } from '../../../kernel/core/edit-hunks.ts';
import { messageOf } from '../../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import { isJsonObject, parseJson, toText } from '../../../kernel/core/json.ts';
import { openEditor, press, withText } from '../chat/editor.ts';
import { editorOf, editText } from '../editor-program.ts';
import type { Io, Sink } from '../io.ts';
import type { Key, Keyboard } from '../keyboard.ts';
import type { LiveView } from '../render/live-view.ts';
import { payloadOf } from '../render/progress-line.ts';
import { type Colors, squeeze } from '../terminal-text.ts';
import { oneLine } from '../visible.ts';
import { clampTop, drawRequest, needsReading, pageRows } from './approval-screen.ts';
import type { Mode } from './dialog-mode.ts';
import { openForm, pressForm, refused } from './question-form.ts';

type Decide = Parameters<ApprovalAttendant['onRequest']>[1];
type Decision = Omit<DecideRequest, 'id'>;

/** A request that waits, and how far its answer has come. */
interface Open {
  readonly approval: ListedApproval;
  readonly decide: Decide;
  /** The input that was edited last and could not be used. */
  readonly draft?: string;
  /** True once the person has opened the details. */
  readonly isRead?: boolean;
}

/** Asks a person at the terminal about each request, below the stream. */
export interface ApprovalDialog extends ApprovalAttendant {
  /** Takes a request away that was decided elsewhere. */
  readonly event: (event: LogEvent | UnknownEvent) => void;
  /** Restores the terminal. Open requests stay pending. Idempotent. */
  readonly close: () => void;
}

export interface DialogOptions {
  readonly io: Pick<Io, 'openKeyboard' | 'env'>;
  readonly view: Pick<LiveView, 'print' | 'setFooter' | 'redraw' | 'hold'>;
  /** The terminal of the view. */
  readonly sink: Pick<Sink, 'columns' | 'rows'>;
  readonly colors: Colors;
}

const HELP = [
  'y  approve this call once           t  approve such calls for the rest of this thread',
  'n  deny; the model reads the text   e  change the input, then approve',
  'h  choose among several edits       d  read the whole request',
  'Ctrl-C  leave it pending: the thread is suspended',
];

export function createApprovalDialog(options: DialogOptions): ApprovalDialog {
  const dialog = new Dialog(options);
  return {
    onRequest: (approval, decide) => dialog.add({ approval, decide }),
    isThere: (id) => dialog.has(id),
    event: (event) => dialog.event(event),
    close: () => dialog.leave(),
  };
}

class Dialog {
  readonly #options: DialogOptions;
  #open: readonly Open[] = [];
  /** Requests that were shown since the dialog appeared and are decided. */
  #done = 0;
  #mode: Mode = { kind: 'keys' };
  #problem = '';
  #keyboard: Keyboard | undefined;
  /** False until what was typed before the request was shown has been dropped. */
  #isShown = false;
  #isLeft = false;
  /** The request whose decision is being signed. */
  #deciding: string | undefined;

  constructor(options: DialogOptions) {
    this.#options = options;
  }

  has(id: string): boolean {
    return !this.#isLeft && this.#open.some(({ approval }) => approval.id === id);
  }

  add(one: Open): void {
    if (this.#isLeft) return;
    this.#open = [...this.#open, one];
    if (this.#open.length === 1) void this.#begin();
    else this.#draw();
  }

  event(event: LogEvent | UnknownEvent): void {
    const type = event.event_type.replace(/^child\./, '');
    const decided = payloadOf({ ...event, event_type: type } as UnknownEvent, 'approval_decided');
    const id = decided?.approval_id;
    if (id === undefined || id === this.#deciding || !this.has(id)) return;
    this.#note(`${id} was decided elsewhere: ${decided?.outcome ?? ''}`);
    this.#remove(id);
  }

  leave(): void {
    if (this.#isLeft) return;
    this.#isLeft = true;
    this.#release();
  }

  /** Shows the first request with a fresh mode. A question is answered at once. */
  async #begin(): Promise<void> {
    const [first] = this.#open;
    this.#problem = '';
    if (!first) {
      this.#done = 0;
      this.#release();
      return;
    }
    const isQuestion = first.approval.kind === 'question';
    // a question is answered in its form, so what could mislead is read before
    if (isQuestion && this.#isUnread(first)) this.#read(first);
    else this.#mode = restMode(first.approval);
    if (!this.#isShown) await this.#takeKeys();
    this.#draw();
  }

  /** Drops what was typed before the person could see the request: it is no answer to it. */
  async #takeKeys(): Promise<void> {
    this.#keyboard ??= await this.#options.io.openKeyboard({
      onKey: (key) => {
        if (this.#isShown) this.#press(key);
      },
      onRedraw: () => this.#draw(),
      onEnd: () => this.leave(),
    });
    for (let round = 0; round < 2; round += 1) await new Promise(setImmediate);
    this.#isShown = true;
    if (this.#isLeft || this.#open.length === 0) this.#release();
  }

  #release(): void {
    this.#isShown = false;
    this.#options.view.setFooter(undefined);
    this.#keyboard?.close();
    this.#keyboard = undefined;
  }

  #draw(): void {
    const [first] = this.#open;
    if (!first || this.#isLeft || !this.#isShown) return;
    const { view, sink, colors } = this.#options;
    const shown = {
      approval: first.approval,
      place: this.#done + 1,
      total: this.#done + this.#open.length,
      problem: this.#problem,
    };
    view.setFooter(drawRequest(shown, this.#mode, { sink, colors }));
  }

  #press(key: Key): void {
    const [first] = this.#open;
    if (!first) return;
    if (key.name === 'ctrl+c' || key.name === 'ctrl+d') this.#leavePending();
    else if (key.name === 'ctrl+z') this.#stopJob();
    else {
      this.#apply(first, this.#mode, key);
      this.#draw();
    }
  }

  #leavePending(): void {
    for (const { approval } of this.#open) {
      this.#note(`left pending: ${commandFor(approval)}`);
    }
    this.leave();
  }

  #stopJob(): void {
    this.#options.view.setFooter(undefined);
    this.#keyboard?.suspend();
  }

  #apply(first: Open, mode: Mode, key: Key): void {
    switch (mode.kind) {
      case 'keys':
        this.#choose(first, key);
        break;
      case 'pages':
        this.#scroll(first, mode.top, key);
        break;
      case 'reason':
      case 'input':
        this.#type(first, mode, key);
        break;
      case 'form':
        this.#fill(first, mode.form, key);
        break;
      case 'hunks':
        this.#chooseHunks(first, mode, key);
        break;
      case 'busy':
        break;
    }
  }

  #choose(first: Open, { name, text }: Key): void {
    const { kind, scopes } = first.approval;
    const widest = scopes.at(-1) ?? 'once';
    this.#problem = '';
    if (['y', 't', 'h'].includes(name) && this.#isUnread(first)) {
      this.#problem = 'Not all of it is shown as it is. Press d, read it, then decide.';
    } else if (name === 'y') void this.#decide(first, { decision: 'approve' });
    else if (name === 't' && widest !== 'once') {
      void this.#decide(first, { decision: 'approve', scope: widest });
    } else if (name === 'n') this.#mode = { kind: 'reason', editor: openEditor([]) };
    else if (name === 'e' && (kind === 'call' || kind === 'plan')) this.#edit(first);
    else if (name === 'h' && hunksOf(first.approval.tool, first.approval.input).length > 0)
      this.#openHunks(first);
    else if (name === 'd') this.#read(first);
    else if (text === '?') this.#options.view.print(HELP.map(this.#options.colors.dim));
  }

  #openHunks({ approval }: Open): void {
    const kept = hunksOf(approval.tool, approval.input).map(() => true);
    this.#mode = { kind: 'hunks', at: 0, kept };
  }

  /** Keeps or omits the chosen edit, and approves those that are kept. */
  #chooseHunks(first: Open, mode: Extract<Mode, { kind: 'hunks' }>, { name }: Key): void {
    const { at, kept } = mode;
    const last = kept.length - 1;
    const put = (isKept: boolean): Mode => ({
      kind: 'hunks',
      at: Math.min(last, at + 1),
      kept: kept.with(at, isKept),
    });
    this.#problem = '';
    if (name === 'escape' || name === 'q') this.#mode = KEYS_MODE;
    else if (name === 'down' || name === 'j') this.#mode = { ...mode, at: Math.min(last, at + 1) };
    else if (name === 'up' || name === 'k') this.#mode = { ...mode, at: Math.max(0, at - 1) };
    else if (name === 'y') this.#mode = put(true);
    else if (name === 'n') this.#mode = put(false);
    else if (name === 'space') this.#mode = { ...mode, kept: kept.with(at, kept[at] !== true) };
    else if (name === 'enter') this.#decideHunks(first, kept);
  }

  #decideHunks(first: Open, kept: readonly boolean[]): void {
    const hunks = kept.flatMap((isKept, at) => (isKept ? [at + 1] : []));
    if (hunks.length === 0) this.#mode = { kind: 'reason', editor: openEditor([]) };
    else void this.#decide(first, { decision: 'approve', hunks });
  }

  #isUnread({ approval, isRead = false }: Open): boolean {
    const { sink, colors } = this.#options;
    return !isRead && needsReading(approval, sink, colors);
  }

  #read({ approval }: Open): void {
    this.#mode = { kind: 'pages', top: 0 };
    this.#open = this.#open.map((one) =>
      one.approval.id === approval.id ? { ...one, isRead: true } : one,
    );
  }

  #scroll(first: Open, top: number, key: Key): void {
    const { sink, colors } = this.#options;
    const page = pageRows(sink);
    const by = { down: 1, up: -1, space: page, pagedown: page, b: -page, pageup: -page }[key.name];
    if (by !== undefined) {
      this.#mode = { kind: 'pages', top: clampTop(first.approval, top + by, sink, colors) };
    } else if (['q', 'd', 'enter', 'escape'].includes(key.name))
      this.#mode = restMode(first.approval);
    else if (first.approval.kind !== 'question' && ['y', 't', 'n', 'e'].includes(key.name)) {
      this.#mode = KEYS_MODE;
      this.#choose(first, key);
    }
  }

  #edit(first: Open): void {
    const { input } = first.approval;
    const program = editorOf(this.#options.io.env);
    const text = first.draft ?? JSON.stringify(input, null, program === undefined ? undefined : 2);
    if (program !== undefined) void this.#editOutside(first, program, text);
    else this.#mode = { kind: 'input', editor: withText(openEditor([]), text) };
  }

  /** Opens the person's editor on the input. Meanwhile the run continues, and its output waits. */
  async #editOutside(first: Open, program: string, text: string): Promise<void> {
    const { view, io } = this.#options;
    this.#mode = { kind: 'busy' };
    const show = view.hold();
    const giveBack = this.#keyboard?.lend();
    const edited = await editText(program, { text, name: 'input.json', env: io.env }).catch(
      (error: unknown) => new Error(messageOf(error)),
    );
    giveBack?.();
    show();
    this.#mode = KEYS_MODE;
    if (!this.has(first.approval.id)) return;
    if (edited === undefined || edited instanceof Error) {
      this.#problem = `The editor failed: ${oneLine(edited?.message ?? program)}`;
    } else if (edited.trim() === text.trim()) this.#problem = 'Nothing was changed.';
    else this.#approveWith(first, edited);
    this.#draw();
  }

  #type(first: Open, mode: Extract<Mode, { kind: 'reason' | 'input' }>, key: Key): void {
    if (key.name === 'escape') {
      this.#problem = '';
      this.#mode = restMode(first.approval);
      return;
    }
    const { editor, effect } = press(mode.editor, key);
    if (effect?.kind !== 'send') this.#mode = { ...mode, editor };
    else if (mode.kind === 'reason') {
      void this.#decide(first, { decision: 'deny', comment: effect.text.trim() });
    } else this.#approveWith(first, effect.text);
  }

  /** Approves the call with another input. What cannot be used stays, to be edited again. */
  #approveWith(first: Open, text: string): void {
    const input = parseJson(text);
    this.#keepDraft(first, text);
    if (isJsonObject(input)) void this.#decide(first, { decision: 'approve', input });
    else {
      const what = input === undefined ? 'valid JSON' : 'a JSON object';
      this.#refuse(`The input is not ${what}. Edit it again with e.`, text);
    }
  }

  #keepDraft({ approval }: Open, draft: string): void {
    this.#open = this.#open.map((one) =>
      one.approval.id === approval.id ? { ...one, draft } : one,
    );
  }

  /** Shows why a decision was refused. What was typed stays in the field. */
  #refuse(problem: string, draft?: string): void {
    const isInline = draft !== undefined && editorOf(this.#options.io.env) === undefined;
    this.#problem = problem;
    if (isInline) this.#mode = { kind: 'input', editor: withText(openEditor([]), draft) };
  }

  #fill(first: Open, form: Extract<Mode, { kind: 'form' }>['form'], key: Key): void {
    const step = pressForm(form, key);
    this.#problem = '';
    this.#mode = { kind: 'form', form: step.form };
    if (step.effect?.kind === 'leave') this.#mode = { kind: 'reason', editor: openEditor([]) };
    else if (step.effect) {
      void this.#decide(first, { decision: 'answer', answer: step.effect.answer });
    }
  }

  async #decide({ approval, decide }: Open, decision: Decision): Promise<void> {
    const before = this.#mode;
    this.#deciding = approval.id;
    this.#mode = { kind: 'busy' };
    try {
      const { state, missing } = await decide(decision);
      const more = missing > 0 ? `; ${missing} more needed` : '';
      this.#note(`${decidedWords(state, decision)}${more}: ${subjectOf(approval, decision)}`);
      this.#deciding = undefined;
      this.#remove(approval.id);
      return;
    } catch (error) {
      this.#mode = before;
      const problem = oneLine(messageOf(error));
      const { draft } = this.#open.find((one) => one.approval.id === approval.id) ?? {};
      if (before.kind === 'form')
        this.#mode = { kind: 'form', form: refused(before.form, problem) };
      else this.#refuse(problem, decision.input === undefined ? undefined : draft);
    }
    this.#deciding = undefined;
    this.#draw();
  }

  #remove(id: string): void {
    const [first] = this.#open;
    this.#open = this.#open.filter(({ approval }) => approval.id !== id);
    this.#done += 1;
    if (this.#isLeft) return;
    if (first?.approval.id === id) void this.#begin();
    else this.#draw();
  }

  #note(text: string): void {
    const { view, colors, sink } = this.#options;
    view.print([colors.dim(squeeze(`  · ${oneLine(text)}`, sink.columns - 1))]);
  }
}

const KEYS_MODE: Mode = { kind: 'keys' };

/** The mode of a request that waits for its decision. */
function restMode({ kind, preview }: ListedApproval): Mode {
  return kind === 'question' ? { kind: 'form', form: openForm(preview.schema) } : KEYS_MODE;
}

function commandFor({ kind, id }: ListedApproval): string {
  return kind === 'question' ? `rye answer ${id} JSON` : `rye approve ${id}`;
}

function decidedWords(
  state: string,
  { decision, scope, input, hunks, comment = '' }: Decision,
): string {
  if (decision === 'deny') return comment === '' ? 'denied' : `denied (${comment})`;
  if (decision === 'answer') return 'answered';
  const words = state === 'pending' ? 'recorded' : 'approved';
  if (input !== undefined) return `${words} with another input`;
  if (hunks !== undefined) return `${words} edits ${hunks.join(', ')}`;
  return scope === undefined ? `${words} once` : `${words} for this thread`;
}

function subjectOf({ preview, id }: ListedApproval, { answer }: Decision): string {
  if (answer !== undefined) return `${preview.text} ${toText(answer)}`;
  const { title, format, text } = preview;
  return format === 'command' || format === 'url' ? text : title === '' ? id : title;
}
