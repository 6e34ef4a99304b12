import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EventDraft, LogEvent } from '../../src/kernel/core/events.ts';
import { isFatalProblem } from '../../src/kernel/log/codec.ts';
import {
  branchDrafts,
  branchWithSummaryDrafts,
  extractDrafts,
  labelDraft,
} from '../../src/kernel/log/continuation.ts';
import {
  buildTree,
  childrenOf,
  entryById,
  entryByPrefix,
  pathTo,
  treeLines,
} from '../../src/kernel/log/tree.ts';
import { delta, place, userMessage } from './support.ts';

function leafTo(target_id: string | null): EventDraft {
  return { event_type: 'leaf', payload: { target_id } };
}

function label(target_id: string, text: string | null): EventDraft {
  return { event_type: 'label', payload: { target_id, label: text } };
}

/** An entry with chosen links, as a damaged file may hold it. */
function entry(seq: number, id: string, parent_id: string | null): LogEvent {
  const [event] = place([userMessage(id)]);
  return { ...event, seq, id, parent_id } as LogEvent;
}

const ids = (entries: readonly { id: string }[]): string[] => entries.map(({ id }) => id);

// e1 ─ e2 ─ e3 (left), then back to e1 by leaf event e4, and on with e5
const DRAFTS = [
  userMessage('a'),
  delta('x'),
  userMessage('b'),
  userMessage('c'),
  leafTo('e1'),
  userMessage('d'),
];
const BRANCHED = place(DRAFTS);

describe('the tree', () => {
  it('hangs entries on the leaf and follows leaf events', () => {
    const tree = buildTree(BRANCHED);
    expect(ids(tree.entries)).toEqual(['e1', 'e2', 'e3', 'e4', 'e5']);
    expect(tree.leafId).toBe('e5');
    expect(ids(pathTo(tree, tree.leafId))).toEqual(['e1', 'e5']);
    expect(ids(pathTo(tree, 'e3'))).toEqual(['e1', 'e2', 'e3']);
    expect(ids(childrenOf(tree, 'e1'))).toEqual(['e2', 'e5']);
    expect(ids(childrenOf(tree, null))).toEqual(['e1']);
    expect(tree.problems).toEqual([]);
  });

  // Requirement: empty-branch-lost
  it('keeps a moved leaf over a restart, also before the first entry', () => {
    expect(buildTree(BRANCHED.slice(0, 5)).leafId).toBe('e1');
    const reset = buildTree(place([userMessage('a'), leafTo(null), userMessage('b')]));
    expect(ids(childrenOf(reset, null))).toEqual(['e1', 'e3']);
    expect(buildTree(place([userMessage('a'), leafTo(null)])).leafId).toBeNull();
    expect(pathTo(reset, null)).toEqual([]);
  });

  it('stays where it is when a leaf event names nothing', () => {
    const lost = buildTree(place([userMessage('a'), leafTo('gone')]));
    expect(lost.leafId).toBe('e2');
  });

  // Requirement: ambiguous-id-prefix
  it('finds entries by id and by unique prefix, and names the candidates else', () => {
    const tree = buildTree([
      entry(1, 'abc1', null),
      entry(2, 'abd2', 'abc1'),
      entry(3, 'abc', 'abd2'),
    ]);
    expect(entryByPrefix(tree, 'abd').id).toBe('abd2');
    expect(entryByPrefix(tree, 'abc').id).toBe('abc');
    expect(() => entryByPrefix(tree, 'ab')).toThrow('3 entries start with ab');
    expect(() => entryByPrefix(tree, 'x')).toThrow('the thread has no entry x');
    expect(() => entryByPrefix(tree, '')).toThrow('no entry');
    expect(() => entryById(tree, 'ab')).toThrow('no entry ab');
  });

  it('resolves labels by log order, also from a left branch', () => {
    const tree = buildTree(
      place([
        userMessage('a'),
        label('e1', 'old'),
        leafTo('e1'),
        label('e1', 'new'),
        userMessage('b'),
        label('e5', 'x'),
        label('e5', null),
      ]),
    );
    expect([...tree.labels]).toEqual([['e1', 'new']]);
  });

  it('draws depth first with labels and the active path', () => {
    const tree = buildTree(place([...DRAFTS, label('e3', 'here')]));
    const drawn = treeLines(tree).map(({ entry: { id }, depth, label: name, active }) =>
      [id, depth, name ?? '', active ? '*' : ''].join(' ').trim(),
    );
    expect(drawn).toEqual(['e1 0  *', 'e2 1', 'e3 2 here', 'e4 3', 'e5 1  *', 'e6 2  *']);
  });
});

describe('damaged trees', () => {
  it('hang an orphan on the entry before it, with a warning', () => {
    const tree = buildTree(
      [entry(1, 'a', null), entry(2, 'b', 'gone'), entry(3, 'c', 'b')],
      (index) => index * 100,
    );
    expect(ids(pathTo(tree, 'c'))).toEqual(['a', 'b', 'c']);
    expect(tree.problems).toEqual([
      { kind: 'orphan', offset: 100, message: 'the parent gone of entry b is not in the log' },
    ]);
    expect(tree.problems.some(isFatalProblem)).toBe(false);
  });

  // Requirement: parent-cycle-hangs
  it('report loops and duplicate ids as errors with an offset, and end', () => {
    const loop = buildTree(
      [entry(1, 'a', 'b'), entry(2, 'b', 'a'), entry(3, 'c', 'c')],
      (index) => index,
    );
    expect(loop.problems.map(({ kind, offset }) => [kind, offset])).toEqual([
      ['cycle', 0],
      ['cycle', 2],
    ]);
    expect(ids(pathTo(loop, 'c'))).toEqual(['a', 'b', 'c']);
    const twice = buildTree(
      [entry(1, 'a', null), entry(2, 'a', 'a'), entry(3, 'b', 'a')],
      (index) => index,
    );
    expect(twice.problems).toMatchObject([{ kind: 'duplicate_id', offset: 1 }]);
    expect(twice.problems.every(isFatalProblem)).toBe(true);
    expect(ids(twice.entries)).toEqual(['a', 'b']);
  });

  it('always give a forest in which every path ends', () => {
    const link = fc.record({
      id: fc.integer({ min: 0, max: 12 }),
      parent: fc.option(fc.integer({ min: 0, max: 14 })),
    });
    fc.assert(
      fc.property(fc.array(link, { maxLength: 20 }), (links) => {
        const events = links.map(({ id, parent }, index) =>
          entry(index + 1, `n${id}`, parent === null ? null : `n${parent}`),
        );
        const tree = buildTree(events);
        expect(treeLines(tree).length).toBe(tree.entries.length);
        for (const { id } of tree.entries) expect(pathTo(tree, id).at(-1)?.id).toBe(id);
      }),
      { numRuns: 300, seed: 11 },
    );
  });

  it('take a path of 100,000 entries without recursion', () => {
    const events = Array.from({ length: 100_000 }, (_, index) =>
      entry(index + 1, `n${index}`, index === 0 ? null : `n${index - 1}`),
    );
    const tree = buildTree(events);
    expect(pathTo(tree, tree.leafId)).toHaveLength(100_000);
    expect(treeLines(tree).at(-1)?.depth).toBe(99_999);
  });
});

describe('branches', () => {
  const tree = buildTree(BRANCHED);

  it('move the leaf only to what is there', () => {
    expect(branchDrafts(tree, 'e2')[0]).toMatchObject({
      event_type: 'leaf',
      payload: { target_id: 'e2' },
    });
    expect(() => branchDrafts(tree, 'zz')).toThrow('no entry zz');
    expect(() => labelDraft(tree, 'zz', 'x')).toThrow('no entry zz');
    expect(labelDraft(tree, 'e2', 'x').payload).toEqual({ target_id: 'e2', label: 'x' });
  });

  it('with a summary name the leaf that was left and hang on the target', () => {
    const drafts = branchWithSummaryDrafts(tree, 'e2', { summary: 'tried d' });
    const after = buildTree(
      place([
        userMessage('a'),
        userMessage('b'),
        userMessage('c'),
        leafTo('e1'),
        userMessage('d'),
        ...drafts,
      ]),
    );
    const summary = entryById(after, after.leafId ?? '');
    expect(summary.payload).toEqual({ from_id: 'e5', summary: 'tried d' });
    expect(ids(pathTo(after, after.leafId))).toEqual(['e1', 'e2', 'e7']);
  });

  // Requirement: extract-orphans-labels
  it('are extracted with their ids, re-chained around labels, labels kept', () => {
    const source = buildTree(
      place([
        userMessage('a'),
        label('e1', 'start'),
        userMessage('b'),
        label('e3', 'gone'),
        label('e3', null),
        {
          event_type: 'compaction',
          payload: { summary: 's', first_kept_entry_id: 'e2', tokens_before: 9 },
        },
        userMessage('c'),
        leafTo('e3'),
        userMessage('other branch'),
      ]),
    );
    const copy = buildTree(place(extractDrafts(source, source.entries, 'e7'), 'n'));
    expect(copy.problems).toEqual([]);
    expect(ids(copy.entries).slice(0, 4)).toEqual(['e1', 'e3', 'e6', 'e7']);
    expect([...copy.labels]).toEqual([['e1', 'start']]);
    expect(entryById(copy, 'e6').payload).toMatchObject({ first_kept_entry_id: 'e3' });
    expect(entryById(copy, 'e3').parent_id).toBe('e1');
  });

  it('carry entries of unknown types along', () => {
    const [a, b] = place([userMessage('a'), userMessage('b')]);
    const odd = { ...b, event_type: 'hologram', payload: { x: 1 } } as unknown as LogEvent;
    const copy = place(extractDrafts(buildTree([...(a ? [a] : []), odd]), [], 'e2'));
    expect(copy.at(-1)).toMatchObject({
      event_type: 'hologram',
      payload: { x: 1 },
      id: 'e2',
      parent_id: 'e1',
    });
  });
});
