import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ErrorInfo, messageOf, RyeError, toRyeError } from '../core/errors.ts';
import { isFinal } from '../core/thread.ts';
import { renderCapabilities } from '../export/capabilities.ts';
import { displacedRecord } from '../items/binding.ts';
import type { ThreadFiles } from '../threads/ports.ts';
import type { ThreadDocument } from '../threads/thread-document.ts';
import { capabilitiesSubject, exportSubject } from '../threads/thread-files-fs.ts';
import { verifyAgainstHead } from '../threads/verified-log.ts';
import { faultError } from '../trust/policy.ts';
import { checkText, type Verdict } from '../trust/signature.ts';
import { blankSignatureLine } from '../trust/signature-line.ts';
import type { Foundation } from './foundation.ts';
import type { ThreadVerification } from './rye.ts';

type Check = ThreadVerification['checks'][number];

const DEFINITIONS = '\n## Tool definitions\n';

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
  const record = { files, threadId, document };
  if (existsSync(capabilities))
    checks.push(await verifyText(base, { name: 'capabilities', path: capabilities }, record));
  const knowledge = document && files.knowledgePath(document.directive, threadId);
  // the entry of a running thread grows with it, and is signed at its end
  const isLive = document?.status === 'running';
  if (knowledge !== undefined && !isLive && existsSync(knowledge))
    checks.push(await verifyText(base, { name: 'knowledge', path: knowledge }, record));
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
    const result = await verifyAgainstHead(base.store, threadId, {
      verifier: base.keyring.payloadVerifier,
      expected: document?.transcript,
    });
    if (result.ok) {
      const { unverified_bytes: tail } = result;
      const moved = base.store.logs.quarantined(threadId);
      const sum = moved.reduce((bytes, part) => bytes + part.bytes, 0);
      const rest = [
        ...(tail === 0 ? [] : [`, ${tail} bytes after the last one unverified`]),
        ...(sum === 0 ? [] : [`, ${sum} bytes unverified, quarantined at recovery`]),
      ].join('');
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

interface SignedText {
  readonly name: 'capabilities' | 'knowledge';
  readonly path: string;
}

/** The thread whose record a signed text has to be. */
interface RecordOwner {
  readonly files: ThreadFiles;
  readonly threadId: string;
  readonly document: ThreadDocument | undefined;
}

async function verifyText(
  base: Foundation,
  { name, path }: SignedText,
  owner: RecordOwner,
): Promise<Check> {
  const text = await readFile(path, 'utf8');
  const verdict = await checkRecord(base, { name, text }, owner);
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

/** A record is signed as that of its thread. One of the older form has to say by its content whose it is. */
async function checkRecord(
  { keyring: keys }: Foundation,
  { name, text }: { readonly name: SignedText['name']; readonly text: string },
  owner: RecordOwner,
): Promise<Verdict> {
  const id = `agent/threads/${owner.document?.directive ?? ''}/${owner.threadId}`;
  const isSnapshot = name === 'capabilities';
  const subject = isSnapshot ? capabilitiesSubject(owner.threadId) : exportSubject(`${id}.md`);
  const verdict = checkText({ text, style: 'html', keys, subject });
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
  { files, document }: RecordOwner,
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

function infoOf(error: unknown): ErrorInfo {
  return toRyeError(error).toJSON();
}
