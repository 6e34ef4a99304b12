import type {
  AppendedEntry,
  AppendOptions,
  CustomMessage,
  ProgramEntry,
} from '../../kernel/app/api/trees.ts';
import { isoTime } from '../../kernel/core/clock.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { EventDraft, LogEvent } from '../../kernel/core/events.ts';
import type { ContentBlock, ImageBlock } from '../../kernel/core/message.ts';
import { isActive, type ThreadResult } from '../../kernel/core/thread.ts';
import { NO_USAGE } from '../../kernel/core/usage.ts';
import { MAX_LINE_BYTES } from '../../kernel/log/codec.ts';
import { cutPointsIn } from '../../kernel/log/compaction.ts';
import { buildTree, entryByPrefix } from '../../kernel/log/tree.ts';
import { imageTypeOf } from '../../kernel/providers/acceptable.ts';
import type { QueuedEntry } from '../../kernel/storage/store.ts';
import { recordOf } from '../../kernel/threads/open-session.ts';
import type { Process, Sources, Stored } from '../../kernel/threads/ports.ts';
import { compactionSizes } from '../../kernel/threads/run/compaction.ts';
import {
  isSkillChange,
  type Place,
  programCompaction,
  queuedDraft,
} from '../../kernel/threads/run/program-entries.ts';
import { editLog, type OpenEdit } from './edit.ts';
import { planInForce } from './offline-summary.ts';

export type AppendEnv = Stored & Process & Pick<Sources, 'models' | 'rules'>;

/** Resumes a thread and resolves to the result of the run. */
type Resume = (threadId: string) => Promise<ThreadResult>;

/** The written entry, or none if the process that runs the thread will write it. */
interface Written {
  readonly entryId: string;
  readonly events: readonly LogEvent[];
}

/** Appends an entry of a program, and lets the model answer if that is asked for. */
export async function appendEntry(
  env: AppendEnv,
  threadId: string,
  entry: ProgramEntry,
  { triggerTurn = false, resume }: AppendOptions & { readonly resume: Resume },
): Promise<AppendedEntry> {
  const { entryId, events } = await append(env, threadId, entry);
  const isWritten = events.length > 0;
  const appended = { thread_id: threadId, entry_id: entryId } as const;
  if (!isWritten) return { ...appended, state: 'queued' };
  if (!triggerTurn) return { ...appended, state: 'written' };
  return { ...appended, state: 'written', result: await resume(threadId) };
}

/**
 * Appends an entry after those that wait already. The log of a thread that runs is written by its process alone: for it
 * the entry is kept in the store, durably, until the log has it.
 */
export async function append(
  env: AppendEnv,
  threadId: string,
  entry: ProgramEntry,
): Promise<Written> {
  const draft = await draftOf(env, threadId, entry);
  const entryId = env.ids.entryId();
  const { status } = await recordOf(env, threadId);
  if (!isActive(status) || env.store.appends === undefined) {
    try {
      return { entryId, events: await write(env, threadId, { ...draft, id: entryId }) };
    } catch (error) {
      // its process began in between
      const isLocked = error instanceof RyeError && error.code === 'thread_locked';
      if (!isLocked || env.store.appends === undefined) throw error;
      if (!isActive((await recordOf(env, threadId)).status)) throw error;
    }
  }
  return { entryId, events: await queue(env, threadId, { ...draft, id: entryId }) };
}

async function queue(
  env: AppendEnv,
  threadId: string,
  { id = '', event_type, payload }: EventDraft,
): Promise<readonly LogEvent[]> {
  if (isAnswer({ event_type, payload } as EventDraft)) throw answerOfRunning(threadId);
  const draft = JSON.stringify({ event_type, payload });
  assertSize(draft);
  await env.store.appends?.add({ entryId: id, threadId, draft }, isoTime(env.clock.now()));
  // its process may have taken the last entries before this one came
  if (isActive((await recordOf(env, threadId)).status)) return [];
  const written = await write(env, threadId);
  return written.filter((event) => event.id === id);
}

/** Writes the entries that wait, then one more. Returns the events of that one, or else of all. */
async function write(
  env: AppendEnv,
  threadId: string,
  draft?: EventDraft,
): Promise<readonly LogEvent[]> {
  let waiting: readonly QueuedEntry[] = [];
  const isState = draft?.event_type === 'custom';
  const written = await editLog(
    env,
    threadId,
    async (open) => {
      const queued = (await env.store.appends?.list([threadId])) ?? [];
      // the next run takes those
      waiting = queued.filter((one) => !isSkillChange(one));
      const plan = waiting.length > 0 ? await planInForce(env, open) : undefined;
      const earlier = waiting
        .filter(({ entryId }) => !open.tree.byId.has(entryId))
        .flatMap((one) => (plan ? [queuedDraft(one, () => ({ tree: open.tree, plan }))] : []));
      if (draft === undefined) return { drafts: earlier };
      return { drafts: [...earlier, await whole(env, open, draft)] };
    },
    isState ? 'names' : 'context',
  );
  await env.store.appends?.remove(waiting.map(({ entryId }) => entryId));
  return draft === undefined ? written : written.filter(({ id }) => id === draft.id);
}

/** Returns the whole draft: a compaction gets its facts from the log. */
async function whole(
  env: AppendEnv,
  open: Pick<OpenEdit, 'document' | 'tree'>,
  draft: EventDraft,
): Promise<EventDraft> {
  if (draft.event_type !== 'compaction') return draft;
  const place = { tree: open.tree, plan: await planInForce(env, open) };
  const payload = programCompaction(draft.payload, place);
  if (payload) return { ...draft, payload };
  throw noCut(draft.payload.first_kept_entry_id, place);
}

/** Returns the draft of an entry. Throws `invalid_input` for one that no thread could take. */
async function draftOf(env: AppendEnv, threadId: string, entry: ProgramEntry): Promise<EventDraft> {
  switch (entry.type) {
    case 'message':
      return messageDraft(entry);
    case 'custom_message':
      return customMessageDraft(entry);
    case 'custom':
      return { event_type: 'custom', payload: { custom_type: entry.customType, data: entry.data } };
    case 'compaction':
      return await compactionDraft(env, threadId, entry);
  }
}

function messageDraft({
  role,
  content,
  images = [],
}: Extract<ProgramEntry, { type: 'message' }>): EventDraft {
  const text: readonly ContentBlock[] = content === '' ? [] : [{ type: 'text', text: content }];
  if (text.length + images.length === 0)
    throw new RyeError('invalid_input', 'the message is empty');
  if (role === 'user') {
    assertImages(images);
    const message = { role, content: [...text, ...images] } as const;
    return { event_type: 'message', payload: { message, appended: true } };
  }
  if (images.length > 0) throw new RyeError('invalid_input', 'an answer has no images');
  return {
    event_type: 'message',
    payload: {
      message: {
        role,
        content: [{ type: 'text', text: content }],
        provider: 'program',
        model: 'program',
        stop_reason: 'end',
        usage: NO_USAGE,
      },
      appended: true,
    },
  };
}

function customMessageDraft({
  customType,
  content,
  images = [],
  display,
  details,
}: CustomMessage): EventDraft {
  assertImages(images);
  return {
    event_type: 'custom_message',
    payload: {
      custom_type: customType,
      content,
      ...(images.length === 0 ? {} : { images }),
      display,
      ...(details === undefined ? {} : { details }),
      appended: true,
    },
  };
}

/** Refuses a place where the context can't be cut: between a call and its result, or at what no answer has covered. */
async function compactionDraft(
  env: AppendEnv,
  threadId: string,
  { summary, firstKept, details }: Extract<ProgramEntry, { type: 'compaction' }>,
): Promise<EventDraft> {
  const tree = buildTree((await env.store.logs.readEntries(threadId)).events);
  const document = await env.files.readDocument(threadId);
  const { id: first } = entryByPrefix(tree, firstKept);
  const payload = {
    summary,
    first_kept_entry_id: first,
    tokens_before: 0,
    ...(details === undefined ? {} : { details }),
  };
  if (summary.trim() === '') throw new RyeError('invalid_input', 'the summary is empty');
  return await whole(env, { document, tree }, { event_type: 'compaction', payload });
}

function noCut(first: string | null, { tree, plan }: Place): RyeError {
  const points = cutPointsIn(tree, compactionSizes(plan, plan.model));
  return new RyeError('invalid_input', `the context can't be cut at entry ${first}`, {
    hint: 'Choose one of details.cut_points. Nothing may come between a call and its result.',
    details: { first_kept_entry_id: first, cut_points: [...points] },
  });
}

function assertImages(images: readonly ImageBlock[]): void {
  for (const [index, image] of images.entries()) {
    const isPlain = image.type === 'image' && /^[A-Za-z0-9+/]+={0,2}$/.test(image.data);
    if (isPlain && imageTypeOf(image) === image.media_type) continue;
    throw new RyeError('invalid_input', `images[${index}] is no ${image.media_type} as base64`, {
      hint: 'Give { type: "image", media_type, data } of a PNG, JPEG, GIF or WebP file.',
    });
  }
}

function assertSize(draft: string): void {
  const size = Buffer.byteLength(draft);
  if (size <= MAX_LINE_BYTES / 2) return;
  throw new RyeError(
    'invalid_input',
    `the entry has ${size} bytes, more than ${MAX_LINE_BYTES / 2}`,
  );
}

function isAnswer(draft: EventDraft): boolean {
  return draft.event_type === 'message' && draft.payload.message.role === 'assistant';
}

function answerOfRunning(threadId: string): RyeError {
  return new RyeError('invalid_input', `thread ${threadId} runs: only its model answers in it`, {
    hint: 'Append a message of the role user, or wait until the thread ends.',
  });
}
