import { createHash } from 'node:crypto';
import type { EventPayloads, LogEvent } from '../../kernel/core/events.ts';
import { isJsonObject, type JsonObject, parseJson } from '../../kernel/core/json.ts';
import {
  type AssistantBlock,
  type AssistantMessage,
  type ContentBlock,
  injectedMessage,
  isErrorOutcome,
  type Message,
  type StopReason,
  toolCallsOf,
} from '../../kernel/core/message.ts';
import { originalLineOf, timeOf } from '../../kernel/core/original.ts';
import { totalTokens, type Usage } from '../../kernel/core/usage.ts';
import type { ExportSource } from '../../kernel/export/source.ts';
import { editedMessage } from '../../kernel/log/context.ts';
import { isKnown, pathTo, type SessionTree, type TreeEntry } from '../../kernel/log/tree.ts';
import { exportedDetails } from './details.ts';
import { PI_VERSION } from './session.ts';

/** The parts of a thread that a pi session is made from. */
export type PiSource = Pick<ExportSource, 'header' | 'events' | 'tree' | 'leafId' | 'redactions'>;

/**
 * A thread as a session of pi, version 3, all branches of the source, ids kept. What came from pi and still has its place
 * goes back as the line that it was, unless values were taken out. What pi has no equal of becomes a `custom` entry,
 * which it carries and does not send. pi continues from the last entry of a file, so a different leaf is written after it.
 */
export function* exportPi(source: PiSource): Generator<string> {
  const { tree } = source;
  const origins = originsOf(source);
  const root = tree.entries.find(({ id }) => origins.get(id)?.value['type'] === 'session');
  yield headerLine(source, root && origins.get(root.id));
  const places = new Map<string, string | null>();
  const place = (id: string | null): string | null =>
    id === null ? null : (places.get(id) ?? null);
  const edited = editedEntries(tree, source.leafId, ({ id }) => !origins.has(id));
  let lastId: string | null = null;
  for (const entry of tree.entries) {
    const parentId = place(entry.parent_id);
    const isHidden = isKnown(entry, 'leaf') || entry === root;
    places.set(entry.id, isHidden ? parentId : entry.id);
    if (isHidden) continue;
    const at = { origin: origins.get(entry.id), parentId, place };
    yield edited.has(entry.id) ? editedLine(entry, edited.get(entry.id), at) : lineOf(entry, at);
    lastId = entry.id;
  }
  const leafId = place(source.leafId);
  if (leafId !== lastId) yield leafLine(source, leafId);
}

/** The lines of pi's that entries were imported from; none of them where values were taken out of the log. */
function originsOf({ tree, redactions }: PiSource): ReadonlyMap<string, Line> {
  const origins = new Map<string, Line>();
  if (redactions !== undefined) return origins;
  for (const { id, payload } of tree.entries) {
    const text = originalLineOf({ payload });
    const value = text === undefined ? undefined : parseJson(text);
    if (text !== undefined && isJsonObject(value)) origins.set(id, { text, value });
  }
  return origins;
}

interface Line {
  readonly text: string;
  readonly value: JsonObject;
}

/** An imported session keeps its header; a branch of it that was extracted to a thread is a new session. */
function headerLine({ header }: PiSource, origin: Line | undefined): string {
  const { thread_id, created_at, branched_from, continuation_of } = header;
  const isSame = branched_from === undefined && continuation_of === undefined;
  if (origin && isSame) {
    if (origin.value['version'] === PI_VERSION) return `${origin.text}\n`;
    return encode({ ...origin.value, version: PI_VERSION });
  }
  return encode({
    type: 'session',
    version: PI_VERSION,
    id: sessionId(thread_id),
    timestamp: created_at,
    // without one pi works in the folder that it is started in
    cwd: origin?.value['cwd'],
  });
}

function encode(value: JsonObject): string {
  return `${JSON.stringify(value)}\n`;
}

/** The same thread is the same session at each export: a version 8 UUID of its id (RFC 9562, 5.8). */
function sessionId(threadId: string): string {
  const hex = createHash('sha256').update(threadId).digest('hex');
  const variant = '89ab'[Number.parseInt(hex[16] ?? '0', 16) % 4];
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    `${variant}${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join('-');
}

interface Place {
  readonly origin: Line | undefined;
  readonly parentId: string | null;
  /** Resolves a reference to an entry to a written one. */
  readonly place: (id: string | null) => string | null;
}

function lineOf(entry: TreeEntry, { origin, parentId, place }: Place): string {
  const { id } = entry;
  if (!origin) {
    const { type, ...rest } = converted(entry, place);
    return encode({ type, id, parentId, timestamp: timeOf(entry), ...rest });
  }
  const { text, value } = origin;
  const isUntouched =
    value['id'] === id &&
    (value['parentId'] ?? null) === parentId &&
    isSameKept(entry, value) &&
    !isHookMessage(value);
  return isUntouched ? `${text}\n` : encode(migrated(entry, value, parentId));
}

/** An entry after context edits. What is not in the context becomes a `custom` entry, which pi does not send. */
function editedLine(entry: TreeEntry, after: TreeEntry | undefined, at: Place): string {
  const before = JSON.parse(lineOf(entry, at)) as JsonObject;
  const { id, parentId, timestamp, ...data } = before;
  const place = { id, parentId, timestamp };
  if (!after) return encode({ type: 'custom', ...place, customType: 'rye/omitted', data });
  const { type, message: now, ...rest } = converted(after, at.place);
  const { message: was } = before;
  const message =
    isJsonObject(was) && isJsonObject(now) ? { ...was, content: now['content'] } : now;
  return encode({ type, ...place, ...rest, message });
}

/** Finds the first kept entry of a compaction: removing labels from the chain may have removed the named one. */
function isSameKept(entry: TreeEntry, value: JsonObject): boolean {
  if (!isKnown(entry, 'compaction')) return true;
  const { first_kept_entry_id: first } = entry.payload;
  return first === null || first === value['firstKeptEntryId'];
}

function isHookMessage({ message }: JsonObject): boolean {
  return isJsonObject(message) && message['role'] === 'hookMessage';
}

/** Rewrites a line from an older version, or one whose parent changed, as version 3. */
function migrated(entry: TreeEntry, value: JsonObject, parentId: string | null): JsonObject {
  const { firstKeptEntryIndex: _index, message, ...rest } = value;
  const kept = isKnown(entry, 'compaction') ? entry.payload.first_kept_entry_id : null;
  const renamed =
    isHookMessage(value) && isJsonObject(message) ? { ...message, role: 'custom' } : message;
  return {
    ...rest,
    ...(message === undefined ? {} : { message: renamed }),
    ...(kept === null ? {} : { firstKeptEntryId: kept }),
    id: entry.id,
    parentId,
  };
}

/** Type and members of an entry that rye wrote. */
function converted(entry: TreeEntry, place: Place['place']): JsonObject {
  if (isKnown(entry, 'message')) {
    return {
      type: 'message',
      message: piMessage(entry.payload.message, Date.parse(timeOf(entry))),
    };
  }
  if (isKnown(entry, 'model_change')) {
    const { provider, model } = entry.payload;
    return { type: 'model_change', provider, modelId: model };
  }
  if (isKnown(entry, 'thinking_change')) {
    return { type: 'thinking_level_change', thinkingLevel: entry.payload.level };
  }
  if (isKnown(entry, 'compaction')) return compaction(entry, place);
  if (isKnown(entry, 'branch_summary')) {
    const { from_id, summary, details } = entry.payload;
    const fromId = place(from_id) ?? 'root';
    return { type: 'branch_summary', fromId, summary, ...exportedDetails(details) };
  }
  return convertedState(entry);
}

function convertedState(entry: TreeEntry): JsonObject {
  if (isKnown(entry, 'custom_message')) {
    const { custom_type: customType, content: text, images, display, details } = entry.payload;
    const content = images ? injectedMessage(entry.payload).content.map(contentBlock) : text;
    return { type: 'custom_message', customType, content, display, details };
  }
  if (isKnown(entry, 'custom')) {
    const { custom_type: customType, data } = entry.payload;
    return { type: 'custom', customType, data };
  }
  if (isKnown(entry, 'label')) {
    const { target_id: targetId, label } = entry.payload;
    return { type: 'label', targetId, label: label ?? undefined };
  }
  if (isKnown(entry, 'title')) return { type: 'session_info', name: entry.payload.title };
  if (isKnown(entry, 'context_edit')) {
    const { target_id: targetId, action, content = '' } = entry.payload;
    return { type: 'context_edit', targetId, replacement: action === 'omit' ? null : { content } };
  }
  const data = entry.payload as JsonObject;
  return { type: 'custom', customType: `rye/${entry.event_type}`, data };
}

/** A compaction that kept nothing names itself, as newer versions of pi do. */
function compaction(
  { id, payload }: Extract<LogEvent, { event_type: 'compaction' }> & { readonly id: string },
  place: Place['place'],
): JsonObject {
  const { summary, first_kept_entry_id: first, tokens_before, details } = payload;
  return {
    type: 'compaction',
    summary,
    firstKeptEntryId: place(first) ?? id,
    tokensBefore: tokens_before,
    ...exportedDetails(details),
  };
}

function leafLine({ header, events }: PiSource, leafId: string | null): string {
  const timestamp = events.at(-1)?.timestamp ?? header.created_at;
  const id = `leaf-${(events.at(-1)?.seq ?? 0).toString(16)}`;
  const data = { leafId };
  return encode({
    type: 'custom',
    id,
    parentId: leafId,
    timestamp,
    customType: 'rye/leaf',
    data,
  });
}

/** A message as pi stores it; `timestamp` is Unix milliseconds. */
export function piMessage(message: Message, timestamp: number): JsonObject {
  switch (message.role) {
    case 'user':
      return { role: 'user', content: message.content.map(contentBlock), timestamp };
    case 'assistant':
      return answer(message, timestamp);
    case 'tool_result':
      return {
        role: 'toolResult',
        toolCallId: message.call_id,
        toolName: message.name,
        content: message.content.map(contentBlock),
        ...(message.data ? { details: message.data } : {}),
        isError: isErrorOutcome(message.outcome),
        timestamp,
      };
  }
}

const STOP_REASONS = {
  end: 'stop',
  tool_calls: 'toolUse',
  max_tokens: 'length',
  content_filtered: 'error',
  aborted: 'aborted',
} as const satisfies Record<StopReason, string>;

const APIS: Readonly<Record<string, string>> = {
  anthropic: 'anthropic-messages',
  openai: 'openai-completions',
};

function answer(message: AssistantMessage, timestamp: number): JsonObject {
  const { content, provider, model, stop_reason, usage } = message;
  return {
    role: 'assistant',
    content: content.map(answerBlock),
    api: APIS[provider] ?? provider,
    provider,
    model,
    usage: usageOf(usage),
    stopReason: STOP_REASONS[stop_reason],
    timestamp,
  };
}

function usageOf(usage: Usage): JsonObject {
  return {
    input: usage.input_tokens,
    output: usage.output_tokens,
    cacheRead: usage.cache_read_tokens,
    cacheWrite: usage.cache_write_tokens,
    totalTokens: totalTokens(usage),
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
  };
}

function contentBlock(block: ContentBlock): JsonObject {
  return block.type === 'text'
    ? { type: 'text', text: block.text }
    : { type: 'image', data: block.data, mimeType: block.media_type };
}

function answerBlock(block: AssistantBlock): JsonObject {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text };
    case 'thinking': {
      const { text, signature, redacted } = block;
      return redacted === undefined
        ? { type: 'thinking', thinking: text, thinkingSignature: signature }
        : { type: 'thinking', thinking: text, thinkingSignature: redacted, redacted: true };
    }
    case 'tool_call':
      return { type: 'toolCall', id: block.call_id, name: block.name, arguments: block.input };
  }
}

type Edit = EventPayloads['context_edit'];

/**
 * The entries that a context edit changed on every branch that has them, as they are after it; undefined if nothing of an
 * entry is in the context any more. pi 0.73 ignores edits, so they are exported like this. An edit that only some of the
 * branches have is left to newer versions of pi.
 */
function editedEntries(
  tree: SessionTree,
  leafId: string | null,
  isOwn: (entry: TreeEntry) => boolean,
): ReadonlyMap<string, TreeEntry | undefined> {
  const edited = new Map<string, TreeEntry | undefined>();
  const edits = tree.entries.filter((entry) => isKnown(entry, 'context_edit')).filter(isOwn);
  if (edits.length === 0) return edited;
  const ends = branchEnds(tree, leafId);
  for (const { id, payload } of edits) {
    const target = tree.byId.get(payload.target_id);
    if (!target || ends.get(id) !== ends.get(target.id)) continue;
    if (pathTo(tree, id).includes(target)) edited.set(target.id, editedEntry(target, payload));
  }
  for (const id of resultsWithoutCall(tree, edited)) edited.set(id, undefined);
  return edited;
}

/** The number of branches that end at or below each entry; one ends at the head, too. */
function branchEnds(tree: SessionTree, leafId: string | null): ReadonlyMap<string, number> {
  const ends = new Map<string, number>();
  for (const entry of tree.entries.toReversed()) {
    const { id, parent_id: parent } = entry;
    const below = ends.get(id) ?? 0;
    const isEnd = (below === 0 && !isKnown(entry, 'leaf')) || (below > 0 && id === leafId);
    const count = below + (isEnd ? 1 : 0);
    ends.set(id, count);
    if (parent !== null) ends.set(parent, (ends.get(parent) ?? 0) + count);
  }
  return ends;
}

/** Results of omitted answers: without their calls, they are in no context. */
function resultsWithoutCall(
  { entries, byId }: SessionTree,
  edited: ReadonlyMap<string, TreeEntry | undefined>,
): readonly string[] {
  const calls = new Set<string>();
  for (const [id, after] of edited) {
    const before = byId.get(id);
    if (after || !before || !isKnown(before, 'message')) continue;
    const { message } = before.payload;
    if (message.role !== 'assistant') continue;
    for (const { call_id: callId } of toolCallsOf(message)) calls.add(callId);
  }
  return entries.flatMap((entry) => {
    const message = isKnown(entry, 'message') ? entry.payload.message : undefined;
    return message?.role === 'tool_result' && calls.has(message.call_id) ? [entry.id] : [];
  });
}

function editedEntry(entry: TreeEntry, edit: Edit): TreeEntry | undefined {
  const { content: text = '' } = edit;
  const isOmitted = edit.action === 'omit';
  if (isKnown(entry, 'message')) {
    const message = editedMessage(entry.payload.message, edit);
    return message && { ...entry, payload: { ...entry.payload, message } };
  }
  if (isKnown(entry, 'custom_message')) {
    return isOmitted ? undefined : { ...entry, payload: { ...entry.payload, content: text } };
  }
  if (isKnown(entry, 'branch_summary')) {
    return isOmitted ? undefined : { ...entry, payload: { ...entry.payload, summary: text } };
  }
  // a compaction also decides which messages are in the context, so it stays
  if (isKnown(entry, 'compaction'))
    return { ...entry, payload: { ...entry.payload, summary: text } };
  return entry;
}
