import { isDeepStrictEqual } from 'node:util';
import { EXIT, RyeError, toRyeError } from '../../core/errors.ts';
import { isFinal, type ThreadRecord } from '../../core/thread.ts';
import type { Stored } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';

/**
 * Returns the end of a thread's run as others may rely on it. The rows of a store that many machines share are not signed,
 * so that a success counts only if the signed thread.json has it, with this result and these outputs; otherwise the
 * thread has failed as `thread_tampered`. Another end without a signature keeps its status and error alone.
 */
export async function signedEnd(
  { store, files }: Pick<Stored, 'store' | 'files'>,
  record: ThreadRecord,
  run: number,
): Promise<ThreadRecord> {
  if (!store.documents || !isFinal(record.status)) return record;
  let problem: RyeError;
  try {
    const document = await files.readDocument(record.thread_id);
    if (isSigned(record, document, run)) return record;
    problem = changed(record, document);
  } catch (error) {
    problem = toRyeError(error);
    // a store that is away proves nothing about the thread
    if (problem.exitCode !== EXIT.integrity && problem.code !== 'thread_not_found') throw error;
  }
  const bare = { ...record, result: '', outputs: null };
  if (record.status !== 'completed') return bare;
  return { ...bare, status: 'error', error: problem.toJSON() };
}

function isSigned(record: ThreadRecord, document: ThreadDocument, run: number): boolean {
  const { runs } = document;
  // a later run has replaced the result; the earlier one's end is in the list
  if (runs && runs.length > run) return runs[run - 1]?.status === record.status;
  return (
    document.status === record.status &&
    (document.result ?? '') === (record.result ?? '') &&
    isDeepStrictEqual(document.outputs ?? null, record.outputs)
  );
}

function changed({ thread_id: id, status }: ThreadRecord, document: ThreadDocument): RyeError {
  const what =
    document.status === status
      ? `the result of ${id} in the store is not the signed one`
      : `the store has ${id} as ${status}, its signed record as ${document.status}`;
  return new RyeError('thread_tampered', what, {
    hint: `It was changed in the database. Look at it: rye verify thread ${id}`,
    details: { thread_id: id },
  });
}
