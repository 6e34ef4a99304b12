import { describe, expect, it } from 'vitest';
import { openState, withSize, withSource } from '../../src/faces/ui/browser/state.ts';
import { userMessage } from '../log/support.ts';
import {
  answer,
  BRANCHED,
  chosenId,
  opened,
  press,
  screenOf,
  sourceOf,
  toolResult,
  treeOf,
} from './support.ts';

/** Keys that bring the choice from the head to e2, the labeled call. */
const TO_CALL = ['g', 'down'] as const;

describe('the browser', () => {
  it('opens at the first entry, and a follower at the leaf, the active branch first', () => {
    const first = openState(sourceOf(BRANCHED), { columns: 60, rows: 5 });
    expect(chosenId(first)).toBe('e1');
    expect(treeOf(first)[0]).toBe('› ● user  What is wrong?');
    const state = opened();
    expect(treeOf(state)).toEqual([
      '  ● user  What is wrong?',
      '  ● model [the call] → read a.ts',
      '  ● tool  read a.ts → export const a = 1;',
      '  ├─● user  Look again.',
      '› │ ◆ model A semicolon is missing.',
      '  └─○ model Nothing is wrong.',
    ]);
    expect(chosenId(state)).toBe('e8');
  });

  it.each([
    [['up'], 'e7'],
    [['k', 'k'], 'e3'],
    [['down'], 'e4'],
    [['j', 'j', 'j'], 'e4'],
    [['g'], 'e1'],
    [['home'], 'e1'],
    [['g', 'up'], 'e1'],
    [['shift+g'], 'e4'],
    [['end'], 'e4'],
    [['g', 'pageDown'], 'e4'],
    [['shift+g', 'pageUp'], 'e1'],
    [['g', 'a'], 'e8'],
    [['left'], 'e7'],
    [['g', 'right'], 'e7'],
    [['g', 'right', 'right'], 'e4'],
  ])('moves by %j to %s', (keys, id) => {
    expect(chosenId(press(opened(), ...keys).state)).toBe(id);
  });

  it('folds a branch, shows how much is hidden, and unfolds it', () => {
    const folded = press(opened(), 'up', 'left').state;
    expect(treeOf(folded).slice(3)).toEqual([
      '› ├─● user  (+1 folded) Look again.',
      '  └─○ model Nothing is wrong.',
    ]);
    expect(chosenId(press(folded, 'down').state)).toBe('e4');
    expect(treeOf(press(folded, 'right').state)).toHaveLength(6);
    expect(treeOf(press(opened(), 'g', 'h').state)).toEqual([
      '› ● user  (+5 folded) What is wrong?',
    ]);
  });

  it.each([
    ['1', '[1 default]', 6],
    ['2', '[2 no-tools]', 4],
    ['3', '[3 user-only]', 2],
    ['4', '[4 labeled-only]', 1],
    ['5', '[5 all]', 8],
  ])('filters with %s', (key, tab, rows) => {
    const { state } = press(opened(), key);
    expect(screenOf(state)[0]).toContain(tab);
    expect(treeOf(state)).toHaveLength(rows);
  });

  it('goes through the filters both ways and keeps the choice where it is shown', () => {
    const call = press(opened(), ...TO_CALL).state;
    expect(press(call, 'v').state.filter).toBe('no-tools');
    expect(press(call, 'p').state.filter).toBe('all');
    expect(press(call, 'shift+ctrl+o').state.filter).toBe('all');
    expect(press(call, 'ctrl+o').state.filter).toBe('no-tools');
    expect(press(call, 'v', 'v', 'v', 'v', 'v').state.filter).toBe('default');
    expect(chosenId(press(call, '5').state)).toBe('e2');
    expect(chosenId(press(call, '3').state)).toBe('e1');
    expect(chosenId(press(call, '4', '1').state)).toBe('e2');
  });

  it('shows a notice if a filter hides everything', () => {
    const { state } = press(opened([userMessage('a')]), '4');
    expect(treeOf(state)).toEqual(['this filter shows nothing']);
    for (const key of ['down', 'left', 'right', 'enter', 'shift+l', 'b', 'r', 'n', '/']) {
      expect(press(state, key).effect).toBeUndefined();
    }
  });

  it('searches with wrap-around, opens folds, and repeats with n and N', () => {
    const state = press(opened(), 'g', 'left').state;
    const first = press(state, '/', '"WRONG"', 'enter').state;
    expect(chosenId(first)).toBe('e4');
    expect(first.outline.folded.size).toBe(0);
    const round = press(first, 'n').state;
    expect([chosenId(round), round.notice]).toEqual(['e1', 'search wrapped around']);
    expect(chosenId(press(round, 'shift+n').state)).toBe('e4');
    expect(press(state, '/', '"zebra"', 'enter').state.notice).toBe('no match for “zebra”');
    expect(press(state, 'n').state.notice).toBe('press / to search first');
    expect(chosenId(press(state, '/', '"the call"', 'enter').state)).toBe('e2');
  });

  it('edits what is typed', () => {
    const typed = press(opened(), '/', '"ab cd"', 'backspace', 'ctrl+w', '"é"').state;
    expect(typed.mode).toMatchObject({ text: 'ab é' });
    expect(press(typed, 'ctrl+u').state.mode).toMatchObject({ text: '' });
    expect(press(typed, 'escape').state.mode).toEqual({ kind: 'browse' });
    expect(press(typed, 'q').state.mode).toMatchObject({ text: 'ab éq' });
  });

  it('labels the chosen entry, begins with the label it has, and clears', () => {
    expect(press(opened(), 'shift+l', '"here"', 'enter').effect).toEqual({
      kind: 'label',
      entry: 'e8',
      label: 'here',
    });
    const call = press(opened(), ...TO_CALL, 'shift+l').state;
    expect(call.mode).toMatchObject({ text: 'the call' });
    expect(press(call, 'ctrl+u', 'enter').effect).toEqual({
      kind: 'label',
      entry: 'e2',
      label: null,
    });
  });

  it('branches and resumes only after a yes', () => {
    const asked = press(opened(), ...TO_CALL, 'b');
    expect(asked.effect).toBeUndefined();
    expect(screenOf(asked.state).at(-1)).toContain('y/n Move the head to e2');
    for (const no of ['n', 'escape', 'q']) {
      expect(press(asked.state, no)).toMatchObject({ state: { notice: 'nothing was changed' } });
      expect(press(asked.state, no).effect).toBeUndefined();
    }
    expect(press(asked.state, 'enter').effect).toBeUndefined();
    expect(press(asked.state, 'y').effect).toEqual({ kind: 'branch', entry: 'e2' });
    const written = press(opened(), 'r', '"continue"', 'enter');
    expect(written.effect).toBeUndefined();
    expect(press(written.state, 'y').effect).toEqual({
      kind: 'resume',
      entry: 'e8',
      message: 'continue',
    });
    expect(press(opened(), 'r', 'enter', 'y').effect).toMatchObject({ message: '' });
  });

  it('branches with a summary by the model or by the person, and not to the head', () => {
    const asked = press(opened(), ...TO_CALL, 'b').state;
    const branch = { kind: 'branch', entry: 'e2' };
    expect(press(asked, 'm').effect).toEqual({ ...branch, summary: 'model' });
    const typing = press(asked, 't', '"It failed."');
    expect(screenOf(typing.state).at(-1)).toContain('summary of the branch you leave: It failed.');
    expect(press(typing.state, 'enter').effect).toEqual({
      ...branch,
      summary: { text: 'It failed.' },
    });
    const empty = press(asked, 't', 'enter');
    expect([empty.effect, empty.state.notice]).toEqual([undefined, 'nothing was changed']);
    expect(press(opened(), 'b').state.notice).toBe('the head is there already');
  });

  it('opens the thread that a call started, returns and follows', () => {
    const input = { item_type: 'directive', item_id: 'demo/kid' };
    const drafts = [
      answer([{ type: 'tool_call', call_id: 'c1', name: 'rye_execute', input }]),
      toolResult(
        'c1',
        '{"thread_id":"kid-1","status":"completed","result":"Nothing."}',
        'rye_execute',
      ),
    ];
    const state = opened(drafts);
    expect(treeOf(state)).toEqual(['› ◆ tool  kid → completed: Nothing.']);
    expect(press(state, 'enter').effect).toEqual({ kind: 'open', thread: 'kid-1' });
    expect(press(state, 'tab').state.focus).toBe('entry');
    for (const key of ['escape', 'backspace']) {
      expect(press(state, key).effect).toEqual({ kind: 'back' });
    }
    for (const key of ['f', 'shift+f']) {
      expect(press(state, key).effect).toEqual({ kind: 'follow' });
    }
  });

  it('stays at the head while it follows, else at the choice', () => {
    const source = sourceOf([...BRANCHED, userMessage('more')]);
    const following = { ...opened(), isFollowing: true };
    expect(chosenId(withSource(following, source, ''))).toBe('e9');
    const elsewhere = press(following, 'g').state;
    expect(chosenId(withSource(elsewhere, source, ''))).toBe('e1');
  });

  it('searches the full text, the arguments and the results', () => {
    const input = { path: 'src/deep.ts', edits: [{ old_string: 'needle in arguments' }] };
    const drafts = [
      userMessage(`${'word '.repeat(200)} needle at the end`),
      answer([{ type: 'tool_call', call_id: 'c1', name: 'edit', input }]),
      toolResult('c1', `${'line\n'.repeat(500)} needle in the result`, 'edit'),
      answer([{ type: 'text', text: 'Done.' }]),
    ];
    const state = opened(drafts);
    for (const [query, id] of [
      ['"needle end"', 'e1'],
      ['"needle arguments"', 'e3'],
      ['"needle result"', 'e3'],
      ['"DEEP.TS"', 'e3'],
    ] as const) {
      expect([query, chosenId(press(state, '/', query, 'enter').state)]).toEqual([query, id]);
    }
  });

  it('scrolls the entry no further than its end', () => {
    const text = Array.from({ length: 50 }, (_, at) => `line ${at}`).join('\n');
    const state = press(opened([userMessage(text)]), 'enter').state;
    expect(screenOf(state).join('\n')).toContain('line 0');
    const end = press(state, 'end').state;
    expect(screenOf(end).join('\n')).toContain('line 49');
    expect(press(end, 'down', 'pageDown').state.scroll).toBe(end.scroll);
    expect(press(end, 'g', 'up').state.scroll).toBe(0);
    expect(press(end, 'escape').state.focus).toBe('tree');
  });

  it('quits', () => {
    expect(press(opened(), 'q').effect).toEqual({ kind: 'quit' });
    expect(press(opened(), '/', 'ctrl+c').effect).toEqual({ kind: 'quit' });
  });

  it('keeps the choice when the tree was written to', () => {
    const state = press(opened(), ...TO_CALL).state;
    const more = sourceOf([...BRANCHED, userMessage('more')]);
    const next = withSource(state, more, 'done');
    expect([chosenId(next), next.notice, next.source.total]).toEqual(['e2', 'done', 9]);
    expect(press(next, 'up').state.notice).toBe('');
  });

  it('shows help, and scrolls it on a small screen', () => {
    const { state } = press(opened(BRANCHED, { columns: 40, rows: 10 }), '?');
    expect(screenOf(state)[1]).toContain('one entry up or down');
    expect(screenOf(press(state, 'down').state)[1]).not.toContain('one entry up or down');
    expect(press(state, 'q')).toMatchObject({ state: { mode: { kind: 'browse' } } });
    expect(press(state, 'q').effect).toBeUndefined();
  });

  it('keeps the choice in sight on any size', () => {
    const long = Array.from({ length: 60 }, (_, at) => userMessage(`m${at}`));
    for (const size of [
      { columns: 200, rows: 50 },
      { columns: 40, rows: 8 },
      { columns: 10, rows: 4 },
      { columns: 80, rows: 24 },
    ]) {
      const state = withSize(press(opened(long), 'up', 'up').state, size);
      const screen = screenOf(state);
      expect(screen).toHaveLength(size.rows);
      expect(screen.filter((line) => line.startsWith('›'))).toHaveLength(1);
    }
  });

  it('goes through a long conversation without branches', () => {
    const drafts = Array.from({ length: 20_000 }, (_, at) =>
      answer([{ type: 'text', text: `a${at}` }]),
    );
    const state = opened(drafts);
    expect(chosenId(press(state, 'g').state)).toBe('e1');
    expect(chosenId(press(state, 'g', 'right').state)).toBe('e20000');
  });
});
