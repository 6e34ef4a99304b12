import type { JsonObject } from '../core/json.ts';
import { isErrorOutcome, type Message, textOf } from '../core/message.ts';
import { totalTokens } from '../core/usage.ts';
import { foldContext, type SessionContext } from './context.ts';
import {
  BYTES_PER_TOKEN,
  type FilesTouched,
  filesOfDetails,
  filesTouched,
  mergeFiles,
  messageTokens,
} from './summary-prompt.ts';
import { isKnown, pathTo, type SessionTree, type TreeEntry } from './tree.ts';

/** Sizes that decide when and where a context is cut, in tokens. */
export interface CompactionSizes {
  readonly contextWindow: number;
  /** Tokens kept free for an answer; a context that leaves less is full. */
  readonly reserveTokens: number;
  /** Tokens of the newest conversation that are kept in full. */
  readonly keepRecentTokens: number;
}

export interface PlanRequest {
  readonly sizes: CompactionSizes;
  /** Tokens of the whole context; absent: taken from the last usage on the path. */
  readonly tokens?: number | undefined;
  /** The leaf whose path is compacted; absent: the tree's own. */
  readonly leafId?: string | null;
  /** The first entry to keep, one of a plan's `cutPoints`; absent: chosen by size. */
  readonly firstKept?: string | undefined;
}

/** The messages that a compaction will summarize and those that it will keep. */
export interface CompactionPlan {
  /** Whole turns that go into the summary. */
  readonly history: readonly Message[];
  /** The early part of the turn that the cut splits; empty if no turn is split or the cut is at its start. */
  readonly turnPrefix: readonly Message[];
  /** The original task, if it stays outside the summary. */
  readonly task: string | undefined;
  /** Summaries of earlier compactions on the path, newest first. */
  readonly previousSummaries: readonly string[];
  readonly firstKeptEntryId: string;
  /** Every entry from which on the context may be kept, oldest first. */
  readonly cutPoints: readonly string[];
  readonly protectedIds: readonly string[];
  readonly files: FilesTouched;
  readonly tokensBefore: number;
}

/** The sizes that can be had in a small window: at least half of it is for the conversation. */
export function fittingSizes({
  contextWindow,
  reserveTokens,
  keepRecentTokens,
}: CompactionSizes): CompactionSizes {
  const reserve = Math.min(reserveTokens, Math.floor(contextWindow / 4));
  const keep = Math.min(keepRecentTokens, Math.floor((contextWindow - reserve) / 2));
  return { contextWindow, reserveTokens: reserve, keepRecentTokens: keep };
}

interface Item {
  readonly entryId: string | null;
  readonly message: Message;
  readonly tokens: number;
}

/**
 * Decides where the context is cut: the newest messages up to `keepRecentTokens` stay, never fewer than those that the
 * model has not seen, and never a result without its call. undefined: there is nothing to gain. After the cut points
 * of pi's session tree, with what its successors corrected (trailing results, kept messages, split turns).
 */
export function planCompaction(
  tree: SessionTree,
  { sizes, tokens, leafId = tree.leafId, firstKept }: PlanRequest,
): CompactionPlan | undefined {
  const path = pathTo(tree, leafId);
  const context = foldContext(tree, { leafId });
  const live = liveItems(path, context);
  const tokensBefore = tokens ?? measuredTokens(path, context);
  const scale = scaleOf(context, tokensBefore);
  const keepTokens = Math.min(sizes.keepRecentTokens, tokensBefore / 2) / scale;
  const isProtected = protector(tree, path, sizes);
  const cutPoints = cutPointsOf(live, isProtected);
  const first = firstKept ?? live[bestCut(live, keepTokens)]?.entryId;
  if (first === undefined || first === null || !cutPoints.includes(first)) return undefined;
  const cut = live.findIndex(({ entryId }) => entryId === first);
  const protectedBefore = protectedSoFar(path);
  const dropped = live.slice(0, cut).filter(({ entryId }) => !isProtected(entryId));
  const split = splitAt(live, cut);
  const isWhole = ({ entryId }: Item): boolean => !isProtected(entryId);
  const history = live.slice(0, split).filter(isWhole);
  const prefix = live.slice(split, cut).filter(isWhole);
  const opening = openingOf(path);
  return {
    history: messagesOf(history.length === 0 ? prefix : history),
    turnPrefix: history.length === 0 ? [] : messagesOf(prefix),
    task:
      opening && isProtected(opening.id) && isKnown(opening, 'message')
        ? textOf(opening.payload.message.content)
        : undefined,
    previousSummaries: path
      .filter((entry) => isKnown(entry, 'compaction'))
      .map(({ payload }) => payload.summary)
      .toReversed(),
    firstKeptEntryId: first,
    cutPoints,
    protectedIds: [
      ...protectedBefore,
      ...live
        .slice(0, cut)
        .flatMap(({ entryId }) =>
          entryId !== null && isProtected(entryId) && !protectedBefore.includes(entryId)
            ? [entryId]
            : [],
        ),
    ],
    files: filesSoFar(path, messagesOf(dropped)),
    tokensBefore: Math.ceil(tokensBefore),
  };
}

/** Returns every entry from which on the context of a tree may be kept, oldest first. */
export function cutPointsIn(tree: SessionTree, sizes: CompactionSizes): readonly string[] {
  const path = pathTo(tree, tree.leafId);
  return cutPointsOf(liveItems(path, foldContext(tree)), protector(tree, path, sizes));
}

function messagesOf(items: readonly Item[]): readonly Message[] {
  return items.map(({ message }) => message);
}

/** The messages that may be cut: all but the last summary and what it protects. */
function liveItems(path: readonly TreeEntry[], context: SessionContext): readonly Item[] {
  const summary = path.findLast((entry) => isKnown(entry, 'compaction'));
  const start = summary === undefined ? 0 : context.sources.indexOf(summary.id) + 1;
  return context.messages.slice(start).map((message, index) => ({
    message,
    entryId: context.sources[start + index] ?? null,
    tokens: messageTokens(message),
  }));
}

/**
 * Tokens of a context: what the provider counted for the last answer that nothing has changed the context before
 * since, and an estimate of the later messages; without one, an estimate of all.
 */
function measuredTokens(path: readonly TreeEntry[], context: SessionContext): number {
  const changed = path.findLastIndex(
    (entry) => isKnown(entry, 'compaction') || isKnown(entry, 'context_edit'),
  );
  const valid = new Set(path.slice(changed + 1).map(({ id }) => id));
  const at = context.messages.findLastIndex((message, index) => {
    const source = context.sources[index];
    return (
      message.role === 'assistant' &&
      message.stop_reason !== 'aborted' &&
      totalTokens(message.usage) > 0 &&
      source !== null &&
      source !== undefined &&
      valid.has(source)
    );
  });
  const answer = context.messages[at];
  if (answer?.role !== 'assistant') return estimateOf(context);
  const after = context.messages.slice(at + 1);
  return totalTokens(answer.usage) + after.reduce((sum, one) => sum + messageTokens(one), 0);
}

/** A literal provider counts nothing: then bytes are all there is to go by. */
function estimateOf({ system, tools, messages }: SessionContext): number {
  const preamble = Buffer.byteLength(system) + Buffer.byteLength(JSON.stringify(tools));
  const tokens = messages.reduce((sum, message) => sum + messageTokens(message), 0);
  return tokens + Math.ceil(preamble / BYTES_PER_TOKEN);
}

/** Returns the ratio of real to estimated tokens, within bounds. */
function scaleOf(context: SessionContext, tokens: number): number {
  const estimate = estimateOf(context);
  return estimate === 0 ? 1 : Math.min(3, Math.max(0.5, tokens / estimate));
}

/** The entries at which a cut parts no call from its result, keeps what is unseen, and leaves something to summarize. */
function cutPointsOf(
  live: readonly Item[],
  isProtected: (entryId: string | null) => boolean,
): readonly string[] {
  const from = live.findIndex(({ entryId }) => !isProtected(entryId));
  if (from === -1) return [];
  return live
    .slice(from + 1, firstUnseen(live) + 1)
    .flatMap((item) => (canCutAt(item) && item.entryId !== null ? [item.entryId] : []));
}

function bestCut(live: readonly Item[], keepTokens: number): number {
  return withItsQuestion(live, cutOf(live, keepTokens), keepTokens);
}

/** Index of the first message that stays; the number of items when none may be cut. */
function cutOf(live: readonly Item[], keepTokens: number): number {
  const last = firstUnseen(live);
  let kept = 0;
  let from = live.length;
  while (from > 0 && kept < keepTokens) {
    from -= 1;
    kept += live[from]?.tokens ?? 0;
  }
  if (kept < keepTokens) return live.length;
  for (let at = from; at <= last; at += 1) if (canCutAt(live[at])) return at;
  for (let at = Math.min(last, live.length - 1); at > 0; at -= 1) {
    if (canCutAt(live[at])) return at;
  }
  return live.length;
}

/** Moves a cut right after a short question to before it, so that the question needs no separate summary. */
function withItsQuestion(live: readonly Item[], cut: number, keepTokens: number): number {
  const before = live[cut - 1];
  if (before?.message.role !== 'user' || !canCutAt(before)) return cut;
  const isShort = before.tokens <= keepTokens / 4;
  const hasMore = live.slice(0, cut - 1).some(({ message }) => message.role === 'assistant');
  return isShort && hasMore ? cut - 1 : cut;
}

function canCutAt(item: Item | undefined): boolean {
  return item !== undefined && item.entryId !== null && item.message.role !== 'tool_result';
}

/** The last index at which a cut keeps everything that no answer has covered: results with their calls, and injections. */
function firstUnseen(live: readonly Item[]): number {
  const answered = live.findLastIndex(({ message }) => message.role === 'assistant');
  if (answered === -1) return 0;
  const isBehind = answered + 1 < live.length;
  const hasResults = live[answered + 1]?.message.role === 'tool_result';
  return isBehind && !hasResults ? answered + 1 : answered;
}

/** Returns the start of the turn that the cut splits; the cut itself if it splits none. */
function splitAt(live: readonly Item[], cut: number): number {
  if (live[cut]?.message.role !== 'assistant') return cut;
  const start = live.slice(0, cut).findLastIndex(({ message }) => message.role === 'user');
  return start === -1 ? cut : start;
}

/** Returns the first message of the path, the directive itself; undefined if the path begins with an answer. */
function openingOf(path: readonly TreeEntry[]): TreeEntry | undefined {
  const first = path.find((entry) => isKnown(entry, 'message'));
  return first?.payload.message.role === 'user' ? first : undefined;
}

function protectedSoFar(path: readonly TreeEntry[]): readonly string[] {
  const last = path.findLast((entry) => isKnown(entry, 'compaction'));
  return last?.payload.protected_entry_ids ?? [];
}

/** Entries that are never summarized: bodies of skills, protected messages, and an opening that is small enough. */
function protector(
  tree: SessionTree,
  path: readonly TreeEntry[],
  { contextWindow, reserveTokens }: CompactionSizes,
): (entryId: string | null) => boolean {
  const opening = openingOf(path);
  const room = (contextWindow - reserveTokens) / 4;
  const openingId =
    opening && isKnown(opening, 'message') && messageTokens(opening.payload.message) <= room
      ? opening.id
      : undefined;
  return (entryId) => {
    if (entryId === null) return false;
    const entry = tree.byId.get(entryId);
    return entryId === openingId || (entry !== undefined && isProtectedEntry(entry));
  };
}

const SKILL_TOOL = /(?:^|_)skills?_use$/;

/** True for a skill's body, and for an injected message whose details have `protected: true`. */
function isProtectedEntry(entry: TreeEntry): boolean {
  if (isKnown(entry, 'custom_message')) {
    const { custom_type: type, details } = entry.payload;
    return type === 'skill' || details?.['protected'] === true;
  }
  if (!isKnown(entry, 'message')) return false;
  const { message } = entry.payload;
  return (
    message.role === 'tool_result' &&
    SKILL_TOOL.test(message.name) &&
    !isErrorOutcome(message.outcome)
  );
}

/** Files of the messages that are summarized now, and those that earlier summaries on the path named. */
function filesSoFar(path: readonly TreeEntry[], dropped: readonly Message[]): FilesTouched {
  let files = filesTouched(dropped);
  for (const entry of path) files = mergeFiles(files, filesOfDetails(detailsOf(entry)));
  return files;
}

function detailsOf(entry: TreeEntry): JsonObject | undefined {
  if (isKnown(entry, 'compaction') || isKnown(entry, 'branch_summary')) {
    return entry.payload.details;
  }
  return undefined;
}
