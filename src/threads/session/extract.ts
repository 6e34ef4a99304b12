import { isoTime } from '../../core/clock.ts';
import { RyeError, toRyeError } from '../../core/errors.ts';
import type { EventDraft, LogHeader } from '../../core/events.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { NO_COST } from '../../core/usage.ts';
import { extractDrafts } from '../../log/branch.ts';
import { buildTree } from '../../log/tree.ts';
import type { ThreadEnv } from '../ports.ts';
import { endUnstarted, type StartedThread, startThread } from '../run/start.ts';
import { headerOf } from '../thread-document.ts';
import { partOf } from '../verified-log.ts';
import { readVerified } from './edit-log.ts';
import { entryAt } from './edit-tree.ts';

export interface ExtractRequest {
  /** The last entry of the path that the new thread begins with. */
  readonly at: string;
  readonly threadId?: string | undefined;
}

/**
 * Copies the path to an entry into a new thread, entry ids kept. The new thread is a root of its own, has spent
 * nothing and is `suspended`: `rye threads resume` goes on with it. The source is only read.
 */
export async function extractThread(
  env: ThreadEnv,
  sourceId: string,
  { at, threadId }: ExtractRequest,
): Promise<ThreadRecord> {
  const { document: source, verdict } = await readVerified(env, sourceId);
  const { events } = await env.store.logs.readEntries(sourceId, partOf(sourceId, verdict));
  const tree = buildTree(events);
  const entryId = entryAt(tree, at);
  if (entryId === null) {
    throw new RyeError('usage', 'a new thread needs at least one entry', {
      hint: 'Name an entry with --at.',
    });
  }
  const plan = { ...(await env.files.readPlan(source)), parent_thread_id: null };
  const started = await startThread(env, plan, { threadId });
  try {
    return await writeExtract(env, started, {
      drafts: extractDrafts(tree, entryId),
      from: { thread_id: sourceId, entry_id: entryId },
    });
  } catch (error) {
    await endUnstarted(env, started.threadId, {
      status: 'error',
      error: toRyeError(error).toJSON(),
    });
    throw error;
  }
}

interface Extract {
  readonly drafts: readonly EventDraft[];
  readonly from: NonNullable<LogHeader['branched_from']>;
}

async function writeExtract(
  env: ThreadEnv,
  { threadId, record, document, plan }: StartedThread,
  { drafts, from }: Extract,
): Promise<ThreadRecord> {
  const { epoch } = record;
  const { durability } = plan.settings;
  const writer = env.store.logs.create(
    { ...headerOf(document), branched_from: from },
    { signer: env.signer(), durability, owner: env.owner, epoch },
  );
  try {
    await env.files.writePlan(threadId, plan);
    const cost = NO_COST;
    const status = 'suspended';
    writer.append([
      ...drafts,
      { event_type: 'thread_finished', payload: { status, result: '', cost } },
    ]);
    writer.sync();
    const now = isoTime(env.clock.now());
    const transcript = writer.state();
    await env.files.writeDocument({ ...document, status, updated_at: now, cost, transcript });
    const facts = { status, now, cost, result: '', epoch } as const;
    return await env.store.registry.finish(threadId, facts);
  } finally {
    writer.close();
  }
}
