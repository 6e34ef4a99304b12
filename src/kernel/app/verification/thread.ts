import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type ErrorInfo, messageOf, RyeError } from '../../core/errors.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { readRegular } from '../../disk/regular-file.ts';
import { renderCapabilities } from '../../export/capabilities.ts';
import { displacedRecord } from '../../items/binding.ts';
import type { LogVerification, VerifyOptions } from '../../storage/store.ts';
import { signedEnd } from '../../threads/family/signed-end.ts';
import type { ThreadFiles } from '../../threads/ports.ts';
import type { ThreadDocument } from '../../threads/thread-document.ts';
import { capabilitiesSubject, exportSubject } from '../../threads/thread-files-fs.ts';
import { againstHead, rollbackHint } from '../../threads/verified-log.ts';
import { faultError } from '../../trust/policy.ts';
import { checkDigest, checkText, type Verdict } from '../../trust/signature.ts';
import { blankSignatureLine } from '../../trust/signature-line.ts';
import { digestSigned, type SignedDigest } from '../../trust/signed-digest-fs.ts';
import type { ThreadVerification } from '../api/threads.ts';
import { recordHash, ThreadHeads, threadFiles } from '../thread-files.ts';
import type { Workspace } from '../workspace.ts';
import { LogAudit } from './approvals.ts';
import { LogFacts } from './log-facts.ts';
import {
  type Check,
  type Examined,
  foreignFiles,
  infoOf,
  missingPart,
  neverRan,
  verifyArtifacts,
  verifyHead,
  verifyPlan,
} from './parts.ts';

const DEFINITIONS = '\n## Tool definitions\n';

/**
 * Checks everything that a thread wrote: thread.json, its plan, each checkpoint of its log, capabilities.md, artifacts and
 * export; then that it is the newest state that the registry and the user space know. It needs no registry: what was
 * not compared is a warning.
 */
export async function verifyThread(
  workspace: Workspace,
  files: ThreadFiles,
  threadId: string,
): Promise<ThreadVerification> {
  await files.pull(threadId);
  if (!existsSync(files.folder(threadId))) {
    throw new RyeError('thread_not_found', `thread not found on disk: ${threadId}`, {
      hint: 'Run: rye threads list',
    });
  }
  let before = JSON.stringify(await verifyDocument(files, threadId));
  for (let look = 1; ; look += 1) {
    const found = await examine(workspace, files, threadId);
    if (found.ok || look === LOOKS) return found;
    // what another process writes in between is no damage
    const after = JSON.stringify(await verifyDocument(files, threadId));
    if (after === before) return found;
    before = after;
  }
}

async function examine(
  workspace: Workspace,
  files: ThreadFiles,
  threadId: string,
): Promise<ThreadVerification> {
  const { document, checks, log } = await verifyRecord(workspace, files, threadId);
  // nothing of it is signed, so that no other check could tell more
  const [first] = checks;
  if (first?.error?.code === 'unsigned')
    return { thread_id: threadId, ok: false, checks: [first], warnings: [] };
  const examined = { workspace, files, threadId, document };
  const artifacts = verifyArtifacts(examined, log.facts.artifacts);
  const head = await verifyHead(examined);
  const all = [
    ...checks,
    ...(await verifyPlan(examined)),
    ...(document ? approvalsOf(log) : []),
    ...(await verifyCapabilities(examined)),
    ...originOf(document),
    ...(await verifyExport(examined, head.exported)),
    ...artifacts.checks,
    head.check,
  ];
  const { signed } = document?.unsigned_run ?? {};
  const warnings = [...head.warnings, ...foreignFiles(examined, artifacts.names)];
  return {
    thread_id: threadId,
    ok: all.every(({ ok }) => ok),
    ...(document?.imported_from ? { imported: true } : {}),
    ...(signed ? { signed_after_run: { key_id: signed.key_id, signed_at: signed.signed_at } } : {}),
    checks: all,
    warnings,
  };
}

/** Reports a conversation of another program, and a run whose record a person signed later: their key has not seen it happen. */
function originOf(document: Examined['document']): readonly Check[] {
  if (document?.imported_from)
    return [{ name: 'origin', ok: true, detail: 'imported, not vouched for' }];
  const { signed } = document?.unsigned_run ?? {};
  if (!signed) return [];
  const detail = `signed after the run by ${signed.key_id} on ${signed.signed_at}`;
  return [{ name: 'origin', ok: true, detail }];
}

/** Checks that every call which a person had to decide about has a decision before it; nothing where no call asked. */
function approvalsOf({ facts, planProblem }: ReadLog): readonly Check[] {
  if (planProblem !== undefined) return [{ name: 'approvals', ok: false, error: planProblem }];
  const { problems, checked } = facts.approvals;
  const [first] = problems;
  if (checked === 0 && first === undefined) return [];
  if (first === undefined) return [{ name: 'approvals', ok: true, detail: `${checked} verified` }];
  const error = { code: 'approval_invalid' as const, message: problems.join('; ') };
  return [{ name: 'approvals', ok: false, error }];
}

async function verifyCapabilities(examined: Examined): Promise<Check[]> {
  const { workspace, files, threadId, document } = examined;
  const path = join(files.folder(threadId), 'capabilities.md');
  const sha256 = document?.capabilities_sha256;
  if (!existsSync(path)) {
    return sha256 === undefined ? [] : [missingPart('capabilities', path, threadId)];
  }
  const digest = await digestSigned(path);
  const check = await verifyText(workspace, { name: 'capabilities', path, digest }, examined);
  if (!check.ok || sha256 === undefined || digest.sha256 === sha256) return [check];
  const message = 'capabilities.md does not match its hash in thread.json';
  return [{ name: 'capabilities', ok: false, error: { code: 'thread_tampered', message } }];
}

/** The export of a thread that ended; while one runs, its export is not signed yet. */
async function verifyExport(
  { workspace, ...rest }: Examined,
  expected: string | undefined,
): Promise<Check[]> {
  const { files, threadId, document } = rest;
  if (document?.transcript === undefined) return [];
  const path = files.knowledgePath(document.directive, threadId);
  if (!existsSync(path)) {
    return expected === undefined ? [] : [missingPart('knowledge', path, threadId)];
  }
  const digest = await digestSigned(path);
  const owner = { workspace, ...rest };
  const check = await verifyText(workspace, { name: 'knowledge', path, digest }, owner);
  if (!check.ok || expected === undefined || digest.sha256 === expected) return [check];
  const message = `${path} is not the last export that rye wrote of ${threadId}`;
  const hint = `If you restored it on purpose, run: rye verify thread ${threadId} --accept-head`;
  return [{ name: 'knowledge', ok: false, error: { code: 'part_outdated', message, hint } }];
}

/** Attempts to read a thread that is being written to. */
const LOOKS = 5;

async function verifyRecord(
  workspace: Workspace,
  files: ThreadFiles,
  threadId: string,
): Promise<{
  readonly document: ThreadDocument | undefined;
  readonly checks: Check[];
  readonly log: ReadLog;
}> {
  const { document, check: read } = await verifyDocument(files, threadId);
  const check = read.ok ? await verifyEnd(workspace, files, threadId, read) : read;
  const log = await readLog(workspace, files, threadId, document);
  return { document, checks: [check, log.check], log };
}

/** The findings of one pass through the log. */
interface ReadLog {
  readonly check: Check;
  readonly facts: LogFacts;
  /** Why it is not known which calls the plan asks about. */
  readonly planProblem: ErrorInfo | undefined;
}

async function readLog(
  workspace: Workspace,
  files: ThreadFiles,
  threadId: string,
  document: ThreadDocument | undefined,
): Promise<ReadLog> {
  let plan: Pick<ThreadPlan, 'asks'> | undefined;
  let planProblem: ErrorInfo | undefined;
  try {
    plan = document?.asks ? await files.readPlan(document) : undefined;
  } catch (error) {
    planProblem = infoOf(error);
  }
  const facts = new LogFacts(threadId, new LogAudit(threadId, plan, workspace.keyring));
  const check = await verifyTranscript(workspace, threadId, document, facts);
  return { check, facts, planProblem };
}

/** Compares the end of a thread in a store of many machines, where lists and waits find it, with the signed one. */
async function verifyEnd(
  { store }: Workspace,
  files: ThreadFiles,
  threadId: string,
  check: Check,
): Promise<Check> {
  if (!store.documents) return check;
  const record = await store.registry.get(threadId);
  if (!record) return check;
  const end = await signedEnd({ store, files }, record, await store.registry.runOf(threadId));
  if (end.status === record.status || end.error === null) return check;
  return { name: 'thread.json', ok: false, error: end.error };
}

async function verifyDocument(
  files: ThreadFiles,
  threadId: string,
): Promise<{ readonly document: ThreadDocument | undefined; readonly check: Check }> {
  try {
    const document = await files.readDocument(threadId);
    return {
      document,
      check: { name: 'thread.json', ok: true, detail: `status ${document.status}` },
    };
  } catch (error) {
    return { document: undefined, check: { name: 'thread.json', ok: false, error: infoOf(error) } };
  }
}

/** Compares a log with what its owners reported to the registry, if that can be read: looking makes no registry. */
async function verifyKnown(
  { store, isRegistryMade }: Workspace,
  threadId: string,
  verify: VerifyOptions,
): Promise<LogVerification> {
  // first, because the log only grows
  const known = isRegistryMade ? await signedHeadIn(store, threadId) : undefined;
  return againstHead(await store.logs.verify(threadId, verify), known);
}

async function signedHeadIn({ registry }: Workspace['store'], threadId: string) {
  try {
    return await registry.signedHead(threadId);
  } catch (error) {
    if (error instanceof RyeError && error.code === 'storage_failed') return undefined;
    throw error;
  }
}

async function verifyTranscript(
  workspace: Workspace,
  threadId: string,
  document: ThreadDocument | undefined,
  listener: LogFacts,
): Promise<Check> {
  try {
    const result = await verifyKnown(workspace, threadId, {
      verifier: workspace.keyring.payloadVerifier,
      expected: document?.transcript,
      listener,
    });
    // without it nothing would be known of approvals and artifacts
    if (!listener.isRead && result.ok)
      throw new RyeError('internal', 'the store did not show the log that it verified');
    if (result.ok) {
      const { unverified_bytes: tail } = result;
      const moved = await workspace.store.logs.quarantined(threadId);
      const sum = moved.reduce((bytes, part) => bytes + part.bytes, 0);
      const rest = [
        ...(tail === 0 ? [] : [`, ${tail} bytes after the last one unverified`]),
        ...(sum === 0 ? [] : [`, ${sum} bytes unverified, quarantined at recovery`]),
      ].join('');
      const detail = `${result.events} events, ${result.checkpoints} checkpoints, ${result.verified_bytes} bytes signed${rest}`;
      return { name: 'transcript', ok: true, detail };
    }
    const { code, reason, offset } = result;
    const message = `${reason} at byte ${offset}`;
    const error =
      code === 'thread_rolled_back'
        ? { code, message, hint: rollbackHint(threadId) }
        : { code, message };
    return { name: 'transcript', ok: false, offset, error };
  } catch (error) {
    if (
      document &&
      neverRan(document) &&
      error instanceof RyeError &&
      error.code === 'thread_not_found'
    ) {
      return { name: 'transcript', ok: true, detail: 'the thread never ran' };
    }
    return { name: 'transcript', ok: false, error: infoOf(error) };
  }
}

interface SignedText {
  readonly name: 'capabilities' | 'knowledge';
  readonly path: string;
  readonly digest: SignedDigest;
}

async function verifyText(
  workspace: Workspace,
  { name, path, digest }: SignedText,
  owner: Examined,
): Promise<Check> {
  const verdict = await checkRecord(workspace, { name, path, digest }, owner);
  if (verdict.ok)
    return {
      name,
      ok: true,
      detail: verdict.by === 'key' ? signedBy(verdict) : 'shipped',
    };
  const { message, code } = faultError(
    { type: 'knowledge', id: name, space: 'project', path },
    verdict,
  );
  const found = verdict.signedAs && `${verdict.signedAs.kind} ${verdict.signedAs.id}`;
  const foreign =
    found === undefined
      ? message
      : `${path} is signed as ${found}: it does not belong to ${owner.threadId}`;
  const hint =
    name === 'knowledge'
      ? `To write it again from the signed log, run: rye verify thread ${owner.threadId} --accept-head`
      : "Restore the thread's own file from a backup. Nothing was taken from this one.";
  return { name, ok: false, error: { code, message: foreign, hint } };
}

/** Names the signer; of a key that was revoked later also both times. */
function signedBy({ keyId, signedAt, revokedAt }: Extract<Verdict, { by: 'key' }>): string {
  const later =
    revokedAt === undefined ? '' : ` on ${signedAt}, before the key was revoked on ${revokedAt}`;
  return `signed by ${keyId}${later}`;
}

/** A record is signed as that of its thread. The content of an older record must name its thread. */
async function checkRecord(
  { keyring: keys }: Workspace,
  { name, path, digest }: SignedText,
  owner: Examined,
): Promise<Verdict> {
  const id = `agent/threads/${owner.document?.directive ?? ''}/${owner.threadId}`;
  const isSnapshot = name === 'capabilities';
  const subject = isSnapshot ? capabilitiesSubject(owner.threadId) : exportSubject(`${id}.md`);
  const expected = { keys, subject, isRecord: true };
  const known = checkDigest(digest, expected);
  if (known?.ok && known.by === 'key' && known.version !== 1) return known;
  const text = readRegular(path).toString('utf8');
  const verdict = checkText({ text, style: 'html', ...expected });
  if (!verdict.ok || verdict.by !== 'key' || verdict.version !== 1) return verdict;
  const detail = isSnapshot
    ? await foreignSnapshot(text, owner)
    : displacedRecord('knowledge', id, text);
  const { keyId } = verdict;
  return detail === undefined ? verdict : { ok: false, code: 'item_moved', keyId, detail };
}

/** Compares a snapshot with the plan of its thread, up to the tool definitions, which the plan does not hold. */
async function foreignSnapshot(
  text: string,
  { files, document }: Examined,
): Promise<string | undefined> {
  const detail = 'it is not the capability snapshot of this thread';
  if (document === undefined) return detail;
  try {
    const [planned = ''] = renderCapabilities(await files.readPlan(document), []).split(
      DEFINITIONS,
    );
    const [found = ''] = blankSignatureLine(text, 'html').trimStart().split(DEFINITIONS);
    return found === planned ? undefined : detail;
  } catch (error) {
    return messageOf(error);
  }
}

/** See `ThreadsService.acceptHead`. */
export async function acceptHead(
  workspace: Workspace,
  threadId: string,
): Promise<ThreadVerification> {
  const files = threadFiles(workspace);
  const found = await verifyThread(workspace, files, threadId);
  if (!found.checks.every((check) => check.ok || canAccept(check))) return found;
  const document = await files.readDocument(threadId);
  const path = files.knowledgePath(document.directive, threadId);
  const isExported = found.checks.some(({ name, ok }) => name === 'knowledge' && ok);
  if (document.transcript && !isExported) {
    const { exportThread } = await import('../../threads/run/export-thread.ts');
    const { threadPorts } = await import('../thread-env.ts');
    const env = await threadPorts(workspace, { allowUnsigned: false });
    await exportThread(env, await files.readPlan(document), document);
  }
  const exported = readIfThere(path);
  await new ThreadHeads(workspace).accept(document, exported && recordHash(exported));
  return await verifyThread(workspace, files, threadId);
}

function readIfThere(path: string): string | null {
  return existsSync(path) ? readRegular(path).toString('utf8') : null;
}

/** True for what accepting settles: an older state, and any fault of the export, which is rendered from the signed log. */
function canAccept({ name, error }: ThreadVerification['checks'][number]): boolean {
  return name === 'knowledge' || error?.code === 'thread_rolled_back';
}
