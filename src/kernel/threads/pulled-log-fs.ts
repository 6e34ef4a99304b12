import { createReadStream, existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { PayloadVerifier } from '../core/signing.ts';
import { makeFolders } from '../disk/folders.ts';
import { type StagedFile, stageFile, writeWhole } from '../disk/whole-file.ts';
import { measure, verifyLog } from '../log/reader.ts';
import type { LogExtent, LogStore } from '../storage/store.ts';
import { hashOfPrefix } from './heads-fs.ts';
import { assertOwnPath } from './own-path-fs.ts';
import { tamperedError } from './verified-log.ts';

/** A log in a store, and the folder of its thread. */
export interface LogToPull {
  readonly threadId: string;
  readonly logs: Pick<LogStore, 'bytes' | 'quarantined'>;
  readonly projectPath: string;
  readonly folder: string;
  /** Length of the signed part. */
  readonly end: number;
  /** The extent in a finished thread's thread.json. */
  readonly expected: LogExtent | undefined;
  readonly verifier: PayloadVerifier;
}

const LOG = 'transcript.jsonl';
const QUARANTINED = /^transcript\.unverified-\d+(?:-\d+)?\.jsonl$/;

/**
 * Copies the signed part of a log, and what recoveries took off it, to where the store of one machine keeps them. The bytes
 * that are written are those that were verified; a log that does not verify leaves the file as it was.
 */
export async function pullLog(pull: LogToPull): Promise<void> {
  const { projectPath, folder, threadId, logs, end } = pull;
  const path = join(folder, LOG);
  assertOwnPath(join(projectPath, '.ai'), path);
  await assertContinues(pull, path);
  makeFolders(folder);
  const staged = stageFile(path, { follow: false });
  try {
    const chunks = () => written(logs.bytes(threadId, { end }), staged);
    const { verifier, expected } = pull;
    const verdict = await verifyLog({ threadId, location: path, chunks }, { verifier, expected });
    if (!verdict.ok) throw tamperedError(threadId, verdict);
    await pullQuarantined(pull);
    staged.commit();
  } finally {
    staged.discard();
  }
}

async function* written(
  chunks: AsyncIterable<Buffer>,
  staged: StagedFile,
): AsyncGenerator<Buffer, void> {
  for await (const chunk of chunks) {
    staged.write(chunk);
    yield chunk;
  }
}

/** Refuses to replace a log that is not the beginning of the one in the store. */
async function assertContinues({ logs, threadId, end }: LogToPull, path: string): Promise<void> {
  const size = statSync(path, { throwIfNoEntry: false })?.size;
  const isArchived = existsSync(`${path}.gz`);
  if (size === undefined && !isArchived) return;
  const isSame =
    size !== undefined &&
    size <= end &&
    (await hashOfPrefix(logs.bytes(threadId, { end: size }), size)) ===
      (await hashOfPrefix(createReadStream(path), size));
  if (isSame) return;
  throw new RyeError('already_exists', `${path} already exists and is not the log of ${threadId}`, {
    hint: 'It was not replaced. Move its folder out of the project, then pull the thread again.',
    details: { path },
  });
}

/** Nothing in these parts is signed; the log names their hashes. */
async function pullQuarantined({ logs, threadId, projectPath, folder }: LogToPull): Promise<void> {
  for (const { file, sha256 } of await logs.quarantined(threadId)) {
    const chunks: Buffer[] = [];
    for await (const chunk of logs.bytes(threadId, { file })) chunks.push(Buffer.from(chunk));
    if (!QUARANTINED.test(file) || measure(chunks).sha256 !== sha256) {
      throw new RyeError(
        'thread_tampered',
        `the quarantined part ${JSON.stringify(file)} of ${threadId} differs from the part that was removed`,
        { hint: 'Its row was changed. Nothing was written.', details: { thread_id: threadId } },
      );
    }
    const path = join(folder, file);
    assertOwnPath(join(projectPath, '.ai'), path);
    writeWhole(path, Buffer.concat(chunks), { follow: false, mode: 0o600 });
  }
}
