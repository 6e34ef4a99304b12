import { describe, expect, it } from 'vitest';
import { frameOf } from '../../src/faces/ui/browser/frame.ts';
import { paint } from '../../src/faces/ui/browser/paint.ts';
import { atLeaf, openState } from '../../src/faces/ui/browser/state.ts';
import { createColors } from '../../src/faces/ui/colors.ts';
import { displayWidth } from '../../src/faces/ui/terminal-text.ts';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { userMessage } from '../log/support.ts';
import {
  answer,
  BRANCHED,
  opened,
  paneOf,
  press,
  screenOf,
  sourceOf,
  toolResult,
  treeOf,
} from './support.ts';

const plain = createColors(false);
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
    expect(paneOf(opened(drafts)).slice(0, 17)).toEqual([
      'model',
      '2026-02-17 10:00:56 UTC · entry e2',
      'the head: the conversation continues here',
      '',
      'thinking',
      'Which file?',
      '',
      'I look.',
      '',
      'read',
      'path: a.ts',
      'lines:',
      '[',
      '  1,',
      '  2',
      ']',
      '',
    ]);
  });

  it('gives the entry the whole of a narrow screen', () => {
    const narrow = opened(BRANCHED, { columns: 40, rows: 12 });
    expect(frameOf(narrow).rows.filter(({ right }) => right)).toEqual([]);
    const entry = screenOf(press(narrow, 'enter').state);
    expect(entry[1]).toBe('model');
    expect(entry.join('\n')).toContain('A semicolon is missing.');
  });

  it('truncates a text that is too long for a pane and shows how much is hidden', () => {
    const state = press(opened([userMessage('word '.repeat(50_000))]), 'enter', 'end').state;
    expect(screenOf(state).join('\n')).toContain('50000 more characters');
  });

  it('renders Markdown, formats JSON and colors the change of an edit', () => {
    const edit = { path: 'a.ts', old_string: 'one\ntwo\nthree', new_string: 'one\n2\nthree' };
    const drafts = [
      userMessage('# Title\n\n- **bold** item\n1. `code`\n> quoted\n```ts\nlet a;\n```'),
      answer([{ type: 'tool_call', call_id: 'c1', name: 'rye_file_system_edit', input: edit }]),
      toolResult('c1', '{"lines":[1],"ok":true}', 'rye_file_system_edit'),
    ];
    const state = opened(drafts);
    expect(paneOf(press(state, 'g').state).slice(4, 10)).toEqual([
      'Title',
      '',
      '• bold item',
      '1. code',
      '▏ quoted',
      'let a;',
    ]);
    expect(paneOf(state).slice(4, 19)).toEqual([
      'rye_file_system_edit',
      'path: a.ts',
      '  one',
      '- two',
      '+ 2',
      '  three',
      '',
      '→ ok',
      '{',
      '  "lines": [',
      '    1',
      '  ],',
      '  "ok": true',
    ]);
    const styles = frameOf(state).rows.flatMap(({ right = [] }) => right);
    expect(styles).toContainEqual({ text: '- two', style: 'removed' });
    expect(styles).toContainEqual({ text: '+ 2', style: 'added' });
  });

  it('names an image with its type and its dimensions', () => {
    const data = `iVBORw0KGgoAAAANSUhEUgAAAAUAAAAF${'A'.repeat(8)}`;
    const content = [{ type: 'image', media_type: 'image/png', data }] as const;
    const draft = {
      event_type: 'message',
      payload: { message: { role: 'user', content } },
    } as const;
    expect(paneOf(opened([draft]))).toContain('[image: image/png, 5 × 5, 30 bytes]');
  });

  it('folds the markup and the standard instructions of a directive to its task', () => {
    const task =
      '<directive name="work">\n<description>Works.</description>\n<permissions><execute/></permissions>\nRead a.ts.\n</directive>\n\nCarry it out.\n\n- Begin.';
    const state = opened([userMessage(task)]);
    expect(treeOf(state)).toEqual(['› ◆ user  Read a.ts.'.padEnd(45).trimEnd()]);
    expect(paneOf(state).slice(4, 8)).toEqual([
      'directive work',
      'Read a.ts.',
      '',
      '3 lines of standard instructions are folded; `rye',
    ]);
  });

  it('shows times in a wide tree, with the date where the day changes', () => {
    const [first = '', second = ''] = treeOf(opened(BRANCHED, { columns: 200, rows: 20 }));
    expect(first).toMatch(/What is wrong\? +02-17 10:00$/);
    expect(second).toMatch(/read a\.ts +10:00$/);
  });

  it('draws the start of a run as a line between the entries', () => {
    const at = { timestamp: '2026-02-18T09:30:00.000Z', payload: {} };
    const source = sourceOf(BRANCHED, [{ ...at, text: 'run 2 · branched', seq: 6 }]);
    const state = atLeaf(openState(source, { columns: 100, rows: 20 }));
    expect(treeOf(state).slice(2)).toEqual([
      '  ● tool  read a.ts → export const a = 1;',
      '  │ ── run 2 · branched ──',
      '  ├─● user  Look again.',
      '› │ ◆ model A semicolon is missing.',
      '  └─○ model Nothing is wrong.',
    ]);
    const line = press(state, 'up', 'up').state;
    for (const key of ['b', 'shift+l', 'r']) {
      expect(press(line, key).state.notice).toBe('choose an entry first');
    }
  });

  it('refuses to branch or resume in a thread that was handed off, and names the fork', () => {
    const source = { ...sourceOf(BRANCHED), threadId: 'demo/next', firstThreadId: 'demo/count-1' };
    const state = atLeaf(openState(source, { columns: 100, rows: 20 }));
    expect(screenOf(state)[0]).toContain('demo/count-1');
    for (const key of ['b', 'r']) {
      expect(press(state, 'g', key).state.notice).toMatch(
        /was handed off. To fork it: rye threads branch \S+ --at e1 --new/,
      );
    }
    expect(press(state, 'g', 'shift+l').state.mode.kind).toBe('prompt');
  });

  it('marks the head only on the head, and states when a filter hides it', () => {
    const state = press(opened(), '3').state;
    expect(treeOf(state)).toEqual(['  ● user  What is wrong?', '› ◇ user  Look again.']);
    expect(screenOf(state).at(-2)).toContain('the filter hides the head, which is below ◇');
    expect(paneOf(state)).toContain('the head is below this entry, hidden by the filter');
    expect(screenOf(press(opened(), '4').state).at(-2)).toContain('the filter hides the head');
  });

  it('states that a message is no longer sent', () => {
    const sent = 'on another branch · no longer sent to the model';
    expect(paneOf(press(opened(), 'end').state)).toContain(sent);
    expect(paneOf(opened()).join('\n')).not.toContain('no longer sent');
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
