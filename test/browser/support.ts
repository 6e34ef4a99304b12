import { type Frame, frameOf } from '../../src/faces/ui/browser/frame.ts';
import {
  atLeaf,
  type BrowserState,
  openState,
  type TreeSource,
} from '../../src/faces/ui/browser/state.ts';
import { type Key, type Step, update } from '../../src/faces/ui/browser/update.ts';
import { displayWidth, graphemesOf } from '../../src/faces/ui/terminal-text.ts';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import type { AssistantBlock } from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { type TreeDivider, viewTree } from '../../src/kernel/log/tree-view.ts';
import { THREAD } from '../../testing/conformance/fixtures.ts';
import { place, userMessage } from '../log/support.ts';

export function answer(content: readonly AssistantBlock[]): EventDraft {
  const message = {
    role: 'assistant',
    content,
    provider: 'literal',
    model: 'm',
    stop_reason: 'end',
    usage: NO_USAGE,
  } as const;
  return { event_type: 'message', payload: { message } };
}

export function toolResult(call_id: string, text: string, name = 'read'): EventDraft {
  const content = [{ type: 'text', text }] as const;
  const message = { role: 'tool_result', call_id, name, content, outcome: 'ok' } as const;
  return { event_type: 'message', payload: { message } };
}

function leafTo(target_id: string): EventDraft {
  return { event_type: 'leaf', payload: { target_id } };
}

/**
 * e1 question ─ e2 call ─ e3 result ─ e4 answer (left)
 *                       └ e7 other question ─ e8 other answer, the leaf. e5 is a label of e2, e6 the move to e3.
 */
export const BRANCHED: readonly EventDraft[] = [
  userMessage('What is wrong?'),
  answer([{ type: 'tool_call', call_id: 'c1', name: 'read', input: { path: 'a.ts' } }]),
  toolResult('c1', 'export const a = 1;'),
  answer([{ type: 'text', text: 'Nothing is wrong.' }]),
  { event_type: 'label', payload: { target_id: 'e2', label: 'the call' } },
  leafTo('e3'),
  userMessage('Look again.'),
  answer([{ type: 'text', text: 'A semicolon is missing.' }]),
];

export function sourceOf(
  drafts: readonly EventDraft[],
  dividers: readonly TreeDivider[] = [],
): TreeSource {
  const tree = buildTree(place(drafts));
  return {
    threadId: THREAD,
    title: null,
    total: tree.entries.length,
    leafId: tree.leafId,
    rows: (filter) => viewTree(tree, { filter, dividers }),
    isSent: (entry) => entry !== 'e4',
    turnOf: () => undefined,
  };
}

export function opened(
  drafts: readonly EventDraft[] = BRANCHED,
  size = { columns: 100, rows: 20 },
): BrowserState {
  return atLeaf(openState(sourceOf(drafts), size));
}

/** Keys by name; a word in quotes is typed letter by letter. */
export function press(state: BrowserState, ...keys: readonly string[]): Step {
  let step: Step = { state };
  for (const name of keys.flatMap(namesOf)) step = update(step.state, keyOf(name));
  return step;
}

function namesOf(key: string): readonly string[] {
  return key.startsWith('"')
    ? graphemesOf(key.slice(1, -1)).map((letter) => `type ${letter}`)
    : [key];
}

function keyOf(name: string): Key {
  if (name.startsWith('type ')) return { name: name.slice(5), text: name.slice(5) };
  return graphemesOf(name).length === 1 ? { name, text: name } : { name };
}

/** The screen as a person reads it: the right pane at its column. */
export function screenOf(state: BrowserState): readonly string[] {
  return linesOf(frameOf(state));
}

function linesOf({ rows, border }: Frame): readonly string[] {
  return rows.map(({ left, right }) => {
    const start = left.map(({ text }) => text).join('');
    if (!right) return start;
    const gap = ' '.repeat(Math.max(0, border - 1 - displayWidth(start)));
    return `${start}${gap}│ ${right.map(({ text }) => text).join('')}`;
  });
}

/** The lines of the tree's pane. */
export function treeOf(state: BrowserState): readonly string[] {
  return frameOf(state)
    .rows.slice(1, -2)
    .map(({ left }) =>
      left
        .map(({ text }) => text)
        .join('')
        .trimEnd(),
    )
    .filter((line) => line !== '');
}

/** The lines of the entry's pane, from its first. */
export function paneOf(state: BrowserState): readonly string[] {
  return frameOf(state)
    .rows.slice(1, -2)
    .map(({ right = [] }) => right.map(({ text }) => text).join(''));
}

/** Id of the chosen entry. */
export function chosenId({ outline, cursor }: BrowserState): string | undefined {
  return outline.rows[outline.visible[cursor] ?? -1]?.entry.id;
}
