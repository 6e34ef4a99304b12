import { join } from 'node:path';
import { tamperedError, verifyLog } from '../threads/verified-log.ts';
import type { PulledThread } from './api/threads.ts';
import { ThreadHeads, threadFiles } from './thread-files.ts';
import { assertRegistered } from './thread-list.ts';
import type { Workspace } from './workspace.ts';

/** See `ThreadsService.pull`. */
export async function pullThread(workspace: Workspace, threadId: string): Promise<PulledThread> {
  const { store, keyring, options } = workspace;
  await assertRegistered(store.registry, threadId);
  const files = threadFiles(workspace);
  await files.pull(threadId);
  const verifier = keyring.payloadVerifier;
  const heads = new ThreadHeads(workspace);
  const stored = { files, store, verifier, heads };
  const { document, verdict } = await verifyLog(stored, threadId);
  if (!verdict.ok) throw tamperedError(threadId, verdict);
  const folder = files.folder(threadId);
  const path = join(folder, 'transcript.jsonl');
  // a store of this machine alone keeps it there
  const isHere = store.logs.location(threadId) === path;
  if (!isHere) {
    const { pullLog } = await import('../threads/pulled-log-fs.ts');
    const { projectPath } = options;
    const expected = document.transcript;
    const end = verdict.verified_bytes;
    await pullLog({ threadId, logs: store.logs, projectPath, folder, end, expected, verifier });
  }
  return { thread_id: threadId, status: document.status, folder, bytes: verdict.verified_bytes };
}
