import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import type { Message } from '../../core/message.ts';
import type { PlannedModel, ThreadPlan } from '../../core/plan.ts';
import {
  addUsage,
  type MicroUsd,
  NO_USAGE,
  priceMicroUsd,
  type Usage,
  usageSince,
} from '../../core/usage.ts';
import type { CompactionPlan, CompactionSizes } from '../../log/compaction.ts';
import {
  conversationPiece,
  messageText,
  type SummaryKind,
  summaryPrompt,
  summaryText,
  truncateText,
  withoutFileLists,
} from '../../log/summary-prompt.ts';
import { retriesOf } from '../../loop/retry.ts';
import { type Summarizer, summarize } from './summarize.ts';

/** A model's room to write summaries in. */
export interface SummaryRoom extends Omit<Summarizer, 'maxTokens' | 'retries' | 'allowUnpriced'> {
  readonly plan: ThreadPlan;
  readonly sizes: CompactionSizes;
  /** Books a piece that others follow, so that a crash or a cancel does not forget what it cost. */
  readonly book: (usage: Usage) => Promise<void>;
}

export interface MessagesToSummarize {
  readonly kind: SummaryKind;
  readonly messages: readonly Message[];
  /** The part of the reserve that the answer may take. */
  readonly share: number;
  readonly task?: string | undefined;
  readonly previousSummary?: string | undefined;
  readonly instructions?: string | undefined;
}

/** The pieces in which a conversation was summarized, and what no piece had room for. */
interface Pieces {
  /** Number of requests. */
  readonly pieces: number;
  /** Number of messages and summaries that are larger than a piece, and of their characters that no request has. */
  readonly truncated: { readonly messages: number; readonly characters: number };
}

/** A summary, or why there is none. `usage` was paid for in both cases; `booked` is the part that is booked already. */
export type PiecedSummary = { readonly usage: Usage; readonly booked: Usage } & (
  | { readonly text: string; readonly pieces: Pieces; readonly details: JsonObject }
  | { readonly error: RyeError }
);

const HISTORY_SHARE = 0.8;
const PREFIX_SHARE = 0.5;

/** Whole turns and the first part of a split one are summarized separately: they need different prompts. */
export async function summarizeParts(
  room: SummaryRoom,
  { planned, instructions }: { planned: CompactionPlan; instructions: string | undefined },
  signal: AbortSignal,
): Promise<PiecedSummary> {
  const { history, turnPrefix, previousSummaries, task, files } = planned;
  const previous = previousSummaries[0];
  const whole = await summarizeMessages(
    room,
    {
      kind: 'history',
      messages: history,
      share: HISTORY_SHARE,
      task,
      instructions,
      previousSummary: previous === undefined ? undefined : withoutFileLists(previous),
    },
    signal,
  );
  if ('error' in whole) return whole;
  if (turnPrefix.length === 0) {
    return { ...whole, text: summaryText({ history: whole.text }, files) };
  }
  await room.book(usageSince(whole.booked, whole.usage));
  const prefix = await summarizeMessages(
    { ...room, remainingMicroUsd: room.remainingMicroUsd - priceOf(room.model, whole.usage) },
    { kind: 'turn_prefix', messages: turnPrefix, share: PREFIX_SHARE, instructions },
    signal,
  );
  const usage = addUsage(whole.usage, prefix.usage);
  const booked = addUsage(whole.usage, prefix.booked);
  if ('error' in prefix) return { error: prefix.error, usage, booked };
  const text = summaryText({ history: whole.text, turnPrefix: prefix.text }, files);
  const pieces = bothPieces(whole.pieces, prefix.pieces);
  return { text, usage, booked, pieces, details: detailsOf(pieces, 2) };
}

function bothPieces(one: Pieces, other: Pieces): Pieces {
  return {
    pieces: one.pieces + other.pieces,
    truncated: {
      messages: one.truncated.messages + other.truncated.messages,
      characters: one.truncated.characters + other.truncated.characters,
    },
  };
}

/** Returns what the entry records: nothing if each of its parts took one request with all of it. */
function detailsOf({ pieces, truncated }: Pieces, parts: number): JsonObject {
  return {
    ...(pieces > parts ? { pieces } : {}),
    ...(truncated.messages > 0 ? { truncated: { ...truncated } } : {}),
  };
}

/** Bytes of a token of a piece. Denser text may not fit the window: then the server refuses it, which costs nothing. */
const PIECE_BYTES_PER_TOKEN = 3;
const PROMPT_TOKENS = 2000;
const MIN_ANSWER_TOKENS = 1024;
/** Minimum bytes of a piece; a window with less room can't summarize. */
const MIN_PIECE_BYTES = 1024;
/** Maximum requests for one summary. */
const MAX_PIECES = 64;
const MAX_TASK_BYTES = 4000;

/**
 * Summarizes a conversation of any size: as many messages as the model's window has room for in each request, in order,
 * each with the summary so far. Never rejects.
 */
export async function summarizeMessages(
  room: SummaryRoom,
  given: MessagesToSummarize,
  signal: AbortSignal,
): Promise<PiecedSummary> {
  const { kind, share, instructions } = given;
  const { model, sizes, plan } = room;
  const maxTokens = Math.max(MIN_ANSWER_TOKENS, Math.floor(sizes.reserveTokens * share));
  const { texts, maxBytes, task } = roomFor(given, model, maxTokens);
  let summary = given.previousSummary;
  let count: Pieces = { pieces: 0, truncated: { messages: 0, characters: 0 } };
  let usage = NO_USAGE;
  let booked = NO_USAGE;
  const refusal = refusalOf(texts, { maxBytes, previousSummary: summary, model });
  if (refusal) return { error: refusal, usage, booked };
  for (let next = 0; ; ) {
    const previous =
      summary === undefined ? undefined : truncateText(summary, Math.floor(maxBytes / 2));
    const left = maxBytes - Buffer.byteLength(previous?.text ?? '');
    const piece = conversationPiece(texts, next, left);
    next = piece.next;
    const isContinued = next < texts.length;
    const prompt = summaryPrompt({
      kind,
      conversation: piece.text,
      isRest: count.pieces > 0,
      isContinued,
      task,
      previousSummary: previous?.text,
      instructions,
    });
    const answer = await summarize(
      {
        ...room,
        maxTokens,
        remainingMicroUsd: room.remainingMicroUsd - priceOf(model, usage),
        allowUnpriced: plan.allow_unpriced,
        retries: retriesOf(plan),
      },
      prompt,
      signal,
    );
    usage = addUsage(usage, answer.usage);
    if ('error' in answer) return { error: answer.error, usage, booked };
    for (const { truncated: characters } of previous ? [previous, piece] : [piece]) {
      const messages = characters > 0 ? 1 : 0;
      count = bothPieces(count, { pieces: 0, truncated: { messages, characters } });
    }
    count = { ...count, pieces: count.pieces + 1 };
    summary = answer.text;
    if (!isContinued) {
      return { text: summary, usage, booked, pieces: count, details: detailsOf(count, 1) };
    }
    await room.book(answer.usage);
    booked = usage;
  }
}

interface PieceRoom {
  readonly texts: readonly string[];
  /** Bytes of a request for the conversation and the summary so far. */
  readonly maxBytes: number;
  readonly task: string | undefined;
}

function roomFor(
  { messages, task: wholeTask, instructions }: MessagesToSummarize,
  model: PlannedModel,
  maxTokens: number,
): PieceRoom {
  const inputTokens = Math.max(0, model.context_window - maxTokens - PROMPT_TOKENS);
  const bytes = inputTokens * PIECE_BYTES_PER_TOKEN - Buffer.byteLength(instructions ?? '');
  // the task itself stays in the context in full
  const task =
    wholeTask === undefined
      ? undefined
      : truncateText(wholeTask, Math.min(MAX_TASK_BYTES, Math.max(0, bytes) / 4)).text;
  const texts = messages.map(messageText);
  return { texts, maxBytes: bytes - Buffer.byteLength(task ?? ''), task };
}

/** Refuses what can't be summarized before anything is paid. Each piece leaves half of its room to the summary so far. */
function refusalOf(
  texts: readonly string[],
  {
    maxBytes,
    previousSummary,
    model: { provider, id, context_window: window },
  }: Pick<PieceRoom, 'maxBytes'> & {
    readonly previousSummary: string | undefined;
    readonly model: PlannedModel;
  },
): RyeError | undefined {
  const half = Math.floor(maxBytes / 2);
  const hint =
    'Give the summary yourself: rye threads branch ID --at ENTRY --summary TEXT, or a before_compact hook. Or set a model with a larger window.';
  const error = (what: string): RyeError =>
    new RyeError('context_exceeded', `${provider}/${id} ${what}`, { hint });
  if (half < MIN_PIECE_BYTES) {
    return error(`has no room for a summary in its window of ${window} tokens`);
  }
  let pieces = 0;
  for (let next = 0; next < texts.length; pieces += 1) {
    const isFirst = pieces === 0 && previousSummary === undefined;
    next = conversationPiece(texts, next, isFirst ? maxBytes : half).next;
    if (pieces === MAX_PIECES) {
      return error(
        `can't summarize this conversation: with its window of ${window} tokens it would take more than ${MAX_PIECES} requests`,
      );
    }
  }
  return undefined;
}

function priceOf({ pricing }: PlannedModel, usage: Usage): MicroUsd {
  return pricing ? priceMicroUsd(usage, pricing) : 0;
}
