import { completionsOf } from '../../../kernel/app/chat-commands.ts';
import type { Key } from '../keyboard.ts';
import { isOpenBlock } from './message-lines.ts';

/** The input field: its text, the cursor, and the messages that the arrow keys bring back. */
export interface Editor {
  readonly text: string;
  /** Position in the text, in UTF-16 units. */
  readonly cursor: number;
  /** Earlier messages, oldest first. */
  readonly history: readonly string[];
  /** Position in the history; its length: the text is a new one. */
  readonly at: number;
  /** The new text while an earlier message is shown. */
  readonly draft: string;
  /** Text that Ctrl-U, Ctrl-K and Ctrl-W removed last. */
  readonly killed: string;
  /** Long texts that were pasted, by the character in the text that represents each; absent: pastes are inserted in full. */
  readonly pastes?: ReadonlyMap<string, string>;
  /** Set during Ctrl-R. */
  readonly search?: { readonly query: string; readonly at: number };
}

/** `interrupt`: Ctrl-C with nothing to clear. `end`: Ctrl-D in an empty field. */
export type EditorEffect =
  | { readonly kind: 'send'; readonly text: string }
  | { readonly kind: 'interrupt' | 'end' | 'escape' | 'suspend' };

export interface EditorStep {
  readonly editor: Editor;
  readonly effect?: EditorEffect;
}

/** Maximum characters of the field: the maximum of a message. */
const MAX_CHARS = 256 * 1024;

export function openEditor(history: readonly string[]): Editor {
  return { text: '', cursor: 0, history, at: history.length, draft: '', killed: '' };
}

/** Replaces the text, with the cursor at its end. */
export function withText(editor: Editor, text: string): Editor {
  return { ...editor, text, cursor: text.length };
}

/** Replaces the text by one that may be long, which is then shown as a paste is. */
export function withDraft(editor: Editor, text: string): Editor {
  return pasted({ ...editor, text: '', cursor: 0 }, text);
}

/** A paste of more lines or characters than this is shown by its size. */
const FOLDED_LINES = 10;
const FOLDED_CHARS = 1000;
/** The first of the private characters that represent pastes. */
const FIRST_MARK = 0x10_0000;

function pasted(editor: Editor, text: string): Editor {
  const { pastes } = editor;
  const isLong = text.length > FOLDED_CHARS || text.split('\n').length > FOLDED_LINES;
  if (!pastes || !isLong) return inserted(editor, text);
  const room = MAX_CHARS - unfolded(editor, editor.text).length;
  const mark = String.fromCodePoint(FIRST_MARK + pastes.size);
  const known = new Map([...pastes, [mark, text.slice(0, Math.max(0, room))]]);
  return inserted({ ...editor, pastes: known }, mark);
}

/** Returns a text of the field with its pastes in full. */
export function unfolded({ pastes }: Pick<Editor, 'pastes'>, text: string): string {
  return withMarks(pastes, text, (paste) => paste);
}

/** Returns a text of the field as it is shown: with `[pasted 300 lines]` for each paste. */
export function labelled({ pastes }: Pick<Editor, 'pastes'>, text: string): string {
  return withMarks(pastes, text, pasteLabel);
}

/** Returns a text as it is shown outside of the field: a long one by its size. */
export function folded(text: string): string {
  const editor = withDraft({ ...openEditor([]), pastes: new Map() }, text);
  return labelled(editor, editor.text);
}

/** Returns the words that represent a long text. */
function pasteLabel(text: string): string {
  const lines = text.replace(/\n$/, '').split('\n').length;
  return lines > 1 ? `[pasted ${lines} lines]` : `[pasted ${text.length} characters]`;
}

function withMarks(
  pastes: Editor['pastes'],
  text: string,
  shown: (paste: string) => string,
): string {
  if (!pastes || pastes.size === 0) return text;
  return text.replaceAll(/[\u{100000}-\u{10ffff}]/gu, (mark) => {
    const paste = pastes.get(mark);
    return paste === undefined ? mark : shown(paste);
  });
}

/** Applies a key. */
export function press(editor: Editor, key: Key): EditorStep {
  if (editor.search !== undefined) return searching(editor, editor.search, key);
  const action = Object.hasOwn(ACTIONS, key.name) ? ACTIONS[key.name] : undefined;
  if (action !== undefined) return action(editor);
  if (key.text === undefined) return { editor };
  return { editor: (key.name === 'paste' ? pasted : inserted)(editor, key.text) };
}

type Action = (editor: Editor) => EditorStep;

const effect =
  (kind: Exclude<EditorEffect['kind'], 'send'>): Action =>
  (editor) => ({ editor, effect: { kind } });
const edit =
  (change: (editor: Editor) => Editor): Action =>
  (editor) => ({ editor: change(editor) });
const moveTo = (place: (editor: Editor) => number): Action =>
  edit((editor) => ({ ...editor, cursor: place(editor) }));
const newline = edit((editor) => inserted(editor, '\n'));

const ACTIONS: Readonly<Record<string, Action>> = {
  enter: submit,
  newline,
  'alt+enter': newline,
  'shift+enter': newline,
  left: moveTo(before),
  'ctrl+b': moveTo(before),
  right: moveTo(after),
  'ctrl+f': moveTo(after),
  home: moveTo(lineStart),
  'ctrl+a': moveTo(lineStart),
  end: moveTo(lineEnd),
  'ctrl+e': moveTo(lineEnd),
  'alt+b': moveTo(wordStart),
  'ctrl+left': moveTo(wordStart),
  'alt+left': moveTo(wordStart),
  'alt+f': moveTo(wordEnd),
  'ctrl+right': moveTo(wordEnd),
  'alt+right': moveTo(wordEnd),
  up: edit((editor) => vertical(editor, -1)),
  'ctrl+p': edit((editor) => vertical(editor, -1)),
  down: edit((editor) => vertical(editor, 1)),
  'ctrl+n': edit((editor) => vertical(editor, 1)),
  backspace: edit((editor) => removed(editor, before(editor), editor.cursor)),
  'ctrl+h': edit((editor) => removed(editor, before(editor), editor.cursor)),
  delete: edit((editor) => removed(editor, editor.cursor, after(editor))),
  'ctrl+d': (editor) =>
    editor.text === ''
      ? { editor, effect: { kind: 'end' } }
      : { editor: removed(editor, editor.cursor, after(editor)) },
  'ctrl+u': edit((editor) => killed(editor, lineStart(editor), editor.cursor)),
  'ctrl+k': edit((editor) => killed(editor, editor.cursor, lineEnd(editor))),
  'ctrl+w': edit((editor) => killed(editor, wordStart(editor), editor.cursor)),
  'alt+backspace': edit((editor) => killed(editor, wordStart(editor), editor.cursor)),
  'alt+d': edit((editor) => killed(editor, editor.cursor, wordEnd(editor))),
  'ctrl+y': edit((editor) => inserted(editor, editor.killed)),
  'ctrl+r': edit((editor) => ({
    ...editor,
    draft: editor.text,
    search: { query: '', at: editor.history.length },
  })),
  tab: edit(completed),
  'ctrl+c': (editor) =>
    editor.text === ''
      ? { editor, effect: { kind: 'interrupt' } }
      : { editor: { ...withText(editor, ''), at: editor.history.length } },
  'ctrl+o': edit((editor) => withText(editor, unfolded(editor, editor.text))),
  escape: effect('escape'),
  'ctrl+z': effect('suspend'),
};

/** Sends the text, unless it ends in a backslash or in an open block: then the message has another line. */
function submit(editor: Editor): EditorStep {
  const { text, cursor } = editor;
  if (cursor === text.length && /(?:^|[^\\])(?:\\\\)*\\$/.test(text)) {
    return { editor: withText(editor, `${text.slice(0, -1)}\n`) };
  }
  if (isOpenBlock(text)) return { editor: inserted(editor, '\n') };
  if (text.trim() === '')
    return { editor: withText(editor, ''), effect: { kind: 'send', text: '' } };
  const { history } = editor;
  const isKept = !text.startsWith(' ') && history.at(-1) !== text;
  const next = isKept ? [...history, text] : history;
  return {
    editor: { ...withText(editor, ''), history: next, at: next.length, draft: '' },
    effect: { kind: 'send', text },
  };
}

function inserted(editor: Editor, text: string): Editor {
  const room = MAX_CHARS - unfolded(editor, editor.text).length;
  const fits = text.slice(0, Math.max(0, room));
  const { cursor } = editor;
  return {
    ...editor,
    text: editor.text.slice(0, cursor) + fits + editor.text.slice(cursor),
    cursor: cursor + fits.length,
  };
}

function removed(editor: Editor, from: number, to: number): Editor {
  return { ...editor, text: editor.text.slice(0, from) + editor.text.slice(to), cursor: from };
}

function killed(editor: Editor, from: number, to: number): Editor {
  if (from === to) return editor;
  return { ...removed(editor, from, to), killed: editor.text.slice(from, to) };
}

function lineStart({ text, cursor }: Editor): number {
  return text.lastIndexOf('\n', cursor - 1) + 1;
}

function lineEnd({ text, cursor }: Editor): number {
  const end = text.indexOf('\n', cursor);
  return end === -1 ? text.length : end;
}

const segmenter = new Intl.Segmenter();

/** Returns the position before the character at the left of the cursor. Looks at its line only. */
function before(editor: Editor): number {
  const { text, cursor } = editor;
  const start = lineStart(editor);
  if (cursor === start) return Math.max(0, cursor - 1);
  let last = start;
  for (const { index } of segmenter.segment(text.slice(start, cursor))) last = start + index;
  return last;
}

function after(editor: Editor): number {
  const { text, cursor } = editor;
  const end = lineEnd(editor);
  if (cursor === end) return Math.min(text.length, cursor + 1);
  const [first] = segmenter.segment(text.slice(cursor, end));
  return cursor + (first?.segment.length ?? 1);
}

function wordStart({ text, cursor }: Editor): number {
  return cursor - (/[\p{L}\p{N}_]*[^\p{L}\p{N}_]*$/u.exec(text.slice(0, cursor))?.[0].length ?? 0);
}

function wordEnd({ text, cursor }: Editor): number {
  return cursor + (/^[^\p{L}\p{N}_]*[\p{L}\p{N}_]*/u.exec(text.slice(cursor))?.[0].length ?? 0);
}

/** Moves by a line of the text, at its first or last line by a message of the history. */
function vertical(editor: Editor, by: -1 | 1): Editor {
  const { text, cursor } = editor;
  const start = lineStart(editor);
  const column = cursor - start;
  if (by === -1 && start > 0) {
    const previous = text.lastIndexOf('\n', start - 2) + 1;
    return { ...editor, cursor: Math.min(previous + column, start - 1) };
  }
  const end = lineEnd(editor);
  if (by === 1 && end < text.length) {
    const next = text.indexOf('\n', end + 1);
    return { ...editor, cursor: Math.min(end + 1 + column, next === -1 ? text.length : next) };
  }
  return recalled(editor, editor.at + by);
}

function recalled(editor: Editor, at: number): Editor {
  const { history, text } = editor;
  if (at < 0 || at > history.length) return editor;
  const draft = editor.at === history.length ? text : editor.draft;
  return { ...withText(editor, at === history.length ? draft : (history[at] ?? '')), at, draft };
}

/** Completes a command as far as it is certain. */
function completed(editor: Editor): Editor {
  const names = completionsOf(editor.text);
  const [first = ''] = names;
  let length = first.length;
  while (length > 0 && !names.every((name) => name.startsWith(first.slice(0, length)))) length -= 1;
  if (length <= editor.text.length && names.length !== 1) return editor;
  return withText(editor, names.length === 1 ? `${first} ` : first.slice(0, length));
}

/** The keys of Ctrl-R: characters narrow the search, Ctrl-R looks further back, Enter sends, Escape keeps the text. */
function searching(editor: Editor, search: NonNullable<Editor['search']>, key: Key): EditorStep {
  const { search: _search, ...plain } = editor;
  if (key.name === 'ctrl+c' || key.name === 'ctrl+g') {
    return { editor: withText(plain, editor.draft) };
  }
  if (key.name === 'ctrl+r') return { editor: found(editor, search.query, search.at) };
  if (key.name === 'backspace') {
    return { editor: found(editor, search.query.slice(0, -1), editor.history.length) };
  }
  if (key.text !== undefined && key.name !== 'paste') {
    return { editor: found(editor, search.query + key.text, editor.history.length) };
  }
  if (key.name === 'escape') return { editor: plain };
  return press(plain, key);
}

/** Shows the newest message before `below` that has the query. Without one, the text stays. */
function found(editor: Editor, query: string, below: number): Editor {
  const wanted = query.toLowerCase();
  const at =
    query === '' || below <= 0
      ? -1
      : editor.history.findLastIndex(
          (text, index) => index < below && text.toLowerCase().includes(wanted),
        );
  if (at === -1)
    return {
      ...editor,
      search: { query, at: query === '' ? below : (editor.search?.at ?? below) },
    };
  return { ...withText(editor, editor.history[at] ?? ''), at, search: { query, at } };
}
