import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type ErrorInfo, toRyeError } from '../../core/errors.ts';
import { isFinal } from '../../core/thread.ts';
import { readRegular } from '../../disk/regular-file.ts';
import type { ThreadFiles } from '../../threads/ports.ts';
import type { ThreadDocument } from '../../threads/thread-document.ts';
import { rollbackHint, verifyLog } from '../../threads/verified-log.ts';
import { sha256Hex } from '../../trust/keys.ts';
import type { LogMark, ThreadVerification } from '../api/threads.ts';
import { ThreadHeads, threadFiles } from '../thread-files.ts';
import type { Workspace } from '../workspace.ts';
import type { NamedArtifact } from './log-facts.ts';

export type Check = ThreadVerification['checks'][number];

/** A thread whose files are checked. */
export interface Examined {
  readonly workspace: Workspace;
  readonly files: ThreadFiles;
  readonly threadId: string;
  /** Undefined if thread.json does not verify. */
  readonly document: ThreadDocument | undefined;
}

/** Compares the stored plan with the hash that thread.json names. */
export async function verifyPlan({ files, threadId, document }: Examined): Promise<Check[]> {
  if (document === undefined) return [];
  const path = join(files.folder(threadId), 'plan.json');
  // a thread that never ran may have none, and older ones do not name theirs
  if (document.plan_sha256 === undefined || (neverRan(document) && !existsSync(path))) return [];
  try {
    await files.readPlan(document);
    return [{ name: 'plan', ok: true, detail: `sha256 ${document.plan_sha256.slice(0, 16)}…` }];
  } catch (error) {
    return [{ name: 'plan', ok: false, error: infoOf(error) }];
  }
}

/** True if the thread ended before its first turn, so that it has no log. */
export function neverRan({ status, cost }: ThreadDocument): boolean {
  return isFinal(status) && cost === undefined;
}

/** A part that thread.json expects, and that is not there. */
export function missingPart(name: Check['name'], path: string, threadId: string): Check {
  const error = {
    code: 'part_missing',
    message: `${path} is missing`,
    hint: `Restore it from a backup. If only the export is missing, \`rye verify thread ${threadId} --accept-head\` writes it again.`,
  } as const;
  return { name, ok: false, error };
}

/** Checks the artifacts that the log names: each is there, and has the bytes that were written. */
export function verifyArtifacts(
  { workspace, threadId }: Examined,
  artifacts: readonly NamedArtifact[],
): { readonly checks: readonly Check[]; readonly names: ReadonlySet<string> } {
  const names = new Set<string>();
  const problems: string[] = [];
  for (const { path, sha256 } of artifacts) {
    names.add(path);
    const problem = artifactProblem(join(workspace.options.projectPath, path), path, sha256);
    if (problem !== undefined) problems.push(problem);
  }
  if (names.size === 0) return { checks: [], names };
  const [first] = problems;
  if (first === undefined) {
    return { checks: [{ name: 'artifacts', ok: true, detail: `${names.size} checked` }], names };
  }
  const code = first.endsWith('is missing') ? 'part_missing' : 'thread_tampered';
  const more = problems.length === 1 ? '' : `, and ${problems.length - 1} more`;
  const error = {
    code,
    message: `${first}${more}`,
    hint: `Restore the artifacts of ${threadId} from a backup.`,
  } as const;
  return { checks: [{ name: 'artifacts', ok: false, error }], names };
}

function artifactProblem(
  path: string,
  name: string,
  sha256: string | undefined,
): string | undefined {
  if (!existsSync(path)) return `${name} is missing`;
  if (sha256 === undefined || sha256Hex(readRegular(path)).startsWith(sha256)) return undefined;
  return `${name} is not what the tool returned`;
}

const OWN_FILE =
  /^(?:thread\.json|plan(?:-[0-9a-f]{16})?\.json|capabilities\.md|transcript\.jsonl(?:\.gz)?|transcript\.(?:index|[a-z]+-\d+(?:\.jsonl)?)|lease\.json|spawn\.log|handover\.json|\.lease-.*|\.rye-.*\.tmp|artifacts)$/;

/** Names files in the thread's folder that rye did not write for it. */
export function foreignFiles(
  { workspace, files, threadId }: Examined,
  artifacts: ReadonlySet<string>,
): readonly string[] {
  const folder = files.folder(threadId);
  const own = readdirSync(folder, { withFileTypes: true })
    // folders of other threads may be in it
    .filter((entry) => !entry.isDirectory() && !OWN_FILE.test(entry.name))
    .map(({ name }) => join(folder, name));
  const stored = join(folder, 'artifacts');
  const named = new Set([...artifacts].map((path) => join(workspace.options.projectPath, path)));
  const unnamed = existsSync(stored)
    ? readdirSync(stored)
        // a long message is stored as one too, and named in the text that the model read
        .filter((name) => !named.has(join(stored, name)) && !name.startsWith('delivery-'))
        .map((name) => join(stored, name))
    : [];
  return [...own, ...unnamed].map((path) => `${path} does not belong to this thread`);
}

/** Compares the thread with its row in the registry, and with the last heads that are known of it. */
export async function verifyHead(examined: Examined): Promise<{
  readonly check: Check;
  readonly warnings: readonly string[];
  /** SHA-256 hex of the export that was written last, if that is known. */
  readonly exported: string | undefined;
}> {
  const { workspace, threadId, document } = examined;
  if (document === undefined) {
    const error = { code: 'thread_tampered', message: 'no thread.json to compare' } as const;
    return { check: { name: 'head', ok: false, error }, warnings: [], exported: undefined };
  }
  const found = await new ThreadHeads(workspace).check(document);
  const { rollback, places, record, registryProblem, exported } = found;
  if (rollback !== undefined) {
    const hint = rollbackHint(threadId);
    const error = { code: 'thread_rolled_back', message: rollback, hint } as const;
    return { check: { name: 'head', ok: false, error }, warnings: [], exported };
  }
  const warnings = registryProblem === undefined ? [] : [`not compared: ${registryProblem}`];
  if (record && isFinal(record.status) && document.status === 'running') {
    warnings.push(`the registry has the status ${record.status}, and thread.json running`);
  }
  if (record && found.isRowBehind) {
    warnings.push('the registry has an older state of it: run `rye threads recover`');
  }
  const known =
    places.length === 0 ? 'no local head known' : `the newest for ${places.join(' and ')}`;
  const detail = found.isAccepted ? 'accepted by hand' : known;
  return { check: { name: 'head', ok: true, detail }, warnings, exported };
}

export function infoOf(error: unknown): ErrorInfo {
  return toRyeError(error).toJSON();
}

/** Readers check logs up to this size at each look; `rye verify thread` checks any. */
const MAX_BYTES = 64 * 1024 * 1024;

/** Tells readers of a log if they can trust it. Reads the log once, and never throws because of the files. */
export async function markLog(workspace: Workspace, threadId: string): Promise<LogMark> {
  const { store, keyring } = workspace;
  const size = await store.logs.size(threadId);
  const isThere = size !== undefined || (await store.logs.isArchived(threadId));
  if (!isThere || (size ?? 0) > MAX_BYTES) return { verified: null };
  try {
    const { verdict } = await verifyLog(
      {
        files: threadFiles(workspace),
        store,
        verifier: keyring.payloadVerifier,
        heads: new ThreadHeads(workspace),
      },
      threadId,
    );
    const isLive = (await store.logs.holder(threadId)) !== undefined;
    if (verdict.ok && (isLive || verdict.unverified_bytes === 0)) return { verified: true };
    if (verdict.ok) {
      const { verified_bytes: from, unverified_bytes: bytes } = verdict;
      const message = `the last ${bytes} bytes of the log of ${threadId} are not signed, from byte ${from}`;
      const error = { code: 'transcript_tampered', message } as const;
      return { verified: false, unverified_from: from, error };
    }
    const { code, offset, reason } = verdict;
    const message = `the log of ${threadId} does not verify from byte ${offset}: ${reason}`;
    return { verified: false, unverified_from: offset, error: { code, message } };
  } catch (error) {
    // nothing vouches for a log whose thread.json does not verify
    return { verified: false, unverified_from: 0, error: infoOf(error) };
  }
}
