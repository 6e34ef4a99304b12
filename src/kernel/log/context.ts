import type { EventPayloads, LogEvent, UnknownEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import {
  type AssistantMessage,
  injectedMessage,
  type Message,
  type ToolCallBlock,
  type ToolResultMessage,
  textOf,
  toolCallsOf,
  userText,
} from '../core/message.ts';
import { originalLineOf } from '../core/original.ts';
import { recoveredFate } from './open-calls.ts';
import { isKnown, listOf, pathTo, type SessionTree, type TreeEntry } from './tree.ts';

/** Settings in force at the leaf; absent means that nothing on the path set it. */
export interface ContextSettings {
  /** The model that was set or that answered last. */
  readonly model?: { readonly provider: string; readonly model: string };
  readonly thinking?: string;
  readonly title?: string;
}

/** The model's context, folded from the path to one head. */
export interface SessionContext {
  readonly messages: readonly Message[];
  /** Id of each message's entry, at the same index; null for a result that the repair added. */
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
  /** Calls whose effects may have begun, from {@link startedCallIds}. */
  readonly startedCalls?: ReadonlySet<string>;
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
    ...repairPairing(conversation, outcomesOf(tree, options.startedCalls)),
    system: facts.prompt?.text ?? '',
    tools: facts.prompt?.tools ?? [],
    settings: facts.settings,
  };
}

/** The outcome of a call that has no result on the path, as far as the log knows it. */
export interface Outcomes {
  /** The result that another branch of the log has. */
  readonly result: (callId: string) => ToolResultMessage | undefined;
  readonly wasStarted: (callId: string) => boolean;
  /** True for an answer that another program sent on: the rest of its request is unknown. */
  readonly wasImported: (entryId: string | null) => boolean;
}

/** The results of a whole log, collected when the first one is asked for: almost no path needs them. */
function outcomesOf(tree: SessionTree, startedCalls?: ReadonlySet<string>): Outcomes {
  let results: ReadonlyMap<string, TreeEntry> | undefined;
  return {
    result: (callId) => {
      results ??= resultEntries(tree);
      const entry = results.get(callId);
      const message = entry && messageOf(entry);
      return message?.role === 'tool_result' ? message : undefined;
    },
    wasStarted: (callId) => startedCalls?.has(callId) ?? false,
    wasImported: (entryId) => {
      const entry = entryId === null ? undefined : tree.byId.get(entryId);
      return entry !== undefined && originalLineOf(entry) !== undefined;
    },
  };
}

/** The first result of each call in a log; one that a tool returned comes before one that a recovery wrote. */
export function resultEntries(tree: SessionTree): ReadonlyMap<string, TreeEntry> {
  const results = new Map<string, TreeEntry>();
  const recovered = new Map<string, TreeEntry>();
  for (const entry of tree.entries) {
    if (!isKnown(entry, 'message')) continue;
    const { message } = entry.payload;
    if (message.role !== 'tool_result') continue;
    const found = recoveredFate(message.data) === undefined ? results : recovered;
    if (!found.has(message.call_id)) found.set(message.call_id, entry);
  }
  return new Map([...recovered, ...results]);
}

/** The settings that the entries of a path make. */
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
  let speaker: EventPayloads['model_change'] | undefined;
  let compactionAt = -1;
  const edits = new Map<string, Edit>();
  for (let index = 0; index < path.length; index += 1) {
    const entry = path[index];
    if (!entry) continue;
    if (isKnown(entry, 'message')) {
      if (entry.payload.message.role === 'assistant') speaker = entry.payload.message;
      continue;
    }
    if (isKnown(entry, 'model_change')) speaker = entry.payload;
    else if (isKnown(entry, 'system_prompt')) prompt = entry.payload;
    else if (isKnown(entry, 'compaction')) compactionAt = index;
    else if (isKnown(entry, 'context_edit')) edits.set(entry.payload.target_id, entry.payload);
    else settings = settingAfter(settings, entry);
  }
  if (speaker) {
    settings = { model: { provider: speaker.provider, model: speaker.model }, ...settings };
  }
  return { ...(prompt ? { prompt } : {}), settings, edits, compactionAt };
}

/** Returns the first message of a thread to the model, which a run that begins before it repeats; empty if there is none. */
export function openingText(tree: SessionTree): string {
  for (const entry of tree.entries) {
    if (!isKnown(entry, 'message') || entry.payload.message.role !== 'user') continue;
    return textOf(entry.payload.message.content);
  }
  return '';
}

/** The title in force at the leaf, without folding the messages. */
export function titleOf(tree: SessionTree): string | null {
  // an empty title takes an earlier one away
  return factsOf(pathTo(tree, tree.leafId)).settings.title || null;
}

function settingAfter(settings: ContextSettings, entry: TreeEntry): ContextSettings {
  if (isKnown(entry, 'thinking_change')) return { ...settings, thinking: entry.payload.level };
  if (isKnown(entry, 'title')) return { ...settings, title: entry.payload.title };
  return settings;
}

interface Selection {
  readonly entries: readonly TreeEntry[];
  /** Number of leading messages that come before a summary because it protects them. */
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
  if (isKnown(entry, 'custom_message')) return injectedMessage(entry.payload);
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
export function editedMessage(message: Message, edit: Edit | undefined): Message | undefined {
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
 * took its place. Skips empty ones.
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

/** Messages of a context, and at the same index the entry that each comes from; null for one that was made up. */
export interface Conversation {
  readonly messages: readonly Message[];
  readonly sources: readonly (string | null)[];
}

interface Item {
  readonly entryId: string | null;
  readonly message: Message;
}

const NO_OUTCOMES: Outcomes = {
  result: () => undefined,
  wasStarted: () => false,
  wasImported: () => false,
};

/**
 * Gives every tool call exactly one result, right after its message and in the order of the calls. Results
 * without a call and second results are dropped. A missing one is added: a text that states whether the call was
 * started; at the end of the path the result that the log has elsewhere, because a finished effect stays finished.
 */
export function repairPairing(
  conversation: Conversation,
  outcomes: Outcomes = NO_OUTCOMES,
): Conversation {
  const { messages, sources } = conversation;
  if (isPaired(messages)) return conversation;
  const items = messages.map((message, at): Item => ({ message, entryId: sources[at] ?? null }));
  const repaired = repairedItems(items, outcomes);
  return {
    messages: repaired.map(({ message }) => message),
    sources: repaired.map(({ entryId }) => entryId),
  };
}

/** True where each call has its result in its place and nothing else looks like one. */
function isPaired(messages: readonly Message[]): boolean {
  for (let at = 0; at < messages.length; ) {
    const message = messages[at];
    at += 1;
    if (message?.role === 'tool_result') return false;
    if (message?.role !== 'assistant') continue;
    for (const block of message.content) {
      if (block.type !== 'tool_call') continue;
      const answer = messages[at];
      if (answer?.role !== 'tool_result' || answer.call_id !== block.call_id) return false;
      at += 1;
    }
  }
  return true;
}

function repairedItems(items: readonly Item[], outcomes: Outcomes): readonly Item[] {
  const repaired: Item[] = [];
  let index = 0;
  while (index < items.length) {
    const current = items[index];
    index += 1;
    if (!current || current.message.role === 'tool_result') continue;
    repaired.push(current);
    if (current.message.role !== 'assistant') continue;
    const end = nextAssistant(items, index);
    const later = items.slice(index, end);
    // what rye sent stays as it was sent: only a path that ends with its calls takes results from elsewhere
    const isOpen =
      outcomes.wasImported(current.entryId) ||
      (end === items.length && later.every(({ message }) => message.role === 'tool_result'));
    const answers = answersOf(
      current.message,
      later,
      isOpen ? outcomes : { ...outcomes, result: NO_OUTCOMES.result },
    );
    // not spread: a list may be longer than a call may have arguments
    for (const answer of answers) repaired.push(answer);
    index = end;
  }
  return repaired;
}

function nextAssistant(items: readonly Item[], from: number): number {
  let end = from;
  while (end < items.length && items[end]?.message.role !== 'assistant') end += 1;
  return end;
}

/** Orders the messages between two assistant messages: results in the order of the calls, then the rest. */
function answersOf(
  assistant: AssistantMessage,
  later: readonly Item[],
  { result, wasStarted }: Outcomes,
): readonly Item[] {
  const results = new Map<string, Item[]>();
  for (const item of later) {
    if (item.message.role !== 'tool_result') continue;
    const same = results.get(item.message.call_id);
    if (same) same.push(item);
    else results.set(item.message.call_id, [item]);
  }
  const answers = toolCallsOf(assistant).map(
    (call) =>
      results.get(call.call_id)?.shift() ?? {
        entryId: null,
        message: result(call.call_id) ?? missingResult(call, wasStarted(call.call_id)),
      },
  );
  return [...answers, ...later.filter(({ message }) => message.role !== 'tool_result')];
}

/** Returns the result for a call that has none anywhere in the log. */
function missingResult(call: ToolCallBlock, started: boolean): ToolResultMessage {
  const text = started
    ? 'This call was interrupted. It may have taken effect in part or in full: check before repeating it.'
    : 'This call was not started.';
  return {
    role: 'tool_result',
    call_id: call.call_id,
    name: call.name,
    content: [{ type: 'text', text }],
    outcome: started ? 'aborted' : 'skipped',
  };
}
