import { isoTime } from '../core/clock.ts';
import { messageOf, RyeError } from '../core/errors.ts';
import type { EventDraft, LogHeader } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadPlan } from '../core/plan.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { NO_COST } from '../core/usage.ts';
import { foldContext } from '../log/context.ts';
import { extractDrafts } from '../log/continuation.ts';
import { buildTree } from '../log/tree.ts';
import { resolveLimits } from '../policy/limits.ts';
import type { LogWriter } from '../storage/store.ts';
import { recordEnd } from './end.ts';
import { entryAt, openingDrafts, readVerified, recordOf } from './open-session.ts';
import type {
  Configured,
  Exporting,
  Preparation,
  Process,
  Recovering,
  Sources,
  Stored,
} from './ports.ts';
import { appendAll } from './recovery/continuation.ts';
import { exportThread } from './run/export-thread.ts';
import { endIfFails, type StartedThread, startThread, writerOptions } from './run/start.ts';
import { planHash, planText } from './stored-plan.ts';
import { headerOf, type ImportedFrom, type ThreadDocument } from './thread-document.ts';
import { partOf } from './verified-log.ts';
import { inFreshPlace } from './worktrees.ts';

export interface ExtractRequest {
  /** The last entry of the path that the new thread begins with, by default the head; `root` asks the opening message again. */
  readonly at?: string | undefined;
  readonly threadId?: string | undefined;
}

/**
 * Copies the path to an entry into a new thread and keeps the entry ids. The new thread is a root, has spent nothing
 * and is `suspended`: `rye threads resume` continues it. The source is only read.
 */
export async function extractThread(
  env: Stored & Process & Pick<Preparation, 'guards'>,
  sourceId: string,
  { at, threadId }: ExtractRequest,
): Promise<ThreadRecord> {
  const { document: source, verdict } = await readVerified(env, sourceId);
  const { events } = await env.store.logs.readEntries(sourceId, partOf(sourceId, verdict));
  const tree = buildTree(events);
  const entryId = at === undefined ? tree.leafId : entryAt(tree, at);
  if (entryId === null) {
    throw new RyeError('usage', 'a new thread needs at least one entry', {
      hint: 'Name an entry with --at.',
    });
  }
  const planned = await env.files.readPlan(source);
  const plan = { ...inFreshPlace(planned, env.ids), parent_thread_id: null };
  const isEmpty = foldContext(tree, { leafId: entryId }).messages.length === 0;
  const drafts = [
    ...extractDrafts(tree, events, entryId),
    ...(at === 'root' || isEmpty ? openingDrafts(tree, planned, undefined) : []),
  ];
  const started = await startThread(env, plan, { threadId });
  const from = { thread_id: sourceId, entry_id: entryId };
  return await endIfFails(env, started.threadId, async () =>
    writeExtract(env, started, drafts, from),
  );
}

async function writeExtract(
  env: Stored & Process,
  started: StartedThread,
  drafts: readonly EventDraft[],
  from: NonNullable<LogHeader['branched_from']>,
): Promise<ThreadRecord> {
  const { threadId, document, record } = started;
  const writer = await env.store.logs.create(
    { ...headerOf(document), branched_from: from },
    writerOptions(env, started),
  );
  try {
    const cost = NO_COST;
    const status = 'suspended';
    writer.append([
      ...drafts,
      { event_type: 'thread_finished', payload: { status, result: '', cost } },
    ]);
    await writer.sync();
    const transcript = writer.state();
    await recordEnd(env, {
      threadId,
      epoch: record.epoch,
      end: () => ({ status, cost, result: '' }),
      writeDocument: async (_, now) =>
        await env.files.writeDocument({ ...document, status, updated_at: now, cost, transcript }),
    });
    return await recordOf(env, threadId);
  } finally {
    await writer.close();
  }
}

/** A conversation from another program, as log entries. */
export interface ImportRequest {
  readonly origin: ImportedFrom;
  readonly drafts: readonly EventDraft[];
  /** The provider and model that answered, as the other program names them. */
  readonly speaker: { readonly provider: string; readonly model: string } | undefined;
  /** The last answer. */
  readonly result: string;
  /** The parts that could not be imported as they were; kept in the log. */
  readonly problems: readonly JsonObject[];
  readonly threadId?: string | undefined;
  /** The model that continues it on resume; absent: the session's own model if it is known here. */
  readonly model?: string | undefined;
}

/**
 * Creates a completed thread from a conversation that rye did not run. It is a root, has spent nothing and may do
 * nothing. Its files are signed like any thread's; `imported_from` and `integrity: unverified` mean that the signature
 * vouches for the copy, not for what happened. It can be branched, searched, exported and resumed.
 */
export async function importThread(
  env: Recovering & Sources & Preparation,
  request: ImportRequest,
): Promise<ThreadRecord> {
  const plan = await importPlan(env, request);
  const { speaker } = request;
  // lists and exports name the model that answered; the plan names the model that continues
  const shown = speaker
    ? { ...plan, model: { ...plan.model, provider: speaker.provider, id: speaker.model } }
    : plan;
  const started = await startThread(env, shown, { threadId: request.threadId });
  const { threadId } = started;
  const { record, document } = await endIfFails(env, threadId, async () =>
    writeImport(env, { ...started, plan }, request),
  );
  try {
    await exportThread(env, plan, document);
  } catch (error) {
    env.onNotice(`thread ${threadId}: exporting the knowledge entry failed: ${messageOf(error)}`);
  }
  return record;
}

async function writeImport(
  env: Stored & Process & Exporting,
  started: StartedThread,
  request: ImportRequest,
): Promise<{ readonly record: ThreadRecord; readonly document: ThreadDocument }> {
  const { threadId, record, document: begun, plan } = started;
  const { files, store } = env;
  const { result, origin } = request;
  const writer = await store.logs.create(headerOf(begun), writerOptions(env, started));
  try {
    await files.writePlan(threadId, plan);
    await files.writeCapabilities(threadId, env.renderer.capabilities(plan, []));
    await writeLog(writer, request);
    const cost = NO_COST;
    const status = 'completed';
    const now = isoTime(env.clock.now());
    const document = {
      ...begun,
      status,
      updated_at: now,
      cost,
      result,
      imported_from: origin,
      plan_sha256: planHash(planText(plan)),
      transcript: writer.state(),
    } as const;
    await recordEnd(env, {
      threadId,
      epoch: record.epoch,
      end: () => ({ status, cost, result }),
      writeDocument: async () => await files.writeDocument(document),
    });
    return { record: await recordOf(env, threadId), document };
  } finally {
    await writer.close();
  }
}

async function writeLog(
  writer: LogWriter,
  { drafts, origin, problems, result }: ImportRequest,
): Promise<void> {
  const text = `imported from a session of ${origin.format}`;
  writer.append([{ event_type: 'note', payload: { text, details: { ...origin, problems } } }]);
  appendAll(writer, drafts);
  const payload = { status: 'completed', result, cost: NO_COST } as const;
  writer.append([{ event_type: 'thread_finished', payload }]);
  await writer.sync();
}

/** Returns the plan that a resume follows: no tools, and the limits of a directive that sets none. */
async function importPlan(
  env: Pick<Process, 'onNotice'> & Configured & Pick<Sources, 'models'>,
  request: ImportRequest,
): Promise<ThreadPlan> {
  const config = env.config;
  const none = { limits: {}, origins: {} };
  const { limits } = resolveLimits({
    defaults: config.limitDefaults,
    directive: none,
    overrides: none,
  });
  const { model, fallbacks, unfit } = await resolveModel(env, request);
  const { format, sha256, file, title } = request.origin;
  if (unfit) {
    env.onNotice('no model is usable here, so a resume of the thread will fail; see --model');
  }
  return {
    format: 1,
    directive: {
      type: 'directive',
      id: `imported/${format}`,
      space: 'project',
      path: file,
      sha256,
      integrity: 'unverified',
      name: format,
      version: '1.0.0',
      description: title ?? `A session of ${format}, imported from ${file}`,
      category: 'imported',
    },
    chain: [],
    context_sources: [],
    parent_thread_id: null,
    inputs: {},
    secret_inputs: [],
    outputs: [],
    prompt: '',
    body: '',
    context: [],
    suppress: [],
    process: [],
    limits,
    capabilities: [],
    acknowledged: [],
    risks: [],
    hooks: [],
    tools: [],
    model,
    fallbacks,
    thinking: 'off',
    integrity: 'unverified',
    allow_unpriced: false,
    continuation_directive: null,
    behavior: {},
    origins: {},
    warnings: [],
    settings: config.settings,
  };
}

async function resolveModel(env: Pick<Sources, 'models'>, { model, speaker }: ImportRequest) {
  const hasSteps = false;
  if (model !== undefined) return await env.models.resolve({ wanted: model, hasSteps });
  if (speaker === undefined) return await env.models.resolve({ hasSteps });
  try {
    return await env.models.resolve({
      wanted: speaker.model,
      provider: speaker.provider,
      hasSteps,
    });
  } catch (error) {
    if (!(error instanceof RyeError)) throw error;
    // it is not configured here, but another model may be when the thread is resumed
    return await env.models.resolve({ hasSteps });
  }
}
