import type { EventPayloads, LogEvent, UnknownEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import { type Message, textOf, toolCallsOf, userText } from '../core/message.ts';
import { type Conversation, repairPairing } from './pairing.ts';
import { isKnown, listOf, pathTo, type SessionTree, type TreeEntry } from './tree.ts';

/** Settings in force at the leaf; absent means that nothing on the path set it. */
export interface ContextSettings {
  readonly model?: { readonly provider: string; readonly model: string };
  readonly thinking?: string;
  readonly title?: string;
}

/** What the model sees, folded from the path to one leaf. */
export interface SessionContext {
  readonly messages: readonly Message[];
  /** Entry behind each message, at the same index; null for a result that the repair made up. */
  readonly sources: readonly (string | null)[];
  /** Text of the last system prompt on the path. */
  readonly system: string;
  /** Tool definitions of the last system prompt on the path. */
  readonly tools: readonly JsonObject[];
  readonly settings: ContextSettings;
}

export interface ContextOptions {
  /** The leaf to fold to; absent: the tree's own. */
  readonly leafId?: string | null;
  /** Calls whose effects may have begun, from {@link startedCallIds}; a function is asked only where a result is missing. */
  readonly startedCalls?: ReadonlySet<string> | (() => ReadonlySet<string>);
}

/** Ids of the calls with a `tool_call_start` in the log. */
export function startedCallIds(events: Iterable<LogEvent | UnknownEvent>): ReadonlySet<string> {
  const started = new Set<string>();
  for (const event of events) {
    if (isKnown(event, 'tool_call_start')) started.add(event.payload.call_id);
  }
  return started;
}

/**
 * Folds the path root→leaf into a context: settings from the last change; the last compaction's summary, then what it
 * kept, then everything after it; context edits, the newest per target; every tool call paired with one result.
 */
export function foldContext(tree: SessionTree, options: ContextOptions = {}): SessionContext {
  const path = pathTo(tree, options.leafId === undefined ? tree.leafId : options.leafId);
  const facts = factsOf(path);
  const { entries, protectedCount } = selectEntries(path, facts.compactionAt);
  const messages = listOf<Message>(entries.length);
  const sources = listOf<string>(entries.length);
  let count = 0;
  for (let at = 0; at < entries.length; at += 1) {
    const entry = entries[at];
    const stored = entry && messageOf(entry);
    const message = stored && editedMessage(stored, facts.edits.get(entry.id));
    if (!message) continue;
    messages[count] = at < protectedCount ? standingAlone(message) : message;
    sources[count] = entry.id;
    count += 1;
  }
  messages.length = count;
  sources.length = count;
  const conversation = withoutSuperseded({ messages, sources });
  return {
    ...repairPairing(conversation, startedBy(options.startedCalls)),
    system: facts.prompt?.text ?? '',
    tools: facts.prompt?.tools ?? [],
    settings: facts.settings,
  };
}

function startedBy(started: ContextOptions['startedCalls']): (callId: string) => boolean {
  if (started === undefined) return () => false;
  if (typeof started !== 'function') return (callId) => started.has(callId);
  let asked: ReadonlySet<string> | undefined;
  return (callId) => {
    asked ??= started();
    return asked.has(callId);
  };
}

/** What the entries of a path set, each time anew. */
interface PathFacts {
  readonly prompt?: EventPayloads['system_prompt'];
  readonly settings: ContextSettings;
  readonly edits: ReadonlyMap<string, Edit>;
  /** Index of the last compaction, or -1. */
  readonly compactionAt: number;
}

function factsOf(path: readonly TreeEntry[]): PathFacts {
  let prompt: EventPayloads['system_prompt'] | undefined;
  let settings: ContextSettings = {};
  let compactionAt = -1;
  const edits = new Map<string, Edit>();
  for (let index = 0; index < path.length; index += 1) {
    const entry = path[index];
    if (!entry || isKnown(entry, 'message')) continue;
    if (isKnown(entry, 'system_prompt')) prompt = entry.payload;
    else if (isKnown(entry, 'compaction')) compactionAt = index;
    else if (isKnown(entry, 'context_edit')) edits.set(entry.payload.target_id, entry.payload);
    else settings = settingAfter(settings, entry);
  }
  return { ...(prompt ? { prompt } : {}), settings, edits, compactionAt };
}

/** The title in force at the leaf, without folding the messages. */
export function titleOf(tree: SessionTree): string | null {
  return factsOf(pathTo(tree, tree.leafId)).settings.title ?? null;
}

function settingAfter(settings: ContextSettings, entry: TreeEntry): ContextSettings {
  if (isKnown(entry, 'model_change')) {
    const { provider, model } = entry.payload;
    return { ...settings, model: { provider, model } };
  }
  if (isKnown(entry, 'thinking_change')) return { ...settings, thinking: entry.payload.level };
  if (isKnown(entry, 'title')) return { ...settings, title: entry.payload.title };
  return settings;
}

interface Selection {
  readonly entries: readonly TreeEntry[];
  /** How many of them, from the first on, stand before a summary because it protects them. */
  readonly protectedCount: number;
}

/** The entries that count: all of the path, or what the last compaction protects, itself, what it kept, and what follows it. */
function selectEntries(path: readonly TreeEntry[], at: number): Selection {
  const compaction = path[at];
  if (!compaction || !isKnown(compaction, 'compaction')) {
    return { entries: path, protectedCount: 0 };
  }
  const { first_kept_entry_id: first, protected_entry_ids: ids = [] } = compaction.payload;
  const from = first === null ? -1 : path.findIndex(({ id }) => id === first);
  const hasKept = from !== -1 && from < at;
  const kept = hasKept ? path.slice(from, at) : [];
  const wanted = new Set(ids);
  const earlier =
    wanted.size === 0 ? [] : path.slice(0, hasKept ? from : at).filter(({ id }) => wanted.has(id));
  return {
    entries: [
      ...earlier,
      compaction,
      ...kept.filter((entry) => !isKnown(entry, 'compaction')),
      ...path.slice(at + 1),
    ],
    protectedCount: earlier.length,
  };
}

/** A protected result outlives its call, so it goes to the model as plain text. */
function standingAlone(message: Message): Message {
  return message.role === 'tool_result' ? { role: 'user', content: message.content } : message;
}

function messageOf(entry: TreeEntry): Message | undefined {
  if (isKnown(entry, 'message')) return entry.payload.message;
  if (isKnown(entry, 'custom_message')) return userText(entry.payload.content);
  if (isKnown(entry, 'compaction')) {
    return userText(
      `What happened before this point was summarised:\n<summary>\n${entry.payload.summary}\n</summary>`,
    );
  }
  if (isKnown(entry, 'branch_summary') && entry.payload.summary !== '') {
    return userText(
      `Another branch of this conversation was tried and left. Its summary:\n<summary>\n${entry.payload.summary}\n</summary>`,
    );
  }
  return undefined;
}

type Edit = EventPayloads['context_edit'];

const OMITTED = '(left out of the context)';

/** A replaced assistant message keeps its calls and an omitted result leaves a note, so that pairs stay whole. */
function editedMessage(message: Message, edit: Edit | undefined): Message | undefined {
  if (!edit) return message;
  if (edit.action === 'omit') {
    return message.role === 'tool_result'
      ? { ...message, content: [{ type: 'text', text: OMITTED }] }
      : undefined;
  }
  const text = { type: 'text', text: edit.content ?? '' } as const;
  return message.role === 'assistant'
    ? { ...message, content: [text, ...toolCallsOf(message)] }
    : { ...message, content: [text] };
}

/**
 * A cut answer stays in the context as far as it got, unless the very next message is another answer: then a retry
 * took its place. One that is empty says nothing.
 */
function withoutSuperseded(conversation: Conversation): Conversation {
  const { messages, sources } = conversation;
  const isSuperseded = (message: Message, index: number): boolean => {
    if (message.role !== 'assistant' || message.stop_reason !== 'aborted') return false;
    if (messages[index + 1]?.role === 'assistant') return true;
    return textOf(message.content) === '' && toolCallsOf(message).length === 0;
  };
  if (!messages.some(isSuperseded)) return conversation;
  const kept = messages.map((message, index) => !isSuperseded(message, index));
  return {
    messages: messages.filter((_, index) => kept[index]),
    sources: sources.filter((_, index) => kept[index]),
  };
}
