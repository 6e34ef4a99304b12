import type { EventDraft, LogEvent, UnknownEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import { type Message, textOf, toolCallsOf } from '../core/message.ts';
import { foldContext, resultEntries, type SessionContext, startedCallIds } from './context.ts';
import { recoveredFate } from './open-calls.ts';
import { messageTokens } from './summary-prompt.ts';
import { entryById, isKnown, pathTo, type SessionTree, type TreeEntry } from './tree.ts';

/** A thread's context as its successor takes it along. */
export interface CarriedContext {
  /** Entries that begin the successor's log; ids are kept. */
  readonly drafts: readonly EventDraft[];
  readonly messages: readonly Message[];
  /** The recorded system text and tool definitions: they are sent again as they are. */
  readonly system: string;
  readonly tools: readonly JsonObject[];
}

export interface CarryRequest {
  readonly tree: SessionTree;
  readonly events: readonly (LogEvent | UnknownEvent)[];
  readonly leafId: string | null;
  /** Calls that the successor runs again: their recovered results are not carried. */
  readonly rerun?: ReadonlySet<string>;
}

/** The whole path to the leaf, so that the successor can be branched, folded and resumed like its predecessor. */
export function carryPath({ tree, events, leafId, rerun }: CarryRequest): CarriedContext {
  const context = foldContext(tree, { leafId, startedCalls: startedCallIds(events) });
  if (leafId === null) return { ...context, drafts: [] };
  const { messages, sources } = withoutRerun(context, rerun);
  const recorded = resultEntries(tree);
  const madeUp = madeUpResults(messages, sources, recorded);
  const drafts = extractDrafts(tree, events, leafId)
    .filter((draft) => !isRerun(draft, rerun))
    .flatMap((draft): readonly EventDraft[] => [
      draft,
      ...(madeUp.get(draft.id ?? '') ?? []).map(messageDraft),
    ]);
  return { drafts, messages, system: context.system, tools: context.tools };
}

/**
 * Returns the opening message, what the last compaction left of the messages before it, and the latest messages, for a
 * successor that continues because the context was full. `ceilingTokens` bounds all but the opening message and the summary.
 * The latest never begin with a result whose call is dropped.
 */
export function carryTail(request: CarryRequest, ceilingTokens: number): CarriedContext {
  const { tree, events, leafId } = request;
  const context = foldContext(tree, { leafId, startedCalls: startedCallIds(events) });
  const summaryAt = context.sources.findLastIndex((source) => isSummary(tree, source));
  const compacted = context.messages.slice(1, summaryAt + 1);
  const tokens = compacted.reduce((sum, message) => sum + messageTokens(message), 0);
  const hasRoom = tokens <= ceilingTokens;
  const start = tailStart(context.messages, hasRoom ? ceilingTokens - tokens : ceilingTokens);
  const isHead = (index: number): boolean =>
    index === 0 || index === summaryAt || (hasRoom && index < summaryAt);
  const kept = context.messages.flatMap((message, index) =>
    isHead(index) || index >= start ? [{ message, source: context.sources[index] ?? null }] : [],
  );
  const { system, tools } = context;
  return {
    drafts: [
      { event_type: 'system_prompt', payload: { text: system, tools } },
      ...kept.map(({ message, source }) => tailDraft(tree, message, source)),
    ],
    messages: kept.map(({ message }) => message),
    system,
    tools,
  };
}

function isSummary(tree: SessionTree, source: string | null): boolean {
  const entry = source === null ? undefined : tree.byId.get(source);
  return entry !== undefined && isKnown(entry, 'compaction');
}

function tailStart(messages: readonly Message[], ceilingTokens: number): number {
  let start = messages.length;
  let tokens = 0;
  while (start > 1) {
    const message = messages[start - 1];
    if (!message) break;
    tokens += messageTokens(message);
    if (tokens > ceilingTokens) break;
    start -= 1;
  }
  while (messages[start]?.role === 'tool_result') start += 1;
  return start;
}

function tailDraft(tree: SessionTree, message: Message, source: string | null): EventDraft {
  const entry = source === null ? undefined : tree.byId.get(source);
  if (!entry || isKnown(entry, 'message')) {
    return {
      event_type: 'message',
      payload: {
        message,
        ...(entry?.payload.turn === undefined ? {} : { turn: entry.payload.turn }),
      },
      ...(entry ? { id: entry.id } : {}),
    };
  }
  const images = message.content.filter((block) => block.type === 'image');
  // the summary of earlier messages is a plain text now
  return {
    event_type: 'custom_message',
    payload: {
      custom_type: isKnown(entry, 'custom_message') ? entry.payload.custom_type : 'carried_summary',
      content: textOf(message.content),
      ...(images.length === 0 ? {} : { images }),
      display: isKnown(entry, 'custom_message') ? entry.payload.display : true,
    },
    id: entry.id,
  };
}

/** Results that the fold added and the log has nowhere, by the entry that they follow. */
function madeUpResults(
  messages: readonly Message[],
  sources: readonly (string | null)[],
  recorded: ReadonlyMap<string, unknown>,
): ReadonlyMap<string, readonly Message[]> {
  const found = new Map<string, Message[]>();
  let last: string | null = null;
  for (const [index, message] of messages.entries()) {
    const source = sources[index] ?? null;
    if (source !== null) last = source;
    else if (last !== null && !(message.role === 'tool_result' && recorded.has(message.call_id)))
      found.set(last, [...(found.get(last) ?? []), message]);
  }
  return found;
}

function messageDraft(message: Message): EventDraft {
  return { event_type: 'message', payload: { message } };
}

function withoutRerun(
  { messages, sources }: Pick<SessionContext, 'messages' | 'sources'>,
  rerun: ReadonlySet<string> | undefined,
): Pick<SessionContext, 'messages' | 'sources'> {
  if (!rerun || rerun.size === 0) return { messages, sources };
  const kept = messages.map((message) => !isRerunResult(message, rerun));
  return {
    messages: messages.filter((_, index) => kept[index]),
    sources: sources.filter((_, index) => kept[index]),
  };
}

function isRerun(draft: EventDraft, rerun: ReadonlySet<string> | undefined): boolean {
  return draft.event_type === 'message' && isRerunResult(draft.payload.message, rerun);
}

/** Only results that a recovery wrote: a call id is never reused within a thread. */
function isRerunResult(message: Message, rerun: ReadonlySet<string> | undefined): boolean {
  return (
    message.role === 'tool_result' &&
    recoveredFate(message.data) !== undefined &&
    (rerun?.has(message.call_id) ?? false)
  );
}

/**
 * The context at an entry of the thread's own log, and the drafts that move the head there. Results that `rerun` calls
 * replace stay on a branch that is left: what came after them is copied beside it.
 */
export function continuePath({ tree, events, leafId, rerun }: CarryRequest): CarriedContext {
  const context = foldContext(tree, { leafId, startedCalls: startedCallIds(events) });
  const { messages } = withoutRerun(context, rerun);
  const { system, tools } = context;
  const path = leafId === null ? [] : pathTo(tree, leafId);
  const first = path.findIndex((entry) => isRerun(entry as EventDraft, rerun));
  if (first === -1) {
    const moved = leafId === tree.leafId ? [] : branchDrafts(tree, leafId);
    const drafts = moved.filter((draft) => !isRerun(draft, rerun));
    return { drafts, messages, system, tools };
  }
  const kept = path.slice(first).filter((entry) => COPIED.has(entry.event_type));
  const copies = kept
    .map(({ event_type, payload }) => ({ event_type, payload }) as EventDraft)
    .filter((draft) => !isRerun(draft, rerun));
  const drafts = [
    { event_type: 'leaf', payload: { target_id: path[first - 1]?.id ?? null }, durable: true },
    ...copies,
  ] as const;
  return { drafts, messages, system, tools };
}

/** True if everything after the last answer on the path to an entry can be copied beside it. */
export function isCopyable(tree: SessionTree, leafId: string | null): boolean {
  const path = pathTo(tree, leafId);
  const last = path.findLastIndex(
    (entry) => isKnown(entry, 'message') && entry.payload.message.role === 'assistant',
  );
  return path.slice(last + 1).every((entry) => COPIED.has(entry.event_type) || isDropped(entry));
}

/** Types whose entries name no other entry, or, as a compaction does, only entries before the calls. */
const COPIED: ReadonlySet<string> = new Set([
  'message',
  'system_prompt',
  'compaction',
  'custom',
  'custom_message',
  'title',
  'model_change',
  'thinking_change',
  'rule_injection',
]);

/**
 * Moves the head to an entry, or before the first one with `null`; the next entry starts a branch there. Where the path
 * ends with calls whose results are elsewhere in the log, copies of these results begin the branch.
 */
export function branchDrafts(tree: SessionTree, targetId: string | null): readonly EventDraft[] {
  if (targetId !== null) entryById(tree, targetId);
  const results = targetId === null ? [] : outcomesAtEnd(tree, targetId);
  return [
    { event_type: 'leaf', payload: { target_id: targetId }, durable: true },
    ...results.map(messageDraft),
  ];
}

/** Moves the head and hangs a summary of the branch that is left there; the abandoned head must exist. */
export function branchWithSummaryDrafts(
  tree: SessionTree,
  targetId: string | null,
  { summary, details }: { readonly summary: string; readonly details?: JsonObject },
): readonly EventDraft[] {
  const payload = { from_id: tree.leafId ?? '', summary, ...(details ? { details } : {}) };
  return [
    ...branchDrafts(tree, targetId),
    { event_type: 'branch_summary', payload, durable: true },
  ];
}

/** Names an entry, or removes its name with `null`. */
export function labelDraft(tree: SessionTree, targetId: string, label: string | null): EventDraft {
  entryById(tree, targetId);
  return { event_type: 'label', payload: { target_id: targetId, label } };
}

/** A draft of a copied path, and the event that it copies. */
export interface Copy {
  readonly draft: EventDraft;
  readonly origin: LogEvent | UnknownEvent;
}

/**
 * Rebuilds the path to `entryId` in a new thread, ids kept: its entries, and after each answer the starts of its calls
 * and the results that the log has below `entryId` or on another branch, because a finished effect stays finished. Label entries are taken out of the chain and the labels in force on the path are set again at its end; a
 * compaction that kept from one keeps from the entry after it.
 */
export function copyPath(
  tree: SessionTree,
  events: readonly (LogEvent | UnknownEvent)[],
  entryId: string,
): readonly Copy[] {
  const path = pathTo(tree, entryId);
  const kept = path.filter((entry) => !isDropped(entry));
  const successor = successors(path);
  const starts = startsByAnswer(kept, events);
  const outcomes = outcomesElsewhere(tree, kept);
  const labelEntries = newestLabels(tree);
  return [
    ...kept.flatMap((entry): readonly Copy[] => [
      { draft: copyDraft(entry, successor), origin: entry },
      ...(starts.get(entry.id) ?? []).map(copyOf),
      ...(outcomes.get(entry.id) ?? []).map((origin) => ({
        draft: copyDraft(origin, successor),
        origin,
      })),
    ]),
    ...kept.flatMap(({ id }): readonly Copy[] => {
      const label = tree.labels.get(id);
      const origin = labelEntries.get(id);
      if (label === undefined || !origin) return [];
      return [{ draft: { event_type: 'label', payload: { target_id: id, label } }, origin }];
    }),
  ];
}

/** The drafts of {@link copyPath}. */
export function extractDrafts(
  tree: SessionTree,
  events: readonly (LogEvent | UnknownEvent)[],
  entryId: string,
): readonly EventDraft[] {
  return copyPath(tree, events, entryId).map(({ draft }) => draft);
}

function copyOf(origin: LogEvent): Copy {
  const { event_type, payload } = origin;
  return { draft: { event_type, payload } as EventDraft, origin };
}

/** The starts of calls, by the entry of the answer that made them. */
function startsByAnswer(
  path: readonly TreeEntry[],
  events: readonly (LogEvent | UnknownEvent)[],
): ReadonlyMap<string, readonly LogEvent[]> {
  const answers = new Map<string, string>();
  for (const entry of path) for (const id of callIdsOf(entry)) answers.set(id, entry.id);
  const starts = new Map<string, LogEvent[]>();
  if (answers.size === 0) return starts;
  for (const event of events) {
    if (!isKnown(event, 'tool_call_start')) continue;
    const answer = answers.get(event.payload.call_id);
    if (answer === undefined) continue;
    const same = starts.get(answer);
    if (same) same.push(event);
    else starts.set(answer, [event]);
  }
  return starts;
}

function callIdsOf(entry: TreeEntry): readonly string[] {
  if (!isKnown(entry, 'message') || entry.payload.message.role !== 'assistant') return [];
  return toolCallsOf(entry.payload.message).map(({ call_id: id }) => id);
}

/** Results that the path lacks and the log has, by the entry of the answer whose calls they belong to. */
function outcomesElsewhere(
  tree: SessionTree,
  path: readonly TreeEntry[],
): ReadonlyMap<string, readonly TreeEntry[]> {
  const answered = new Set(path.map(answeredCall));
  const missing = path.filter((entry) => callIdsOf(entry).some((id) => !answered.has(id)));
  if (missing.length === 0) return new Map();
  const results = resultEntries(tree);
  return new Map(
    missing.map((answer) => [
      answer.id,
      callIdsOf(answer).flatMap((id) => (answered.has(id) ? [] : (results.get(id) ?? []))),
    ]),
  );
}

/** The results from elsewhere in the log that the fold adds at the end of a path. */
function outcomesAtEnd(tree: SessionTree, entryId: string): readonly Message[] {
  const { messages, sources } = foldContext(tree, { leafId: entryId });
  const recorded = resultEntries(tree);
  return messages.filter(
    (message, index) =>
      sources[index] === null && message.role === 'tool_result' && recorded.has(message.call_id),
  );
}

function answeredCall(entry: TreeEntry): string | undefined {
  if (!isKnown(entry, 'message')) return undefined;
  const { message } = entry.payload;
  return message.role === 'tool_result' ? message.call_id : undefined;
}

/** The entry that set each label, by what it names. */
function newestLabels(tree: SessionTree): ReadonlyMap<string, TreeEntry> {
  const newest = new Map<string, TreeEntry>();
  if (tree.labels.size === 0) return newest;
  for (const entry of tree.entries) {
    if (isKnown(entry, 'label')) newest.set(entry.payload.target_id, entry);
  }
  return newest;
}

/** Labels are set again at the end; a `leaf` entry has a place on the path but moves nothing. */
function isDropped(entry: TreeEntry): boolean {
  return isKnown(entry, 'label') || isKnown(entry, 'leaf');
}

/** For each entry that is dropped the next one that stays. */
function successors(path: readonly TreeEntry[]): ReadonlyMap<string, string | null> {
  const next = new Map<string, string | null>();
  let following: string | null = null;
  for (const entry of path.toReversed()) {
    if (isDropped(entry)) next.set(entry.id, following);
    else following = entry.id;
  }
  return next;
}

function copyDraft(entry: TreeEntry, successor: ReadonlyMap<string, string | null>): EventDraft {
  const { id } = entry;
  if (isKnown(entry, 'compaction')) {
    const first = entry.payload.first_kept_entry_id;
    const first_kept_entry_id = first === null ? null : (successor.get(first) ?? first);
    return { event_type: 'compaction', payload: { ...entry.payload, first_kept_entry_id }, id };
  }
  const { event_type, payload } = entry;
  // an unknown type is copied as it is; a draft pairs type and payload, which the union loses here
  return { event_type, payload, id } as EventDraft;
}
