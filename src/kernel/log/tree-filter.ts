import { type Message, type ToolCallBlock, textOf, toolCallsOf } from '../core/message.ts';
import { searchedTexts } from './entry-text.ts';
import { isKnown, type SessionTree, type TreeEntry } from './tree.ts';

/** The entries of a tree that a view shows. */
export const TREE_FILTERS = ['default', 'no-tools', 'user-only', 'labeled-only', 'all'] as const;
export type TreeFilter = (typeof TREE_FILTERS)[number];

/** Types of entries that are no part of the conversation. */
export const SETTINGS: ReadonlySet<string> = new Set([
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

/** The entries to show. */
export interface Shown {
  readonly filter: TreeFilter;
  readonly words: readonly string[];
}

/** True if a filter and a search show an entry with this many answered calls. */
export function isShown(
  tree: SessionTree,
  entry: TreeEntry,
  { filter, words, answers }: Shown & { readonly answers: number },
): boolean {
  if (!passes(tree, entry, filter, answers)) return false;
  if (words.length === 0) return true;
  const label = tree.labels.get(entry.id);
  const call = callOf(tree, entry);
  return holds({ entry, ...(label !== undefined && { label }), ...(call && { call }) }, words);
}

/**
 * True if a filter shows an entry. An answer with only calls is shown at the head, with a label and while a result is
 * missing; else the rows of its results show the calls.
 */
function passes(tree: SessionTree, entry: TreeEntry, filter: TreeFilter, answers: number): boolean {
  switch (filter) {
    case 'all':
      return true;
    case 'labeled-only':
      return tree.labels.has(entry.id);
    case 'user-only':
      return roleOf(entry) === 'user';
    case 'no-tools':
      return roleOf(entry) !== 'tool_result' && !isWordless(tree, entry) && isUsual(entry);
    case 'default':
      return (
        isUsual(entry) &&
        (!isWordless(tree, entry) ||
          (callsOf(entry).length > 0 && (!isAnswered(entry, answers) || tree.labels.has(entry.id))))
      );
  }
}

export function roleOf(entry: TreeEntry): Message['role'] | undefined {
  return isKnown(entry, 'message') ? entry.payload.message.role : undefined;
}

function isUsual(entry: TreeEntry): boolean {
  const isHidden = isKnown(entry, 'custom_message') && !entry.payload.display;
  return !isHidden && !SETTINGS.has(entry.event_type);
}

/** An answer that was not cut and has no text. */
function isWordless(tree: SessionTree, entry: TreeEntry): boolean {
  if (!isKnown(entry, 'message') || entry.id === tree.leafId) return false;
  const { message } = entry.payload;
  return (
    message.role === 'assistant' &&
    message.stop_reason !== 'aborted' &&
    textOf(message.content).trim() === ''
  );
}

/** True if all calls of an answer have a result. */
export function isAnswered(entry: TreeEntry, answers = 0): boolean {
  return answers >= callsOf(entry).length;
}

function callsOf(entry: TreeEntry): readonly ToolCallBlock[] {
  if (!isKnown(entry, 'message') || entry.payload.message.role !== 'assistant') return [];
  return toolCallsOf(entry.payload.message);
}

export function kindOf(entry: TreeEntry): string {
  return roleOf(entry) ?? entry.event_type;
}

const SHORT_KINDS: Readonly<Record<string, string>> = { assistant: 'model', tool_result: 'tool' };

/** Returns the kind of a row as people are shown it. */
export function shortKind(kind: string): string {
  return SHORT_KINDS[kind] ?? kind.replaceAll('_', ' ');
}

/** Splits a query into words in lower case. */
export function wordsOf(query: string): readonly string[] {
  return query
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
}

/** The parts of a row that are searched. */
interface SearchedRow {
  readonly entry: TreeEntry;
  readonly label?: string;
  readonly call?: ToolCallBlock | undefined;
}

/** True if label, kind, id and the whole content of a row have all words. Reads no further than needed. */
export function holds({ entry, label = '', call }: SearchedRow, words: readonly string[]): boolean {
  let missing = words;
  const isFound = (text: string): boolean => {
    const searched = text.toLowerCase();
    missing = missing.filter((word) => !searched.includes(word));
    return missing.length === 0;
  };
  if (isFound(`${label} ${kindOf(entry)} ${entry.id}`)) return true;
  for (const text of searchedTexts(entry, call)) if (isFound(text)) return true;
  return false;
}

/** Finds the call that a result answers on the way from it to the root. */
export function callOf(tree: SessionTree, result: TreeEntry): ToolCallBlock | undefined {
  if (!isKnown(result, 'message')) return undefined;
  const { message } = result.payload;
  if (message.role !== 'tool_result') return undefined;
  let at = result.parent_id;
  while (at !== null) {
    const entry = tree.byId.get(at);
    if (!entry || roleOf(entry) === 'user') return undefined;
    if (roleOf(entry) === 'assistant') {
      return callsOf(entry).find(({ call_id: id }) => id === message.call_id);
    }
    at = entry.parent_id;
  }
  return undefined;
}
