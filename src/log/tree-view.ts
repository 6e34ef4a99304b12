import { type Message, textOf, toolCallsOf } from '../core/message.ts';
import { isKnown, pathTo, type SessionTree, type TreeEntry } from './tree.ts';

/** What of a tree is shown. */
export const TREE_FILTERS = ['default', 'no-tools', 'user-only', 'labeled-only', 'all'] as const;
export type TreeFilter = (typeof TREE_FILTERS)[number];

/** One entry of a drawn tree. */
export interface TreeRow {
  readonly entry: TreeEntry;
  /** Id of the nearest shown ancestor; null for a root. */
  readonly parentId: string | null;
  /** Grows only where branches part, so that a long conversation stays at the left. */
  readonly depth: number;
  readonly label?: string;
  /** On the path from the root to the leaf. */
  readonly active: boolean;
  readonly leaf: boolean;
  /** Kind of the entry, and of a message its role. */
  readonly kind: string;
  readonly text: string;
}

export interface ViewOptions {
  readonly filter?: TreeFilter;
  /** Only entries whose label, kind and text contain all of these words; letter case does not matter. */
  readonly search?: string;
}

const MAX_TEXT = 200;

const SETTINGS: ReadonlySet<string> = new Set([
  'label',
  'leaf',
  'custom',
  'model_change',
  'thinking_change',
  'title',
  'context_edit',
  'rule_injection',
  'context_injected',
  'system_prompt',
]);

/**
 * The entries that a filter shows, depth first, the active branch first at each fork. Entries behind a hidden one hang
 * on the nearest one that is shown. Iterative: a path may have any length.
 */
export function viewTree(
  tree: SessionTree,
  { filter = 'default', search = '' }: ViewOptions = {},
): readonly TreeRow[] {
  const active = new Set(pathTo(tree, tree.leafId).map(({ id }) => id));
  const words = search
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
  const shown = shownEntries(tree, { filter, words });
  const { children, anchors } = childrenOfShown(tree, shown);
  // a leaf that is not shown is marked where it hangs
  const leafId = anchors.get(tree.leafId) ?? null;
  const rows: TreeRow[] = [];
  const stack: Pending[] = [];
  pushChildren(stack, children.get(null), { active, parentId: null, depth: 0 });
  for (let next = stack.pop(); next; next = stack.pop()) {
    const { entry, depth } = next;
    const { id } = entry;
    rows.push(
      new Row(next, {
        label: tree.labels.get(id),
        active: active.has(id),
        leaf: id === leafId,
      }),
    );
    pushChildren(stack, children.get(id), { active, parentId: id, depth });
  }
  return rows;
}

/** Says what its entry is only when it is asked: few rows of a large tree are ever looked at. */
class Row implements TreeRow {
  readonly entry: TreeEntry;
  readonly parentId: string | null;
  readonly depth: number;
  readonly label?: string;
  readonly active: boolean;
  readonly leaf: boolean;
  #text: string | undefined;

  constructor(
    { entry, parentId, depth }: Pending,
    {
      label,
      active,
      leaf,
    }: {
      readonly label: string | undefined;
      readonly active: boolean;
      readonly leaf: boolean;
    },
  ) {
    this.entry = entry;
    this.parentId = parentId;
    this.depth = depth;
    if (label !== undefined) this.label = label;
    this.active = active;
    this.leaf = leaf;
  }

  get kind(): string {
    return kindOf(this.entry);
  }

  get text(): string {
    this.#text ??= describeEntry(this.entry);
    return this.#text;
  }
}

interface Pending {
  readonly entry: TreeEntry;
  readonly parentId: string | null;
  readonly depth: number;
}

/** In the order of a stack: the active branch comes off it first, then the others in log order. */
function pushChildren(
  stack: Pending[],
  siblings: readonly TreeEntry[] | undefined,
  {
    active,
    parentId,
    depth,
  }: {
    readonly active: ReadonlySet<string>;
    readonly parentId: string | null;
    readonly depth: number;
  },
): void {
  const [first, second] = siblings ?? [];
  if (!siblings || !first) return;
  if (!second) {
    stack.push({ entry: first, parentId, depth });
    return;
  }
  const own = parentId === null ? depth : depth + 1;
  const others = siblings.filter(({ id }) => !active.has(id)).toReversed();
  for (const entry of [...others, ...siblings.filter(({ id }) => active.has(id))]) {
    stack.push({ entry, parentId, depth: own });
  }
}

function shownEntries(
  tree: SessionTree,
  { filter, words }: { readonly filter: TreeFilter; readonly words: readonly string[] },
): ReadonlySet<string> {
  const shown = new Set<string>();
  for (const entry of tree.entries) {
    if (!passes(tree, entry, filter)) continue;
    if (words.length > 0) {
      const label = tree.labels.get(entry.id) ?? '';
      const text = `${label} ${kindOf(entry)} ${describeEntry(entry)}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
    }
    shown.add(entry.id);
  }
  return shown;
}

/** Whether a filter shows an entry; an answer without a text is shown only at the leaf or with its calls. */
function passes(tree: SessionTree, entry: TreeEntry, filter: TreeFilter): boolean {
  switch (filter) {
    case 'all':
      return true;
    case 'labeled-only':
      return tree.labels.has(entry.id);
    case 'user-only':
      return roleOf(entry) === 'user';
    case 'no-tools':
      return roleOf(entry) !== 'tool_result' && passes(tree, entry, 'default');
    case 'default':
      return !SETTINGS.has(entry.event_type) && !isHidden(entry) && !isSilent(tree, entry);
  }
}

function roleOf(entry: TreeEntry): Message['role'] | undefined {
  return isKnown(entry, 'message') ? entry.payload.message.role : undefined;
}

function isHidden(entry: TreeEntry): boolean {
  return isKnown(entry, 'custom_message') && !entry.payload.display;
}

function isSilent(tree: SessionTree, entry: TreeEntry): boolean {
  if (!isKnown(entry, 'message') || entry.id === tree.leafId) return false;
  const { message } = entry.payload;
  return (
    message.role === 'assistant' &&
    message.stop_reason !== 'aborted' &&
    textOf(message.content) === '' &&
    toolCallsOf(message).length === 0
  );
}

/** Children by the nearest shown ancestor. Parents stand before their children, so one pass does it. */
function childrenOfShown(
  tree: SessionTree,
  shown: ReadonlySet<string>,
): {
  readonly children: ReadonlyMap<string | null, readonly TreeEntry[]>;
  /** The shown entry that stands for each entry: itself, or its nearest shown ancestor. */
  readonly anchors: ReadonlyMap<string | null, string | null>;
} {
  const anchors = new Map<string | null, string | null>([[null, null]]);
  const children = new Map<string | null, TreeEntry[]>();
  for (const entry of tree.entries) {
    const anchor = anchors.get(entry.parent_id) ?? null;
    if (!shown.has(entry.id)) {
      anchors.set(entry.id, anchor);
      continue;
    }
    anchors.set(entry.id, entry.id);
    const siblings = children.get(anchor);
    if (siblings) siblings.push(entry);
    else children.set(anchor, [entry]);
  }
  return { children, anchors };
}

function kindOf(entry: TreeEntry): string {
  return roleOf(entry) ?? entry.event_type;
}

/** One line that says what an entry is, at most 200 characters. */
function describeEntry(entry: TreeEntry): string {
  const text = entryText(entry).replaceAll(/\s+/g, ' ').trim();
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT - 1)}…`;
}

function entryText(entry: TreeEntry): string {
  if (isKnown(entry, 'message')) return messageText(entry.payload.message);
  if (isKnown(entry, 'custom_message')) {
    return `${entry.payload.custom_type}: ${entry.payload.content.slice(0, MAX_TEXT)}`;
  }
  if (isKnown(entry, 'compaction')) {
    return `${entry.payload.tokens_before} tokens: ${entry.payload.summary.slice(0, MAX_TEXT)}`;
  }
  if (isKnown(entry, 'branch_summary')) return entry.payload.summary.slice(0, MAX_TEXT);
  if (isKnown(entry, 'label')) {
    return `${entry.payload.target_id}: ${entry.payload.label ?? '(cleared)'}`;
  }
  if (isKnown(entry, 'title')) return entry.payload.title;
  if (isKnown(entry, 'leaf')) return `to ${entry.payload.target_id ?? 'the root'}`;
  return otherText(entry);
}

function otherText(entry: TreeEntry): string {
  if (isKnown(entry, 'model_change')) return `${entry.payload.provider}/${entry.payload.model}`;
  if (isKnown(entry, 'thinking_change')) return entry.payload.level;
  if (isKnown(entry, 'custom')) return entry.payload.custom_type;
  if (isKnown(entry, 'context_edit')) return `${entry.payload.action} ${entry.payload.target_id}`;
  if (isKnown(entry, 'system_prompt')) return entry.payload.text.slice(0, MAX_TEXT);
  if (isKnown(entry, 'rule_injection')) {
    return entry.payload.rules.map(({ name }) => name).join(', ');
  }
  return '';
}

function messageText(message: Message): string {
  const said = message.content
    .map((block) => (block.type === 'text' ? block.text.slice(0, MAX_TEXT * 2) : ''))
    .join(' ');
  if (message.role === 'tool_result') return `${message.name} ${message.outcome}: ${said}`;
  if (message.role === 'user') return said;
  const calls = toolCallsOf(message).map(({ name }) => `→ ${name}`);
  const cut = message.stop_reason === 'aborted' ? ['(cut)'] : [];
  return [said.trim(), ...calls, ...cut].filter((part) => part !== '').join(' ');
}
