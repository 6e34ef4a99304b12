import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { messageOf, RyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { MAX_LINE_BYTES } from '../log/codec.ts';
import { eachLine, scan } from '../log/scanner.ts';
import type { ThreadEnv } from '../threads/ports.ts';
import { importThread } from '../threads/session/copied-thread.ts';
import { importPi, lastAnswer } from './import.ts';
import { createPiReader, type PiProblem } from './session.ts';

export interface ImportOptions {
  /** The session file; it is only read. */
  readonly path: string;
  readonly threadId?: string;
  /** The model that continues it after a resume. */
  readonly model?: string;
}

/** The thread that a session became. */
export interface ImportedSession {
  readonly thread: ThreadRecord;
  readonly format: 'pi';
  /** Version of the format that the file had. */
  readonly version: number;
  readonly session_id: string;
  readonly entries: number;
  readonly messages: number;
  /** Damaged or unknown records, by line. */
  readonly problems: readonly PiProblem[];
}

const MAX_NOTED = 100;

/** Reads a pi session and makes a thread of it. Nothing is written before the whole file was understood. */
export async function importSession(
  env: ThreadEnv,
  { path, threadId, model }: ImportOptions,
): Promise<ImportedSession> {
  const newId = () => env.ids.entryId();
  const reader = createPiReader({ path, newId });
  const { bytes, sha256 } = await readLines(path, (...line) => reader.push(...line));
  const session = reader.end();
  const { drafts, problems, model: speaker, messages, original } = importPi(session, newId);
  const { version, sessionId: session_id } = session;
  const thread = await importThread(env, {
    origin: { format: 'pi', version, session_id, file: basename(path), bytes, sha256, ...original },
    drafts,
    speaker,
    result: lastAnswer(drafts),
    problems: problems.slice(0, MAX_NOTED).map((problem) => ({ ...problem })),
    ...compact({ threadId, model }),
  });
  const entries = session.entries.length;
  return { thread, format: 'pi', version, session_id, entries, messages, problems };
}

/** A file that was read whole: its length and hash. */
export interface ReadFile {
  readonly bytes: number;
  /** SHA-256, hexadecimal. */
  readonly sha256: string;
}

/**
 * Hands the lines of a text file to `take` in order, without their line feeds; `isTorn` for a last one that has none,
 * `isLossy` for one that is not UTF-8. The file is streamed and never written. Errors: `file_not_found`; `item_too_large` for a line over 16 MiB.
 */
async function readLines(
  path: string,
  take: (line: string, isTorn: boolean, isLossy: boolean) => void,
): Promise<ReadFile> {
  await assertFile(path);
  const hash = createHash('sha256');
  let bytes = 0;
  let line = 1;
  const pass = (text: Buffer, isTorn: boolean): boolean => {
    take(text.toString('utf8'), isTorn, !isUtf8(text));
    line += 1;
    return true;
  };
  await scan(createReadStream(path, { highWaterMark: 1 << 18 }), {
    chunk(chunk) {
      hash.update(chunk);
      bytes += chunk.length;
    },
    lines: (run) => eachLine(run, (start, end) => pass(run.subarray(start, end - 1), false)),
    oversized() {
      throw tooLong(path, line);
    },
    torn: (rest) => rest && pass(rest, true),
  });
  return { bytes, sha256: hash.digest('hex') };
}

async function assertFile(path: string): Promise<void> {
  let found: Awaited<ReturnType<typeof stat>>;
  try {
    found = await stat(path);
  } catch (error) {
    throw new RyeError('file_not_found', `${path} cannot be read: ${messageOf(error)}`, {
      hint: 'Give the path of a session file.',
      cause: error,
    });
  }
  // a pipe or a device may never end
  if (!found.isFile()) throw new RyeError('usage', `${path} is not a regular file`);
}

function tooLong(path: string, line: number): RyeError {
  return new RyeError('item_too_large', `the line is over ${MAX_LINE_BYTES} bytes`, {
    location: { path, line },
    hint: 'The file is unchanged.',
  });
}
