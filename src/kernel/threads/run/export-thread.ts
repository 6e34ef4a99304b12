import { messageOf } from '../../core/errors.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { Exporting, Process, Stored } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { readSigned } from '../verified-log.ts';

/** Renders the log's entries once and signs them; the search index follows best effort. */
export async function exportThread(
  env: Stored & Pick<Process, 'onNotice'> & Exporting,
  plan: ThreadPlan,
  document: ThreadDocument,
): Promise<void> {
  const threadId = document.thread_id;
  const expected = document.transcript;
  const events = await readSigned(env, threadId, { expected, entriesOnly: true });
  const path = env.files.knowledgePath(plan.directive.id, threadId);
  const text = env.renderer.knowledge({
    document,
    events,
    description: plan.directive.description,
    capabilitiesRef: `.ai/state/threads/${threadId}/capabilities.md`,
    finishedAt: document.updated_at,
  });
  await env.files.writeKnowledge(threadId, path, text);
  try {
    await env.indexExport(path);
  } catch (error) {
    env.onNotice(`the search index was not updated: ${messageOf(error)}`);
  }
}
