import type { EventDraft, LogEvent, UnknownEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import { type Message, textOf } from '../core/message.ts';
import { extractDrafts } from './branch.ts';
import { foldContext, type SessionContext, startedCallIds } from './context.ts';
import { recoveredFate } from './open-calls.ts';
import { messageTokens } from './size.ts';
import { isKnown, type SessionTree } from './tree.ts';

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
  /** Calls that the successor runs again: their recovered results stay behind. */
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
 * The opening message and the latest messages up to `ceilingTokens`, for a successor that goes on because the context was
 * full. Never begins with a result whose call is left out.
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
  // what stood for earlier messages stands as text now
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

/** Results that the fold made up, by the entry behind which they belong. */
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
