import { messageOf } from '../../core/errors.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { toMicroUsd } from '../../core/usage.ts';
import type { StoredHead } from '../../storage/store.ts';
import type { Process, Stored } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { budgetOf, recordOf } from './repair.ts';

type Env = Stored & Pick<Process, 'owner' | 'onNotice'>;

/**
 * Brings the row of a thread up to its signed record. The commits of the registry are not synced: a power failure takes the
 * last ones, but not what was synced before them, thread.json, the log and the head in the user space. Returns the row.
 */
export async function refreshRow(env: Env, record: ThreadRecord): Promise<ThreadRecord> {
  const { registry, ledger } = env.store;
  const { thread_id: threadId } = record;
  const newer = await newerState(env, record);
  if (!newer) return record;
  const { document, epoch, run, head } = newer;
  const signed = await recordOf(env, document, new Map([[threadId, document]]));
  if (!(await registry.renew(record, { ...signed, epoch }, run))) return record;
  if (head) await env.store.heads.note(head);
  await ledger.restore([budgetOf(document)]);
  await reportSigned(env, document, epoch);
  env.onNotice(`thread ${threadId}: the registry had lost its last state, which is restored`);
  return (await registry.get(threadId)) ?? record;
}

interface NewerState {
  readonly document: ThreadDocument;
  readonly epoch: number;
  readonly run: number;
  /** The last signed end, if the registry does not have it. */
  readonly head: StoredHead | undefined;
}

/** Returns the signed state of a thread if its row is older. */
async function newerState(env: Env, record: ThreadRecord): Promise<NewerState | undefined> {
  const { registry, logs, maintenance } = env.store;
  const { thread_id: threadId } = record;
  // a store of many machines loses nothing
  if (!maintenance || !env.files.exists(threadId)) return undefined;
  const document = await env.files.readDocument(threadId).catch(() => undefined);
  if (!document) return undefined;
  const head = env.heads.known().get(threadId);
  const known = Math.max(head?.epoch ?? 0, await logs.heldEpoch(threadId));
  const run = document.runs?.length ?? 1;
  const isOfEarlierRun = run > (await registry.runOf(threadId));
  if (known <= record.epoch && !isOfEarlierRun) return undefined;
  // its owner lives and is ahead of this look, or an older state was put in place
  if (await logs.holder(threadId)) return undefined;
  if ((await env.heads.rollbackOf(document)) !== undefined) return undefined;
  const epoch = Math.max(known, record.epoch + Number(isOfEarlierRun));
  return { document, epoch, run, head: head && head.epoch > record.epoch ? head : undefined };
}

async function reportSigned(env: Env, document: ThreadDocument, epoch: number): Promise<void> {
  const { thread_id: threadId, cost } = document;
  if (cost) await env.store.ledger.report(threadId, toMicroUsd(cost.spend), epoch);
}

/** Brings the rows of all threads of a project up to their signed records. */
export async function refreshRows(env: Env): Promise<void> {
  if (!env.store.maintenance) return;
  const heads = env.heads.known();
  for (const record of await env.store.registry.list({})) {
    const { thread_id: threadId, epoch } = record;
    try {
      const held = await env.store.logs.heldEpoch(threadId);
      if (Math.max(heads.get(threadId)?.epoch ?? 0, held) > epoch) await refreshRow(env, record);
    } catch (error) {
      env.onNotice(`the row of ${threadId} could not be restored: ${messageOf(error)}`);
    }
  }
}
