import { isoTime } from '../../kernel/core/clock.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { EventDraft, LogEvent, RequestEstimate } from '../../kernel/core/events.ts';
import type { JsonObject } from '../../kernel/core/json.ts';
import type { ThreadPlan } from '../../kernel/core/plan.ts';
import { isActive, type ThreadRecord } from '../../kernel/core/thread.ts';
import { type Cost, NO_COST, toMicroUsd } from '../../kernel/core/usage.ts';
import {
  branchDrafts,
  branchWithSummaryDrafts,
  labelDraft,
} from '../../kernel/log/continuation.ts';
import {
  buildTree,
  entryByPrefix,
  isKnown,
  pathTo,
  type SessionTree,
} from '../../kernel/log/tree.ts';
import { THINKING_LEVELS } from '../../kernel/providers/provider.ts';
import type { LogWriter } from '../../kernel/storage/store.ts';
import {
  entryAt,
  openingDrafts,
  readVerified,
  recordOf,
  userDraft,
} from '../../kernel/threads/open-session.ts';
import type { Process, Sources, Stored } from '../../kernel/threads/ports.ts';
import { configuredModel } from '../../kernel/threads/prepare/plan-at-head.ts';
import { bookedCost } from '../../kernel/threads/recovery/crashed-log.ts';
import type { ThreadDocument } from '../../kernel/threads/thread-document.ts';

/** A log that is open for an edit, with its content and its thread. */
export interface OpenEdit {
  readonly tree: SessionTree;
  readonly document: ThreadDocument;
  readonly record: ThreadRecord;
  readonly writer: LogWriter;
  /** To be awaited before anything is appended while the edit is still being made. */
  readonly begin: () => Promise<void>;
  /** Sets aside what a model call may use at most until it is booked or the edit ends; false if the budget does not have it. */
  readonly hold: (most: RequestEstimate) => Promise<boolean>;
  /** Writes and books what is paid for while the edit is still being made; it stays if the edit fails. */
  readonly book: (paid: LogEdit) => Promise<void>;
}

/** The entries that an edit appends; `cost` is the thread's whole cost after it. */
export interface LogEdit {
  readonly drafts: readonly EventDraft[];
  readonly cost?: Cost;
}

/** `context` for an edit that changes what a model is sent next; `names` for one that doesn't. */
type EditScope = 'context' | 'names';

/** Refuses to change the context of a thread that another one continues: nothing would ever use it. */
async function assertNotContinued(env: Pick<Stored, 'store'>, threadId: string): Promise<void> {
  const { status } = await recordOf(env, threadId);
  if (status !== 'continued') return;
  const last = (await env.store.registry.chain(threadId)).at(-1)?.thread_id ?? threadId;
  throw new RyeError(
    'illegal_transition',
    `thread ${threadId} was continued by ${last}: a change here would have no effect`,
    {
      hint: `Change ${last}, or fork this thread: rye threads branch ${threadId} --at ENTRY --new`,
      details: { thread_id: threadId, continued_by: last },
    },
  );
}

async function assertNotArchived(
  { store }: Pick<Stored, 'store'>,
  threadId: string,
): Promise<void> {
  if (!(await store.logs.isArchived(threadId))) return;
  throw new RyeError(
    'illegal_transition',
    `the log of thread ${threadId} is compressed and cannot grow`,
    { hint: `Continue it in a new thread: rye threads resume ${threadId}` },
  );
}

/**
 * Appends to the log of a thread that no process runs, under its lease, and signs the new end. thread.json names no
 * end while the log grows: a crash in between leaves a log that verifies up to its last checkpoint, as a crash of a
 * running thread does. Returns the events written; without drafts nothing changes.
 */
export async function editLog(
  env: Stored & Process,
  threadId: string,
  make: (open: OpenEdit) => LogEdit | Promise<LogEdit>,
  scope: EditScope = 'context',
): Promise<readonly LogEvent[]> {
  if (scope === 'context') await assertNotContinued(env, threadId);
  await assertNotArchived(env, threadId);
  const { document, record, writer } = await openVerified(env, threadId);
  let hasBegun = false;
  let current = document;
  const begin = async (): Promise<void> => {
    if (hasBegun) return;
    hasBegun = true;
    const { transcript: _end, ...rest } = current;
    await env.files.writeDocument(rest);
  };
  const close = async (): Promise<void> => {
    if (!hasBegun) return;
    await writer.sync();
    current = { ...current, updated_at: isoTime(env.clock.now()), transcript: writer.state() };
    await env.files.writeDocument(current);
    hasBegun = false;
  };
  const write = async ({ drafts, cost }: LogEdit): Promise<readonly LogEvent[]> => {
    if (drafts.length > 0) await begin();
    const events = writer.append(drafts);
    if (cost) current = { ...current, cost };
    await close();
    const total = costOf(current);
    if (cost || total.spend > record.cost.spend) await bookCost(env, record, total);
    return events;
  };
  const book = async (part: LogEdit): Promise<void> => {
    await write(part);
  };
  const { ledger } = env.store;
  let holds = false;
  const hold = async ({ reserved_usd: usd = 0 }: RequestEstimate): Promise<boolean> => {
    holds = true;
    return await ledger.holdForCall(threadId, toMicroUsd(usd), record.epoch);
  };
  try {
    const { events: before } = await env.store.logs.readEntries(threadId);
    return await write(
      await make({ tree: buildTree(before), document, record, writer, begin, hold, book }),
    );
  } catch (error) {
    await close();
    throw error;
  } finally {
    if (holds) await ledger.holdForCall(threadId, 0, record.epoch);
    await writer.close();
  }
}

/** Takes the lease before verifying, so that the verified bytes are the ones we append to. */
async function openVerified(
  env: Stored & Process,
  threadId: string,
): Promise<Pick<OpenEdit, 'document' | 'record' | 'writer'>> {
  const { epoch } = assertIdle(await recordOf(env, threadId));
  const { owner } = env;
  const hold = await env.store.logs.hold(threadId, owner, epoch);
  try {
    const { document: stored, record } = await readVerified(env, threadId);
    const document = await withBookedCost(env, stored);
    assertIdle(record);
    const { verifier } = env;
    const signer = env.signer();
    const { epoch: current } = record;
    const writer = await hold.open({ signer, verifier, durability: 'turn', owner, epoch: current });
    return { document, record, writer };
  } catch (error) {
    await hold.release();
    throw error;
  }
}

/** Returns the document with the cost that the log has: an edit that was interrupted left it without an end. */
async function withBookedCost({ store }: Pick<Stored, 'store'>, document: ThreadDocument) {
  if (document.transcript) return document;
  const booked = bookedCost((await store.logs.read(document.thread_id)).events);
  return booked.spend > costOf(document).spend ? { ...document, cost: booked } : document;
}

/** Books the cost of a model call on a finished thread, for the thread and its ancestors. */
async function bookCost(
  env: Pick<Stored, 'store'> & Pick<Process, 'clock'>,
  record: ThreadRecord,
  cost: Cost,
): Promise<void> {
  const { thread_id: id, epoch } = record;
  await env.store.ledger.report(id, toMicroUsd(cost.spend), epoch);
  await env.store.registry.heartbeat(id, epoch, isoTime(env.clock.now()), { cost });
}

/** Returns the cost of a thread so far. */
export function costOf({ cost }: ThreadDocument): Cost {
  return cost ?? NO_COST;
}

function assertIdle(record: ThreadRecord): ThreadRecord {
  const { thread_id: id, status } = record;
  if (!isActive(status)) return record;
  throw new RyeError(
    'thread_locked',
    `thread ${id} is ${status}; only its own process may write its log`,
    {
      hint: `Wait until it ends, or run: rye threads cancel ${id}. If it has crashed, run: rye threads recover ${id}`,
      details: { thread_id: id, status },
    },
  );
}

/** Returns the message that a branch begins with: a person's; at the root the opening one if there is none. */
export function firstDrafts(
  tree: SessionTree,
  plan: ThreadPlan,
  { at, message }: Pick<BranchRequest, 'at' | 'message'>,
): readonly EventDraft[] {
  if (at === 'root') return openingDrafts(tree, plan, message);
  return message === undefined ? [] : [userDraft(message)];
}

export interface BranchRequest {
  /** Entry id, a unique prefix of one, or `root`: then the opening message is asked again. */
  readonly at: string;
  /** Shown to the model in place of the abandoned branch. */
  readonly summary?: string | undefined;
  readonly details?: JsonObject | undefined;
  /** A message that the new branch begins with; at the root it takes the place of the directive's text. */
  readonly message?: string | undefined;
}

/** Moves the head. Returns the events written; none if the head is there already and nothing is added. */
export async function branchThread(
  env: Stored & Process,
  threadId: string,
  { at, summary, details, message }: BranchRequest,
): Promise<readonly LogEvent[]> {
  return await editLog(env, threadId, async ({ tree, document }) => {
    const target = entryAt(tree, at);
    const moved: readonly EventDraft[] =
      summary === undefined
        ? target === tree.leafId
          ? []
          : branchDrafts(tree, target)
        : branchWithSummaryDrafts(tree, target, { summary, ...(details ? { details } : {}) });
    const plan = await env.files.readPlan(document);
    return { drafts: [...moved, ...firstDrafts(tree, plan, { at, message })] };
  });
}

/** Names an entry, or clears its name with null or an empty text. */
export async function labelEntry(
  env: Stored & Process,
  threadId: string,
  { entry, label }: { readonly entry: string; readonly label: string | null },
): Promise<readonly LogEvent[]> {
  const text = label === null || label.trim() === '' ? null : oneLine(label);
  const draft = (tree: SessionTree) => [labelDraft(tree, entryByPrefix(tree, entry).id, text)];
  return await appendToTree(env, threadId, draft, 'names');
}

function oneLine(text: string): string {
  return text.trim().replaceAll(/\s*[\r\n]+\s*/g, ' ');
}

/** Sets the thread's title, which lists and exports show. */
export async function titleThread(
  env: Stored & Process,
  threadId: string,
  title: string,
): Promise<readonly LogEvent[]> {
  const draft = { event_type: 'title', payload: { title: oneLine(title) } } as const;
  return await appendToTree(env, threadId, () => [draft], 'names');
}

/** Sets the model that continues the thread: a tier, an alias or an id. Refused if the thread could not run on it. */
export async function changeModel(
  env: Stored & Process & Pick<Sources, 'models'>,
  threadId: string,
  wanted: { readonly model: string; readonly provider?: string | undefined },
): Promise<readonly LogEvent[]> {
  return await editLog(env, threadId, async ({ document }) => {
    const { model } = await configuredModel(env, await env.files.readPlan(document), wanted);
    const payload = { provider: model.provider, model: model.id };
    return { drafts: [{ event_type: 'model_change', payload }] };
  });
}

/** Sets the thinking level with which the thread continues. */
export async function changeThinking(
  env: Stored & Process,
  threadId: string,
  level: string,
): Promise<readonly LogEvent[]> {
  if (!THINKING_LEVELS.some((known) => known === level)) {
    throw new RyeError('usage', `unknown thinking level ${JSON.stringify(level)}`, {
      hint: `Valid levels: ${THINKING_LEVELS.join(', ')}.`,
    });
  }
  return await appendToTree(env, threadId, () => [
    { event_type: 'thinking_change', payload: { level } },
  ]);
}

export interface ContextEdit {
  readonly entry: string;
  /** Absent: the entry is omitted from the context. */
  readonly content?: string | undefined;
  readonly reason?: string | undefined;
}

/** Replaces or omits what one entry of the active branch adds to the context; the entry itself stays. */
export async function editContext(
  env: Stored & Process,
  threadId: string,
  { entry, content, reason }: ContextEdit,
): Promise<readonly LogEvent[]> {
  return await appendToTree(env, threadId, (tree) => {
    const target = entryByPrefix(tree, entry);
    const isMessage = isKnown(target, 'message') || isKnown(target, 'custom_message');
    if (!isMessage || !pathTo(tree, tree.leafId).includes(target)) {
      throw new RyeError(
        'usage',
        `entry ${target.id} (${target.event_type}) is not a message of the active branch`,
        { hint: 'Branch to an entry below it first, or choose another entry.' },
      );
    }
    const why = reason === undefined ? {} : { reason };
    return [
      {
        event_type: 'context_edit',
        payload:
          content === undefined
            ? { target_id: target.id, action: 'omit', ...why }
            : { target_id: target.id, action: 'replace', content, ...why },
      },
    ];
  });
}

async function appendToTree(
  env: Stored & Process,
  threadId: string,
  make: (tree: SessionTree) => readonly EventDraft[],
  scope: EditScope = 'context',
): Promise<readonly LogEvent[]> {
  return await editLog(env, threadId, ({ tree }) => ({ drafts: make(tree) }), scope);
}
