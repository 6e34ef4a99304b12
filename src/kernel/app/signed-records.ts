import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { isoTime } from '../core/clock.ts';
import { RyeError } from '../core/errors.ts';
import { toMicroUsd } from '../core/usage.ts';
import { readRegular } from '../disk/regular-file.ts';
import { isKnown } from '../log/tree.ts';
import type { LogIntact } from '../log/verifier.ts';
import type { OpenedLog } from '../storage/store.ts';
import type { ThreadFiles } from '../threads/ports.ts';
import { exportThread } from '../threads/run/export-thread.ts';
import type { ThreadDocument } from '../threads/thread-document.ts';
import { readUnsignedRun } from '../threads/unsigned-run-fs.ts';
import { tamperedError } from '../threads/verified-log.ts';
import type { VerifyingKey } from '../trust/keys.ts';
import { unsignedText } from '../trust/signature.ts';
import { assertOutsideThreads } from './ancestry.ts';
import type { RecordToSign, SignedRecords } from './api/threads.ts';
import { threadPorts } from './thread-env.ts';
import { ThreadHeads, threadFiles } from './thread-files.ts';
import { neverRan } from './verification/parts.ts';
import { verifyThread } from './verification/thread.ts';
import { Workspace } from './workspace.ts';

/** See `ThreadsService.sign`. */
export async function signRecords(
  workspace: Workspace,
  threadId: string,
  { dryRun: isDryRun = false }: { readonly dryRun?: boolean } = {},
): Promise<SignedRecords> {
  const { store, options, keyring } = workspace;
  await assertOutsideThreads(store, options.env, 'sign');
  const signer = keyring.signer();
  const files = threadFiles(workspace);
  await files.pull(threadId);
  const key = readUnsignedRun(files.folder(threadId), threadId);
  if (key === undefined) throw await notUnsigned(files, threadId);
  const checking = new Workspace(options, { recordKey: key });
  try {
    const found: Checked[] = [];
    for (const id of ofRun(files, key)) found.push(await checked(workspace, checking, id));
    if (!isDryRun) for (const one of found) await sign(workspace, one);
    const threads = found.map(({ record }) => record);
    return { key_id: signer.keyId, run_key_id: key.keyId, signed: !isDryRun, threads };
  } finally {
    checking.close();
  }
}

async function notUnsigned(files: ThreadFiles, threadId: string): Promise<RyeError> {
  const { unsigned_run: run } = await files.readDocument(threadId);
  const by = run?.signed ? ` by ${run.signed.key_id} on ${run.signed.signed_at}` : '';
  return new RyeError('usage', `the record of ${threadId} is signed already${by}`, {
    hint: `Check it: rye verify thread ${threadId}`,
  });
}

/** Returns the threads that one run without a signing key has written: a thread and the children that it waited for. */
function ofRun(files: ThreadFiles, key: VerifyingKey): readonly string[] {
  return files.list().filter((id) => readUnsignedRun(files.folder(id), id)?.keyId === key.keyId);
}

/** A record that is whole, and what a person signs with it. */
interface Checked {
  readonly record: RecordToSign;
  readonly document: ThreadDocument;
}

/** Checks all that can be checked of a record whose key proves nothing but that it is whole. */
async function checked(
  workspace: Workspace,
  checking: Workspace,
  threadId: string,
): Promise<Checked> {
  const { store, keyring } = checking;
  if ((await store.logs.holder(threadId)) !== undefined) throw stillRuns(threadId);
  if (new ThreadHeads(workspace).known().has(threadId)) throw replaced(threadId);
  const files = threadFiles(checking);
  const { checks } = await verifyThread(checking, files, threadId);
  // the export is rendered again from the log
  const failed = checks.find(({ ok, name }) => !ok && name !== 'knowledge');
  if (failed) {
    const { code = 'thread_tampered', message = failed.name, hint } = failed.error ?? {};
    throw new RyeError(code, `the record of ${threadId} is not whole: ${failed.name}: ${message}`, {
      hint: hint ?? 'Nothing was signed.',
      details: { thread_id: threadId },
    });
  }
  const document = await files.readDocument(threadId);
  if (neverRan(document)) return { record: summary(document), document };
  const verifier = keyring.payloadVerifier;
  const verdict = await store.logs.verify(threadId, { verifier, expected: document.transcript });
  if (!verdict.ok) throw tamperedError(threadId, verdict);
  const log = await store.logs.read(threadId, { end: verdict.verified_bytes });
  assertOfOneKey(log, document);
  assertBooked(log, document);
  return { record: summary(document, { verdict, log }), document };
}

function stillRuns(threadId: string): RyeError {
  return new RyeError('thread_locked', `thread ${threadId} still runs`, {
    hint: `Wait for its end: rye threads wait ${threadId}`,
  });
}

/** A thread that this user has signed before is never one whose run had no key. */
function replaced(threadId: string): RyeError {
  return new RyeError('thread_rolled_back', `${threadId} replaces a record that was signed here`, {
    hint: 'Restore the signed record from a backup. Nothing was signed.',
    details: { thread_id: threadId },
  });
}

/** Refuses a log with a checkpoint of another key: it continues a record that was signed. */
function assertOfOneKey(
  { events, header }: OpenedLog,
  { unsigned_run: run }: ThreadDocument,
): void {
  const other = events.find(
    (event) => isKnown(event, 'checkpoint') && event.payload.key_id !== run?.key_id,
  );
  if (other === undefined) return;
  const { thread_id: id } = header;
  throw new RyeError('transcript_tampered', `the log of ${id} was signed by another key before`, {
    hint: 'Restore the signed record from a backup. Nothing was signed.',
    details: { thread_id: id, seq: other.seq },
  });
}

/** Refuses totals that fall from one turn to the next, and a record that names another cost than its log. */
function assertBooked({ events, header }: OpenedLog, document: ThreadDocument): void {
  let total = 0;
  for (const event of events) {
    const cost = isKnown(event, 'cost')
      ? event.payload.total
      : isKnown(event, 'thread_finished')
        ? event.payload.cost
        : undefined;
    if (cost === undefined) continue;
    if (toMicroUsd(cost.spend) < total)
      throw wrongCost(header.thread_id, `it falls at event ${event.seq}`);
    total = toMicroUsd(cost.spend);
  }
  const stated = toMicroUsd(document.cost?.spend ?? 0);
  if (document.transcript && stated !== total)
    throw wrongCost(
      header.thread_id,
      `thread.json states ${stated} micro-dollars, the log ${total}`,
    );
}

function wrongCost(threadId: string, why: string): RyeError {
  return new RyeError('thread_tampered', `the cost of ${threadId} does not add up: ${why}`, {
    hint: 'Nothing was signed.',
    details: { thread_id: threadId },
  });
}

function summary(
  { thread_id, directive, status, model, provider, cost, inputs, ...document }: ThreadDocument,
  whole?: { readonly verdict: LogIntact; readonly log: OpenedLog },
): RecordToSign {
  const { events = [] } = whole?.log ?? {};
  return {
    thread_id,
    parent_thread_id: document.parent_thread_id,
    directive,
    status,
    started_at: document.created_at,
    provider,
    model,
    inputs,
    spend_usd: cost?.spend ?? 0,
    turns: cost?.turns ?? 0,
    calls: events.filter((event) => isKnown(event, 'tool_call_start')).length,
    events: whole?.verdict.head.seq ?? 0,
    bytes: whole?.verdict.head.bytes ?? 0,
    head_sha256: whole?.verdict.head.sha256 ?? null,
  };
}

/** Signs thread.json first: from then on the checkpoints of the run count, and its other files are signed from it. */
async function sign(workspace: Workspace, { document, record }: Checked): Promise<void> {
  const { clock, keyring } = workspace;
  const { thread_id: threadId, unsigned_run: run } = document;
  if (run === undefined) return;
  const signed_at = isoTime(clock.now());
  const signed = { key_id: keyring.signer().keyId, signed_at, bytes: record.bytes };
  const files = threadFiles(workspace);
  const next = { ...document, unsigned_run: { ...run, signed } };
  await files.writeDocument(next);
  const capabilities = join(files.folder(threadId), 'capabilities.md');
  if (existsSync(capabilities)) {
    const text = readRegular(capabilities).toString('utf8');
    await files.writeCapabilities(threadId, unsignedText(text, 'html'));
  }
  if (!document.transcript || neverRan(document)) return;
  const env = await threadPorts(workspace, { allowUnsigned: false });
  await exportThread(env, await files.readPlan(next), next);
}
