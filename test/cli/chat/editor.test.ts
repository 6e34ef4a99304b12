import { describe, expect, it } from 'vitest';
import { colorsOf } from '../../../src/faces/cli/output.ts';
import { type Editor, openEditor, press } from '../../../src/faces/ui/chat/editor.ts';
import { drawField } from '../../../src/faces/ui/chat/input-field.ts';
import { MessageLines, messageOfText } from '../../../src/faces/ui/chat/message-lines.ts';
import { graphemesOf } from '../../../src/faces/ui/terminal-text.ts';
import { chatLineOf, completionsOf } from '../../../src/kernel/app/chat-commands.ts';
import { createFakeIo } from '../../helpers/fake-io.ts';

/** Presses keys by name; a text in quotes is typed. Returns the field and what was sent. */
function typed(keys: readonly string[], history: readonly string[] = []) {
  let editor: Editor = openEditor(history);
  const effects: unknown[] = [];
  for (const key of keys) {
    const texts = key.startsWith('"') ? graphemesOf(key.slice(1, -1)) : [undefined];
    for (const text of texts) {
      const step = press(editor, text === undefined ? { name: key } : { name: text, text });
      editor = step.editor;
      if (step.effect) effects.push(step.effect);
    }
  }
  return { text: editor.text, cursor: editor.cursor, effects, editor };
}

describe('the input field', () => {
  it('edits like a shell', () => {
    for (const [keys, text, cursor] of [
      [['"one two"', 'ctrl+w', '"2"'], 'one 2', 5],
      [['"abc"', 'left', 'left', '"x"'], 'axbc', 2],
      [['"abc"', 'ctrl+a', 'ctrl+k', '"z"', 'ctrl+y'], 'zabc', 4],
      [['"a b"', 'alt+b', 'ctrl+u'], 'b', 0],
      [['"ab"', 'home', 'delete', 'end', 'backspace'], '', 0],
      [['"a👩‍👩‍👧b"', 'left', 'backspace'], 'ab', 1],
      [['"x"', 'newline', '"y"', 'up', '"1"', 'down', '"2"'], 'x1\ny2', 5],
      [['"a"', 'alt+enter', '"b"', 'ctrl+a', 'left', 'backspace'], '\nb', 0],
    ] as const) {
      expect(typed(keys), keys.join(' ')).toMatchObject({ text, cursor });
    }
  });

  it('sends with Enter, clears with Ctrl-C, and ends with Ctrl-D in an empty field only', () => {
    expect(typed(['"hi"', 'enter']).effects).toEqual([{ kind: 'send', text: 'hi' }]);
    expect(typed(['"hi"', 'ctrl+c'])).toMatchObject({ text: '', effects: [] });
    expect(typed(['ctrl+c']).effects).toEqual([{ kind: 'interrupt' }]);
    expect(typed(['"hi"', 'ctrl+d']).effects).toEqual([]);
    expect(typed(['ctrl+d']).effects).toEqual([{ kind: 'end' }]);
    expect(typed(['"a\\"', 'enter', '"b"', 'enter']).effects).toEqual([
      { kind: 'send', text: 'a\nb' },
    ]);
    expect(typed(['"a\\\\"', 'enter']).effects).toEqual([{ kind: 'send', text: 'a\\\\' }]);
  });

  it('recalls earlier messages, keeps the draft, and searches', () => {
    const history = ['first', 'second'];
    expect(typed(['"new"', 'up', 'up'], history).text).toBe('first');
    expect(typed(['"new"', 'up', 'up', 'up', 'down', 'down'], history).text).toBe('new');
    expect(typed(['ctrl+r', '"f"'], history).text).toBe('first');
    expect(typed(['ctrl+r', '"s"', 'ctrl+r'], history).text).toBe('first');
    expect(typed(['"x"', 'ctrl+r', '"s"', 'ctrl+c'], history).text).toBe('x');
    expect(typed(['" hidden"', 'enter', 'up'], history).text).toBe('second');
  });

  it('is drawn within its rows and columns, with the cursor in sight', () => {
    const io = createFakeIo();
    const colors = colorsOf(io.stdout, { io, global: { color: false } } as never);
    const { editor } = typed([`"${'word '.repeat(20)}"`]);
    for (const columns of [5, 20, 60]) {
      const { lines, cursor } = drawField(editor, { columns, rows: 3, colors, hint: 'hint' });
      expect(lines.length).toBeLessThanOrEqual(3);
      expect(cursor.row).toBeLessThan(lines.length);
      for (const line of lines) expect(line.length).toBeLessThanOrEqual(columns);
    }
    const empty = drawField(openEditor([]), { columns: 40, rows: 3, colors, hint: 'hint' });
    expect(empty).toEqual({ lines: ['› hint'], cursor: { row: 0, column: 2 } });
    const hostile = { ...editor, text: 'a\u001b[31m\u202eb', cursor: 0 };
    const drawn = drawField(hostile, { columns: 40, rows: 3, colors, hint: '' }).lines.join('');
    expect(drawn).not.toContain('\u001b');
    expect(drawn).not.toContain('\u202e');
  });
});

describe('messages and commands', () => {
  it('joins continued lines and blocks', () => {
    const lines = new MessageLines();
    expect(lines.take('')).toBeUndefined();
    expect(lines.take('a\\')).toBeUndefined();
    expect(lines.take('b')).toBe('a\nb');
    expect(lines.take('"""x')).toBeUndefined();
    expect(lines.take('')).toBeUndefined();
    expect(lines.take('y"""')).toBe('x\n\ny');
    expect(lines.take('open\\')).toBeUndefined();
    expect(lines.end()).toBe('open');
    expect(lines.end()).toBeUndefined();
    expect(messageOfText('"""\nx\n"""')).toBe('x');
    expect(messageOfText('"x" y')).toBe('"x" y');
  });

  it('tells commands from messages, and refuses misspelt ones', () => {
    expect(chatLineOf('/model opus fast ')).toEqual({ name: 'model', rest: 'opus fast' });
    expect(chatLineOf('/exit')).toEqual({ name: 'quit', rest: '' });
    for (const message of ['hi', ' /help', '/etc/hosts', '// a comment', '1/2']) {
      expect(chatLineOf(message), message).toBeUndefined();
    }
    for (const typo of ['/modle x', '/', '/quti'])
      expect(() => chatLineOf(typo), typo).toThrow(/unknown/);
    expect(completionsOf('/co')).toEqual(['/cost', '/compact']);
    expect(completionsOf('co')).toEqual([]);
  });
});
