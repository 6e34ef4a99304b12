import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ErrorInfo, RyeError, toRyeError } from '../core/errors.ts';
import { isFinal } from '../core/thread.ts';
import type { ThreadFiles } from '../threads/ports.ts';
import type { ThreadDocument } from '../threads/thread-document.ts';
import { faultError } from '../trust/policy.ts';
import { checkText } from '../trust/signature.ts';
import type { Foundation } from './foundation.ts';
import type { ThreadVerification } from './rye.ts';

type Check = ThreadVerification['checks'][number];

/** Checks everything that a thread signed: thread.json, each checkpoint of its log, capabilities.md and its export. */
export async function verifyThread(
  base: Foundation,
  files: ThreadFiles,
  threadId: string,
): Promise<ThreadVerification> {
  const folder = files.folder(threadId);
  if (!existsSync(folder)) {
    throw new RyeError('thread_not_found', `there is no thread ${threadId} on disk`, {
      hint: 'Run: rye threads list',
    });
  }
  const { document, checks } = await verifyRecord(base, files, threadId);
  const capabilities = join(folder, 'capabilities.md');
  if (existsSync(capabilities)) checks.push(await verifyText(base, 'capabilities', capabilities));
  const knowledge = document && files.knowledgePath(document.directive, threadId);
  if (knowledge !== undefined && existsSync(knowledge))
    checks.push(await verifyText(base, 'knowledge', knowledge));
  return { thread_id: threadId, ok: checks.every(({ ok }) => ok), checks };
}

/** How often a thread that is being written to is looked at again. */
const LOOKS = 5;

/** thread.json and the log that it names. What another process writes in between is no damage: both are read again. */
async function verifyRecord(
  base: Foundation,
  files: ThreadFiles,
  threadId: string,
): Promise<{ readonly document: ThreadDocument | undefined; readonly checks: Check[] }> {
  let found = await verifyDocument(files, threadId);
  for (let look = 1; ; look += 1) {
    const transcript = await verifyTranscript(base, threadId, found.document);
    const checked = { document: found.document, checks: [found.check, transcript] };
    if (transcript.ok || look === LOOKS) return checked;
    const after = await verifyDocument(files, threadId);
    if (JSON.stringify(after) === JSON.stringify(found)) return checked;
    found = after;
  }
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

async function verifyTranscript(
  base: Foundation,
  threadId: string,
  document: ThreadDocument | undefined,
): Promise<Check> {
  try {
    const result = await base.store.logs.verify(threadId, {
      verifier: base.keyring.payloadVerifier,
      expected: document?.transcript,
    });
    if (result.ok) {
      const rest =
        result.unverified_bytes === 0
          ? ''
          : `, ${result.unverified_bytes} bytes after the last one are not signed yet`;
      const detail = `${result.events} events, ${result.checkpoints} checkpoints, ${result.verified_bytes} bytes signed${rest}`;
      return { name: 'transcript', ok: true, detail };
    }
    const error = { code: result.code, message: `${result.reason} at byte ${result.offset}` };
    return { name: 'transcript', ok: false, offset: result.offset, error };
  } catch (error) {
    const neverRan = document && isFinal(document.status) && document.cost === undefined;
    if (neverRan && error instanceof RyeError && error.code === 'thread_not_found') {
      return { name: 'transcript', ok: true, detail: 'the thread never ran' };
    }
    return { name: 'transcript', ok: false, error: infoOf(error) };
  }
}

async function verifyText(
  base: Foundation,
  name: 'capabilities' | 'knowledge',
  path: string,
): Promise<Check> {
  const verdict = checkText({
    text: await readFile(path, 'utf8'),
    style: 'html',
    keys: base.keyring,
  });
  if (verdict.ok)
    return {
      name,
      ok: true,
      detail: verdict.by === 'key' ? `signed by ${verdict.keyId}` : 'shipped',
    };
  return {
    name,
    ok: false,
    error: faultError({ type: 'knowledge', id: name, space: 'project', path }, verdict).toJSON(),
  };
}

function infoOf(error: unknown): ErrorInfo {
  return toRyeError(error).toJSON();
}
