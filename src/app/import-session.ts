import { basename } from 'node:path';
import { compact } from '../core/json.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { importPi, lastAnswer } from '../export/pi-import.ts';
import { createPiReader, type PiProblem } from '../export/pi-session.ts';
import type { ThreadEnv } from '../threads/ports.ts';
import { importThread } from '../threads/session/copied-thread.ts';
import { readLines } from './session-file.ts';

export interface ImportOptions {
  /** The session file; it is only read. */
  readonly path: string;
  readonly threadId?: string;
  /** The model that goes on with it when it is resumed. */
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
  /** What was damaged or not understood, by line. */
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
  const { drafts, problems, model: speaker, messages } = importPi(session, newId);
  const { version, sessionId: session_id } = session;
  const thread = await importThread(env, {
    origin: { format: 'pi', version, session_id, file: basename(path), bytes, sha256 },
    drafts,
    speaker,
    result: lastAnswer(drafts),
    problems: problems.slice(0, MAX_NOTED).map((problem) => ({ ...problem })),
    ...compact({ threadId, model }),
  });
  const entries = session.entries.length;
  return { thread, format: 'pi', version, session_id, entries, messages, problems };
}
