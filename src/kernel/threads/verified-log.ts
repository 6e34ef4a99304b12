import { RyeError } from '../core/errors.ts';
import type { LogIntact, LogTampered } from '../log/verifier.ts';
import type {
  LogExtent,
  LogPart,
  LogVerification,
  Store,
  VerifiedLog,
  VerifyOptions,
} from '../storage/store.ts';
import type { HeadsPort, Stored } from './ports.ts';
import type { ThreadDocument } from './thread-document.ts';

/** Maximum attempts to verify a thread that is being written to. */
const LOOKS = 5;

/**
 * Returns a thread's signed document, and whether its log matches that and is no older than the last known state. If
 * another process writes in between, both are read again.
 */
export async function verifyLog(
  { files, store, verifier, heads }: Stored,
  threadId: string,
): Promise<{ readonly document: ThreadDocument; readonly verdict: LogVerification }> {
  let document = await files.readDocument(threadId);
  for (let look = 1; ; look += 1) {
    const expected = document.transcript;
    const intact = await verifyAgainstHead(store, threadId, { verifier, expected });
    const verdict = intact.ok ? await againstHeads(heads, document, intact) : intact;
    if (verdict.ok || look === LOOKS) return { document, verdict };
    const after = await files.readDocument(threadId);
    if (JSON.stringify(after) === JSON.stringify(document)) return { document, verdict };
    document = after;
  }
}

/**
 * Verifies a log and compares it with the last signed end that its owner reported to the registry: a log that was cut
 * after an earlier checkpoint verifies by itself.
 */
export async function verifyAgainstHead(
  { logs, registry }: Pick<Store, 'logs' | 'registry'>,
  threadId: string,
  options: VerifyOptions,
): Promise<LogVerification> {
  // first, because the log only grows
  const known = await registry.signedHead(threadId);
  return againstHead(await logs.verify(threadId, options), known);
}

/** Compares what a log shows with the signed end that the registry knew before it was read. */
export function againstHead(
  verdict: LogVerification,
  known: Awaited<ReturnType<Store['registry']['signedHead']>>,
): LogVerification {
  if (!known || (!verdict.ok && !verdict.unsigned)) return verdict;
  const end = verdict.head?.seq ?? 0;
  if (end >= known.seq) return verdict;
  return {
    ok: false,
    code: 'thread_rolled_back',
    offset: verdict.verified_bytes,
    reason: `the log was cut: it is signed up to event ${end}, and was up to event ${known.seq}`,
    checkpoints: verdict.checkpoints,
    verified_bytes: verdict.verified_bytes,
  };
}

/** Reads the events of a log up to its last signature, or its entries alone. Throws if the signed part was changed. */
export async function readSigned(
  { store, verifier }: Pick<Stored, 'store' | 'verifier'>,
  threadId: string,
  options: { readonly expected?: LogExtent | undefined; readonly entriesOnly?: boolean } = {},
): Promise<VerifiedLog['events']> {
  const { verdict, events } = await store.logs.readVerified(threadId, { verifier, ...options });
  if (!verdict.ok) throw tamperedError(threadId, verdict);
  return events;
}

/** Returns the part of a log before the first unsigned or changed byte. */
export function partOf(
  threadId: string,
  { verified_bytes: end }: Pick<LogVerification, 'verified_bytes'>,
): LogPart {
  if (end > 0) return { end };
  throw new RyeError('log_malformed', `nothing in the log of thread ${threadId} is signed`, {
    hint: `See: rye verify thread ${threadId}`,
    details: { thread_id: threadId },
  });
}

/** Returns the error for a log whose signed part was changed. */
export function tamperedError(
  threadId: string,
  { code, reason, offset }: LogTampered,
  hint = `\`rye verify thread ${threadId}\` shows all checks. Nothing was changed.`,
): RyeError {
  const message = `the log of ${threadId} does not verify: ${reason} at byte ${offset}`;
  const advice = code === 'thread_rolled_back' ? rollbackHint(threadId) : hint;
  return new RyeError(code, message, { hint: advice, details: { thread_id: threadId, offset } });
}

async function againstHeads(
  heads: HeadsPort,
  document: ThreadDocument,
  intact: LogIntact,
): Promise<LogVerification> {
  const reason = await heads.rollbackOf(document);
  if (reason === undefined) return intact;
  const { verified_bytes, checkpoints, head } = intact;
  const flaw = { code: 'thread_rolled_back', offset: verified_bytes, reason } as const;
  return { ok: false, ...flaw, verified_bytes, checkpoints, head };
}

/** Returns the hint for a thread that is older than its last known state. */
export function rollbackHint(threadId: string): string {
  return `If you restored it on purpose, run: rye verify thread ${threadId} --accept-head`;
}
