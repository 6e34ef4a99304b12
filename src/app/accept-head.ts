import { existsSync, readFileSync } from 'node:fs';
import { reexport } from '../threads/run/finalize.ts';
import type { Foundation } from './foundation.ts';
import type { ThreadVerification } from './rye.ts';
import { threadEnv } from './thread-env.ts';
import { recordHash, threadFiles } from './thread-files.ts';
import { ThreadHeads } from './thread-heads.ts';
import { verifyThread } from './verify-thread.ts';

/** See `ThreadsService.acceptHead`. */
export async function acceptHead(base: Foundation, threadId: string): Promise<ThreadVerification> {
  const files = threadFiles(base);
  const found = await verifyThread(base, files, threadId);
  if (!found.checks.every((check) => check.ok || canAccept(check))) return found;
  const document = await files.readDocument(threadId);
  const path = files.knowledgePath(document.directive, threadId);
  const isExported = found.checks.some(({ name, ok }) => name === 'knowledge' && ok);
  if (document.transcript && !isExported) {
    const env = threadEnv(base, { allowUnsigned: false });
    await reexport(env, await files.readPlan(document), document);
  }
  const exported = readIfThere(path);
  await new ThreadHeads(base).accept(document, exported && recordHash(exported));
  return await verifyThread(base, files, threadId);
}

function readIfThere(path: string): string | null {
  return existsSync(path) ? readFileSync(path, 'utf8') : null;
}

/** True for what accepting settles: an older state, and any fault of the export, which is rendered from the signed log. */
function canAccept({ name, error }: ThreadVerification['checks'][number]): boolean {
  return name === 'knowledge' || error?.code === 'thread_rolled_back';
}
