import type { EventDraft, LogEvent, UnknownEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import { type Message, textOf } from '../core/message.ts';
import { foldContext, type SessionContext, startedCallIds } from './context.ts';
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
  const madeUp = madeUpResults(messages, sources);
  const drafts = extractDrafts(tree, leafId)
    .filter((draft) => !isRerun(draft, rerun))
    .flatMap((draft): readonly EventDraft[] => [
      draft,
      ...(madeUp.get(draft.id ?? '') ?? []).map(messageDraft),
    ]);
  return { drafts, messages, system: context.system, tools: context.tools };
}

/**
 * Returns the opening message and the latest messages up to `ceilingTokens`, for a successor that continues because the context was
 * full. Never begins with a result whose call is dropped.
 */
export function carryTail(request: CarryRequest, ceilingTokens: number): CarriedContext {
  const { tree, events, leafId } = request;
  const context = foldContext(tree, { leafId, startedCalls: startedCallIds(events) });
  const start = tailStart(context.messages, ceilingTokens);
  const kept = context.messages.flatMap((message, index) =>
    index === 0 || index >= start ? [{ message, source: context.sources[index] ?? null }] : [],
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
  // the summary of earlier messages is a plain text now
  return {
    event_type: 'custom_message',
    payload: {
      custom_type: isKnown(entry, 'custom_message') ? entry.payload.custom_type : 'carried_summary',
      content: textOf(message.content),
      display: isKnown(entry, 'custom_message') ? entry.payload.display : true,
    },
    id: entry.id,
  };
}

/** Results that the fold added, by the entry that they follow. */
function madeUpResults(
  messages: readonly Message[],
  sources: readonly (string | null)[],
): ReadonlyMap<string, readonly Message[]> {
  const found = new Map<string, Message[]>();
  let last: string | null = null;
  for (const [index, message] of messages.entries()) {
    const source = sources[index] ?? null;
    if (source !== null) last = source;
    else if (last !== null) found.set(last, [...(found.get(last) ?? []), message]);
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

/** Moves the leaf to an entry, or before the first one with `null`; the next entry starts a branch there. */
export function branchDraft(tree: SessionTree, targetId: string | null): EventDraft {
  if (targetId !== null) entryById(tree, targetId);
  return { event_type: 'leaf', payload: { target_id: targetId }, durable: true };
}

/** Moves the leaf and hangs a summary of the branch that is left there; the abandoned leaf must exist. */
export function branchWithSummaryDrafts(
  tree: SessionTree,
  targetId: string | null,
  { summary, details }: { readonly summary: string; readonly details?: JsonObject },
): readonly EventDraft[] {
  const payload = { from_id: tree.leafId ?? '', summary, ...(details ? { details } : {}) };
  return [branchDraft(tree, targetId), { event_type: 'branch_summary', payload, durable: true }];
}

/** Names an entry, or removes its name with `null`. */
export function labelDraft(tree: SessionTree, targetId: string, label: string | null): EventDraft {
  entryById(tree, targetId);
  return { event_type: 'label', payload: { target_id: targetId, label } };
}

/**
 * Drafts that rebuild the path to `entryId` in a new thread, ids kept. Label entries are taken out of the chain and
 * the labels in force on the path are set again at its end; a compaction that kept from one keeps from the entry
 * after it.
 */
export function extractDrafts(tree: SessionTree, entryId: string): readonly EventDraft[] {
  const path = pathTo(tree, entryId);
  const kept = path.filter((entry) => !isDropped(entry));
  const successor = successors(path);
  const copies = kept.map((entry) => copyDraft(entry, successor));
  const labels = kept.flatMap(({ id }): EventDraft[] => {
    const label = tree.labels.get(id);
    return label === undefined ? [] : [{ event_type: 'label', payload: { target_id: id, label } }];
  });
  return [...copies, ...labels];
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
