import picocolors from 'picocolors';
import { describe, expect, it } from 'vitest';
import { frameOf } from '../../src/browser/frame.ts';
import { paint } from '../../src/browser/paint.ts';
import { displayWidth } from '../../src/cli/terminal-text.ts';
import type { EventDraft } from '../../src/core/events.ts';
import { userMessage } from '../log/support.ts';
import { answer, BRANCHED, opened, press, screenOf, toolResult } from './support.ts';

const plain = picocolors.createColors(false);
const ESCAPE = '\u001b';
// what the painter itself writes: cursor, erasing, and the marks round a frame
const OWN = new RegExp(`${ESCAPE}\\[(?:\\d+;1H|\\d+G|K|\\?2026[hl])`, 'g');
const ROW = new RegExp(`${ESCAPE}\\[\\d+;1H`, 'g');

const HOSTILE: readonly EventDraft[] = [
  userMessage('\u001b[2J\u001b[H\u001b]0;owned\u0007\u001b[?1049l \u009b31m bell\u0007 back\b\b'),
  userMessage('界'.repeat(90)),
  userMessage('👩‍👩‍👧‍👦🇩🇪❤️👍🏽 '.repeat(30)),
  userMessage('שלום مرحبا \u202eevil\u202c\u2066 '.repeat(20)),
  userMessage('a\tb\0c\r\nd\u2028e\u0085f\rg'),
  userMessage(`e${'\u0301'.repeat(2000)}`),
  userMessage('\ud800 lone'),
  answer([
    { type: 'thinking', text: 'I\u001b[31mthink\tso' },
    { type: 'tool_call', call_id: 'c\u001b1', name: 'na\nme', input: { 'ke\u001by': 'va\tl\nue' } },
  ]),
  toolResult('c\u001b1', '\u001b[8mhidden'),
  { event_type: 'label', payload: { target_id: 'e1', label: 'la\u001b[5mbel\n2' } },
];

describe('the screen', () => {
  it('has the size of the terminal for any content of the log', () => {
    for (const columns of [20, 40, 72, 80, 131]) {
      for (const rows of [4, 10, 24]) {
        let { state } = press(opened(HOSTILE, { columns, rows }), '5', 'g');
        for (const _ of HOSTILE) {
          for (const view of [state, press(state, 'enter').state, press(state, '?').state]) {
            const screen = screenOf(view);
            expect(screen).toHaveLength(rows);
            for (const line of screen) expect(displayWidth(line)).toBeLessThanOrEqual(columns);
          }
          state = press(state, 'down').state;
        }
      }
    }
  });

  it('lets no control character of the log through', () => {
    let { state } = press(opened(HOSTILE), '5', 'g');
    for (const _ of HOSTILE) {
      const { output } = paint(frameOf(state), { last: undefined, colors: plain });
      expect(output.replaceAll(OWN, '')).not.toMatch(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/u);
      state = press(state, 'down').state;
    }
  });

  it('shows calls, results and thinking for reading', () => {
    const drafts = [
      userMessage('q'),
      answer([
        { type: 'thinking', text: 'Which file?' },
        { type: 'text', text: 'I look.' },
        { type: 'tool_call', call_id: 'c1', name: 'read', input: { path: 'a.ts', lines: [1, 2] } },
      ]),
    ];
    const pane = screenOf(opened(drafts))
      .slice(1, -2)
      .map((line) => line.split('│ ')[1] ?? '');
    expect(pane.slice(0, 17)).toEqual([
      'assistant',
      'e2 · seq 2 · 2026-02-17T10:00:56.001Z',
      'the leaf',
      '',
      'thinking',
      'Which file?',
      '',
      'I look.',
      '',
      '→ read',
      'c1',
      'path: a.ts',
      'lines: [',
      '  1,',
      '  2',
      ']',
      '',
    ]);
  });

  it('gives the entry the whole of a narrow screen', () => {
    const narrow = opened(BRANCHED, { columns: 40, rows: 12 });
    expect(screenOf(narrow).join('\n')).not.toContain('│');
    const entry = screenOf(press(narrow, 'enter').state);
    expect(entry[1]).toBe('assistant');
    expect(entry.join('\n')).toContain('A semicolon is missing.');
  });

  it('truncates a text that is too long for a pane and shows how much is hidden', () => {
    const state = press(opened([userMessage('word '.repeat(50_000))]), 'enter', 'end').state;
    expect(screenOf(state).join('\n')).toContain('50000 more characters');
  });

  it('paints only the rows that changed', () => {
    const state = opened();
    const first = paint(frameOf(state), { last: undefined, colors: plain });
    const same = paint(frameOf(state), { last: first.lines, colors: plain });
    expect(same.output).toBe('');
    const typed = press(state, '/', '"x"').state;
    const { output } = paint(frameOf(typed), { last: first.lines, colors: plain });
    expect(output.match(ROW)).toEqual(['\u001b[20;1H']);
  });

  it('marks the selection with a sign, not with color alone', () => {
    expect(screenOf(opened()).filter((line) => line.startsWith('›'))).toHaveLength(1);
  });
});
