import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import type { ImportedSession, ImportOptions, PiProblem } from '../../kernel/app/api/trees.ts';
import { isoTime } from '../../kernel/core/clock.ts';
import { messageOf, RyeError } from '../../kernel/core/errors.ts';
import type { EventDraft } from '../../kernel/core/events.ts';
import { compact, isJsonObject, type JsonObject, toText } from '../../kernel/core/json.ts';
import { textOf, toolCallsOf } from '../../kernel/core/message.ts';
import { originalCostOf } from '../../kernel/core/original.ts';
import { addUsage, NO_USAGE, toMicroUsd, toUsd } from '../../kernel/core/usage.ts';
import { MAX_LINE_BYTES } from '../../kernel/log/codec.ts';
import { eachLine, scan } from '../../kernel/log/scanner.ts';
import { importThread } from '../../kernel/threads/copied-thread.ts';
import type { ThreadEnv } from '../../kernel/threads/ports.ts';
import type { ImportedFrom } from '../../kernel/threads/thread-document.ts';
import { importedDetails } from './details.ts';
import { contentOf, customMessageDraft, messageDraft } from './messages.ts';
import {
  createPiReader,
  type PiEntry,
  type PiRecord,
  type PiSession,
  piMessageOf,
} from './session.ts';

/** A pi session as drafts for a thread's log. */
export interface PiImport {
  readonly drafts: readonly EventDraft[];
  readonly problems: readonly PiProblem[];
  /** The model that spoke last, as pi names it. */
  readonly model: { readonly provider: string; readonly model: string } | undefined;
  /** Messages on all branches. */
  readonly messages: number;
  /** Facts that the session states about itself. */
  readonly original: Pick<ImportedFrom, 'title' | 'started_at' | 'ended_at' | 'cost'>;
}

/**
 * Entries for a pi session, ids kept. Below a root that represents the header, each pi entry becomes one entry; `leaf` moves
 * in between give each its parent. Every one carries the line that it came from in `pi_line`, so that an export can
 * give it back byte for byte. What is not understood is kept, and never sent to a model.
 */
export function importPi(session: PiSession, newId: () => string): PiImport {
  const rootId = newId();
  const problems = [...session.problems];
  const drafts: EventDraft[] = [];
  const toolNames = new Set<string>();
  let leafId = rootId;
  let turn = 0;
  const moveTo = (target: string): void => {
    if (target === leafId) return;
    drafts.push({ event_type: 'leaf', payload: { target_id: target } });
    leafId = target;
  };
  for (const entry of session.entries) {
    moveTo(entry.parentId ?? rootId);
    const known = understood(entry);
    if (!known) problems.push(notUnderstood(entry));
    const draft = { ...(known ?? carried(entry)), id: entry.id };
    const message = draft.event_type === 'message' ? draft.payload.message : undefined;
    if (message?.role === 'assistant') {
      turn += 1;
      for (const { name } of toolCallsOf(message)) toolNames.add(name);
    }
    const numbered = message ? { ...draft, payload: { message, turn } } : draft;
    drafts.push(withLine(numbered as EventDraft, entry.record));
    leafId = entry.id;
  }
  moveTo(session.leafId ?? rootId);
  const root = { ...rootDraft(toolNames), id: rootId };
  return {
    drafts: [withLine(root, session.header), ...drafts],
    problems,
    original: originalOf(session, drafts),
    model: lastModel(drafts),
    messages: drafts.filter(({ event_type }) => event_type === 'message').length,
  };
}

function originalOf(
  { header, entries }: PiSession,
  drafts: readonly EventDraft[],
): PiImport['original'] {
  let cost = { ...NO_USAGE, turns: 0 };
  let spend = 0;
  for (const draft of drafts) {
    if (draft.event_type !== 'message' || draft.payload.message.role !== 'assistant') continue;
    cost = { ...addUsage(cost, draft.payload.message.usage), turns: cost.turns + 1 };
    spend += originalCostOf(draft) ?? 0;
  }
  const times = [header, ...entries.map(({ record }) => record)].flatMap(
    (record) => originalTime(record) ?? [],
  );
  const title = drafts.findLast(({ event_type }) => event_type === 'title');
  return compact({
    title:
      title?.event_type === 'title' && title.payload.title !== '' ? title.payload.title : undefined,
    started_at: times[0],
    ended_at: times.reduce<string | undefined>(
      (last, time) => (last === undefined || time > last ? time : last),
      undefined,
    ),
    cost: { ...cost, spend: toUsd(toMicroUsd(spend)) },
  });
}

/** The text of the last answer. */
function lastAnswer(drafts: readonly EventDraft[]): string {
  for (const draft of drafts.toReversed()) {
    if (draft.event_type !== 'message') continue;
    const { message } = draft.payload;
    if (message.role === 'assistant') return textOf(message.content);
  }
  return '';
}

// what the envelope of an event takes besides the payload
const ENVELOPE_BYTES = 4096;

/**
 * Keeps the original line, time and cost beside the converted entry. Throws `item_too_large` if the entry exceeds one
 * line of a log.
 */
function withLine(draft: EventDraft, record: PiRecord): EventDraft {
  const { text, line } = record;
  const original = compact({
    original_time: originalTime(record),
    original_usd: originalUsd(record),
  });
  const made = {
    ...draft,
    payload: { ...draft.payload, ...original, pi_line: text },
  } as EventDraft;
  // only a long line can become too long
  if (text.length * 8 > MAX_LINE_BYTES) {
    const bytes = Buffer.byteLength(JSON.stringify(made.payload)) + ENVELOPE_BYTES;
    if (bytes > MAX_LINE_BYTES) {
      throw new RyeError(
        'item_too_large',
        `line ${line} of the session is too long: with its original text it makes an entry of ${bytes} bytes, and a line of the log has at most ${MAX_LINE_BYTES}`,
        { hint: 'It holds a very big image or tool result. The file is unchanged.' },
      );
    }
  }
  return made;
}

/** The time of an entry, else that of its message, which is in milliseconds. */
function originalTime(record: PiRecord): string | undefined {
  const { timestamp } = record.value;
  const entryMs = typeof timestamp === 'string' ? Date.parse(timestamp) : Number.NaN;
  const ms = Number.isNaN(entryMs) ? piMessageOf(record)?.['timestamp'] : entryMs;
  return typeof ms === 'number' && Math.abs(ms) <= MAX_DATE_MS ? isoTime(ms) : undefined;
}

// the latest moment that a Date can hold
const MAX_DATE_MS = 8.64e15;

function originalUsd(record: PiRecord): number | undefined {
  const { usage } = piMessageOf(record) ?? {};
  const cost = isJsonObject(usage) ? usage['cost'] : undefined;
  const total = isJsonObject(cost) ? cost['total'] : undefined;
  return typeof total === 'number' && total >= 0 ? total : undefined;
}

const SYSTEM =
  'The conversation so far was imported from a session of pi. The tools that it used are not available here.';
const TOOL_NAME = /^[A-Za-z0-9_-]{1,64}$/;

/** Providers refuse calls of tools that the request does not define, so the session's tools are named. */
function rootDraft(toolNames: ReadonlySet<string>): EventDraft {
  const tools = [...toolNames]
    .filter((name) => TOOL_NAME.test(name))
    .map((name) => ({
      name,
      description: 'A tool of the imported session. It is not available any more: do not call it.',
      input_schema: { type: 'object' },
    }));
  return { event_type: 'system_prompt', payload: { text: SYSTEM, tools } };
}

const TYPE_NAME = /^[A-Za-z0-9_.-]{1,64}$/;

/** An entry without a meaning for rye: it keeps its place in the chain. */
function carried({ record }: PiEntry): EventDraft {
  const type = toText(record.value['type'] ?? '');
  const custom_type = `pi/${TYPE_NAME.test(type) ? type : 'unknown'}`;
  return { event_type: 'custom', payload: { custom_type, data: {} } };
}

function notUnderstood({ record, id }: PiEntry): PiProblem {
  return {
    kind: 'not_understood',
    line: record.line,
    message: `entry ${id} is of a kind that rye has no equal of; it is carried along`,
  };
}

type Convert = (value: JsonObject, entry: PiEntry) => EventDraft | undefined;

const CONVERSIONS: ReadonlyMap<unknown, Convert> = new Map<string, Convert>([
  [
    'message',
    (_value, { record }) => piMessageOf(record) && messageDraft(piMessageOf(record) ?? {}),
  ],
  ['custom_message', customMessageDraft],
  ['custom', customDraft],
  ['thinking_level_change', thinkingDraft],
  ['model_change', modelDraft],
  ['compaction', compactionDraft],
  ['branch_summary', branchSummaryDraft],
  ['label', labelDraft],
  ['session_info', titleDraft],
  ['context_edit', contextEditDraft],
]);

function understood(entry: PiEntry): EventDraft | undefined {
  const { value } = entry.record;
  return CONVERSIONS.get(value['type'])?.(value, entry);
}

function customDraft({ customType, data }: JsonObject): EventDraft | undefined {
  if (typeof customType !== 'string') return undefined;
  const object = data === undefined ? {} : isJsonObject(data) ? data : { value: data };
  return { event_type: 'custom', payload: { custom_type: customType, data: object } };
}

function thinkingDraft({ thinkingLevel: level }: JsonObject): EventDraft | undefined {
  return typeof level === 'string'
    ? { event_type: 'thinking_change', payload: { level } }
    : undefined;
}

/** omp writes provider and model as one text. */
function modelDraft({ provider, modelId, model }: JsonObject): EventDraft | undefined {
  if (typeof provider === 'string' && typeof modelId === 'string') {
    return { event_type: 'model_change', payload: { provider, model: modelId } };
  }
  if (typeof model !== 'string' || !model.includes('/')) return undefined;
  const slash = model.indexOf('/');
  return {
    event_type: 'model_change',
    payload: { provider: model.slice(0, slash), model: model.slice(slash + 1) },
  };
}

function compactionDraft(value: JsonObject, { firstKeptId }: PiEntry): EventDraft | undefined {
  const { summary, tokensBefore } = value;
  if (typeof summary !== 'string') return undefined;
  return {
    event_type: 'compaction',
    payload: {
      summary,
      first_kept_entry_id: firstKeptId,
      tokens_before: typeof tokensBefore === 'number' ? tokensBefore : 0,
      ...importedDetails(value),
    },
  };
}

/** Up to 2026 pi wrote where the branch begins, not which leaf was left: `from_id` may be either. */
function branchSummaryDraft(value: JsonObject): EventDraft | undefined {
  const { summary, fromId } = value;
  if (typeof summary !== 'string') return undefined;
  return {
    event_type: 'branch_summary',
    payload: {
      from_id: typeof fromId === 'string' ? fromId : '',
      summary,
      ...importedDetails(value),
    },
  };
}

function labelDraft({ targetId, label }: JsonObject): EventDraft | undefined {
  if (typeof targetId !== 'string') return undefined;
  const text = typeof label === 'string' && label !== '' ? label : null;
  return { event_type: 'label', payload: { target_id: targetId, label: text } };
}

function titleDraft({ name }: JsonObject): EventDraft {
  return { event_type: 'title', payload: { title: typeof name === 'string' ? name : '' } };
}

function contextEditDraft({ targetId, replacement }: JsonObject): EventDraft | undefined {
  if (typeof targetId !== 'string') return undefined;
  if (replacement === null) {
    return { event_type: 'context_edit', payload: { target_id: targetId, action: 'omit' } };
  }
  const content = isJsonObject(replacement) ? contentOf(replacement['content']) : undefined;
  if (!content) return undefined;
  return {
    event_type: 'context_edit',
    payload: { target_id: targetId, action: 'replace', content: textOf(content) },
  };
}

function lastModel(drafts: readonly EventDraft[]): PiImport['model'] {
  for (const draft of drafts.toReversed()) {
    if (draft.event_type === 'model_change') return draft.payload;
    if (draft.event_type !== 'message') continue;
    const { message } = draft.payload;
    if (message.role === 'assistant') return { provider: message.provider, model: message.model };
  }
  return undefined;
}

const MAX_NOTED = 100;

/** Reads a pi session and makes a thread of it. Nothing is written before the whole file was understood. */
export async function importSession(
  env: ThreadEnv,
  { path, threadId, model }: ImportOptions,
): Promise<ImportedSession> {
  const newId = () => env.ids.entryId();
  const reader = createPiReader({ path, newId });
  const { bytes, sha256 } = await readLines(path, (...line) => reader.push(...line));
  const session = reader.end();
  const { drafts, problems, model: speaker, messages, original } = importPi(session, newId);
  const { version, sessionId: session_id } = session;
  const thread = await importThread(env, {
    origin: { format: 'pi', version, session_id, file: basename(path), bytes, sha256, ...original },
    drafts,
    speaker,
    result: lastAnswer(drafts),
    problems: problems.slice(0, MAX_NOTED).map((problem) => ({ ...problem })),
    ...compact({ threadId, model }),
  });
  const entries = session.entries.length;
  return { thread, format: 'pi', version, session_id, entries, messages, problems };
}

/** A file that was read whole: its length and hash. */
export interface ReadFile {
  readonly bytes: number;
  /** SHA-256, hexadecimal. */
  readonly sha256: string;
}

/**
 * Hands the lines of a text file to `take` in order, without their line feeds; `isTorn` for a last one that has none,
 * `isLossy` for one that is not UTF-8. The file is streamed and never written. Errors: `file_not_found`; `item_too_large` for a line over 16 MiB.
 */
async function readLines(
  path: string,
  take: (line: string, isTorn: boolean, isLossy: boolean) => void,
): Promise<ReadFile> {
  await assertFile(path);
  const hash = createHash('sha256');
  let bytes = 0;
  let line = 1;
  const pass = (text: Buffer, isTorn: boolean): boolean => {
    take(text.toString('utf8'), isTorn, !isUtf8(text));
    line += 1;
    return true;
  };
  await scan(createReadStream(path, { highWaterMark: 1 << 18 }), {
    chunk(chunk) {
      hash.update(chunk);
      bytes += chunk.length;
    },
    lines: (run) => eachLine(run, (start, end) => pass(run.subarray(start, end - 1), false)),
    oversized() {
      throw tooLong(path, line);
    },
    torn: (rest) => rest && pass(rest, true),
  });
  return { bytes, sha256: hash.digest('hex') };
}

async function assertFile(path: string): Promise<void> {
  let found: Awaited<ReturnType<typeof stat>>;
  try {
    found = await stat(path);
  } catch (error) {
    throw new RyeError('file_not_found', `${path} cannot be read: ${messageOf(error)}`, {
      hint: 'Give the path of a session file.',
      cause: error,
    });
  }
  // a pipe or a device may never end
  if (!found.isFile()) throw new RyeError('usage', `${path} is not a regular file`);
}

function tooLong(path: string, line: number): RyeError {
  return new RyeError('item_too_large', `the line is over ${MAX_LINE_BYTES} bytes`, {
    location: { path, line },
    hint: 'The file is unchanged.',
  });
}
