import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EventDraft, LogEvent } from '../../src/kernel/core/events.ts';
import { textOf } from '../../src/kernel/core/message.ts';
import { decodeLine, encodeEvent } from '../../src/kernel/log/codec.ts';
import { foldContext } from '../../src/kernel/log/context.ts';
import {
  branchDrafts,
  branchWithSummaryDrafts,
  extractDrafts,
  labelDraft,
} from '../../src/kernel/log/continuation.ts';
import { buildTree, childrenOf, pathTo, type SessionTree } from '../../src/kernel/log/tree.ts';
import { delta, place, userMessage } from './support.ts';

/** The operations of a person or a program on a session, with numbers that choose their targets. */
const operation = fc.oneof(
  { weight: 6, arbitrary: fc.record({ op: fc.constant('say' as const), n: fc.nat(999) }) },
  { weight: 3, arbitrary: fc.record({ op: fc.constant('branch' as const), n: fc.nat(999) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('root' as const), n: fc.constant(0) }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('summary' as const), n: fc.nat(999) }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('label' as const), n: fc.nat(999) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('clear' as const), n: fc.nat(999) }) },
  { weight: 4, arbitrary: fc.record({ op: fc.constant('edit' as const), n: fc.nat(999) }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant('compact' as const), n: fc.nat(999) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('custom' as const), n: fc.nat(999) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('delta' as const), n: fc.nat(999) }) },
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

/** An entry of the naive model: it points at its parent, and has its text for the model. */
interface Node {
  readonly id: string;
  readonly parent: Node | null;
  readonly kind: string;
  readonly text?: string;
  readonly target?: Node;
  readonly edit?: string | null;
  readonly keepFrom?: Node | null;
}

/** A session as pointers: no indexes, no log, everything found by walking. */
class NaiveSession {
  readonly nodes: Node[] = [];
  readonly labels = new Map<Node, string>();
  leaf: Node | null = null;

  add(kind: string, more: Partial<Node> = {}): Node {
    const node = { id: `e${this.nodes.length + 1}`, parent: this.leaf, kind, ...more };
    this.nodes.push(node);
    this.leaf = node;
    return node;
  }

  path(from = this.leaf): Node[] {
    const path: Node[] = [];
    for (let at = from; at; at = at.parent) path.unshift(at);
    return path;
  }

  /** The model's context, entry by entry. */
  context(): string[] {
    const path = this.path();
    const cut = path.findLast(({ kind }) => kind === 'compaction');
    const at = cut ? path.indexOf(cut) : -1;
    const from = cut?.keepFrom ? path.indexOf(cut.keepFrom) : -1;
    const kept = cut && from !== -1 && from < at ? path.slice(from, at) : [];
    const counted = cut
      ? [cut, ...kept.filter(({ kind }) => kind !== 'compaction'), ...path.slice(at + 1)]
      : path;
    return counted.flatMap((node) => {
      if (node.text === undefined) return [];
      const edit = path.findLast(({ target, kind }) => kind === 'edit' && target === node);
      if (!edit) return [node.text];
      return edit.edit === null ? [] : [edit.edit ?? ''];
    });
  }
}

/** One session in both forms: the log that rye writes, and the naive model. */
function play(operations: readonly Operation[]): {
  readonly events: readonly LogEvent[];
  readonly model: NaiveSession;
} {
  const model = new NaiveSession();
  const drafts: EventDraft[] = [];
  // mostly one of the newest, so that operations meet on the same entries
  const pick = ({ op, n }: Operation): Node | undefined => {
    const heard = op === 'edit' ? model.path().filter(({ text }) => text !== undefined) : [];
    const nodes = heard.length > 0 ? heard : model.nodes;
    return n % 3 === 0 ? nodes[n % Math.max(1, nodes.length)] : nodes.at(-1 - (n % 5));
  };
  const treeNow = (): SessionTree => buildTree(place(drafts));
  for (const one of operations) {
    const { op, n } = one;
    const node = pick(one);
    if (op === 'say') {
      drafts.push(userMessage(`text ${n}`));
      model.add('say', { text: `text ${n}` });
    } else if (op === 'delta') drafts.push(delta('x'));
    else if (op === 'custom') {
      drafts.push({ event_type: 'custom', payload: { custom_type: 't', data: { n } } });
      model.add('custom');
    } else if (op === 'root') {
      drafts.push(...branchDrafts(treeNow(), null));
      model.add('leaf');
      model.leaf = null;
    } else if (node) playAt(node, { op, n, drafts, model, treeNow });
  }
  return { events: place(drafts), model };
}

interface Turn {
  readonly op: Operation['op'];
  readonly n: number;
  readonly drafts: EventDraft[];
  readonly model: NaiveSession;
  readonly treeNow: () => SessionTree;
}

function playAt(node: Node, { op, n, drafts, model, treeNow }: Turn): void {
  const left = model.leaf;
  if (op === 'branch' || op === 'summary') {
    const summary = `left ${n}`;
    drafts.push(
      ...(op === 'branch'
        ? branchDrafts(treeNow(), node.id)
        : branchWithSummaryDrafts(treeNow(), node.id, { summary })),
    );
    model.add('leaf');
    model.leaf = node;
    if (op === 'summary') model.add('summary', { text: summary, target: left ?? node });
  } else if (op === 'label' || op === 'clear') {
    const label = op === 'label' ? `label ${n}` : null;
    drafts.push(labelDraft(treeNow(), node.id, label));
    model.add('label');
    if (label === null) model.labels.delete(node);
    else model.labels.set(node, label);
  } else if (op === 'edit') {
    const isOmitted = n % 2 === 0;
    const payload = isOmitted
      ? ({ target_id: node.id, action: 'omit' } as const)
      : ({ target_id: node.id, action: 'replace', content: `edited ${n}` } as const);
    drafts.push({ event_type: 'context_edit', payload });
    model.add('edit', { target: node, edit: isOmitted ? null : `edited ${n}` });
  } else if (op === 'compact') {
    const summary = `sum ${n}`;
    const first_kept_entry_id = n % 5 === 0 ? null : node.id;
    drafts.push({
      event_type: 'compaction',
      payload: { summary, first_kept_entry_id, tokens_before: n },
    });
    model.add('compaction', { text: summary, keepFrom: n % 5 === 0 ? null : node });
  }
}

const SUMMARY = /<summary>\n([^]*)\n<\/summary>/;

function folded(tree: SessionTree): string[] {
  return foldContext(tree).messages.map(({ content }) => {
    const text = textOf(content);
    return SUMMARY.exec(text)?.[1] ?? text;
  });
}

const sessions = fc.array(operation, { maxLength: 60, size: 'max' });
const RUNS = { numRuns: Number(process.env['RYE_SEEDS'] ?? 4) * 50, seed: 2026 };

describe('any session', () => {
  it('has the leaf, the paths, the children and the labels of the naive model', () => {
    fc.assert(
      fc.property(sessions, (operations) => {
        const { events, model } = play(operations);
        const tree = buildTree(events);
        expect(tree.problems).toEqual([]);
        expect(tree.leafId).toBe(model.leaf?.id ?? null);
        for (const node of model.nodes) {
          expect(pathTo(tree, node.id).map(({ id }) => id)).toEqual(
            model.path(node).map(({ id }) => id),
          );
        }
        for (const parent of [null, ...model.nodes]) {
          expect(childrenOf(tree, parent?.id ?? null).map(({ id }) => id)).toEqual(
            model.nodes.filter((node) => node.parent === parent).map(({ id }) => id),
          );
        }
        expect(new Map(tree.labels)).toEqual(
          new Map([...model.labels].map(([{ id }, label]) => [id, label])),
        );
      }),
      RUNS,
    );
  });

  it('gives a model the same context as the naive model', () => {
    fc.assert(
      fc.property(sessions, (operations) => {
        const { events, model } = play(operations);
        expect(folded(buildTree(events))).toEqual(model.context());
      }),
      RUNS,
    );
  });

  it('is the same after it was written and read, cut at any event, and continued', () => {
    fc.assert(
      fc.property(sessions, fc.nat(99), (operations, cut) => {
        const { events } = play(operations);
        const read = events.map((event) => {
          const [piece] = decodeLine(encodeEvent(event).slice(0, -1));
          if (!piece || 'problem' in piece) throw new Error('a line does not come back');
          return piece.event;
        });
        expect(folded(buildTree(read))).toEqual(folded(buildTree(events)));
        // what is appended never changes what was there
        const prefix = events.slice(0, cut % (events.length + 1));
        const whole = buildTree(events);
        for (const { id } of buildTree(prefix).entries) {
          expect(pathTo(whole, id)).toEqual(pathTo(buildTree(prefix), id));
        }
      }),
      { ...RUNS, numRuns: RUNS.numRuns / 4 },
    );
  });

  it('gives an extract with the same context and the labels of its path', () => {
    fc.assert(
      fc.property(sessions, (operations) => {
        const { events } = play(operations);
        const tree = buildTree(events);
        if (tree.leafId === null) return;
        const copy = buildTree(place(extractDrafts(tree, tree.entries, tree.leafId), 'n'));
        expect(copy.problems).toEqual([]);
        const kept = new Set(
          pathTo(tree, tree.leafId)
            .filter(({ event_type }) => event_type !== 'label' && event_type !== 'leaf')
            .map(({ id }) => id),
        );
        expect(copy.entries.map(({ id }) => id).filter((id) => kept.has(id))).toEqual([...kept]);
        expect(new Map(copy.labels)).toEqual(
          new Map([...tree.labels].filter(([id]) => kept.has(id))),
        );
        expect(folded(copy)).toEqual(folded(tree));
      }),
      RUNS,
    );
  });
});
