import type { EventDraft } from '../core/events.ts';
import type { Run } from './run.ts';

/** Records what the inbox gave. True if a model has to be told of it. */
export async function recordTaken(
  { conversation, ports, calls }: Run,
  drafts: readonly EventDraft[],
): Promise<boolean> {
  await conversation.record(...drafts);
  const { inbox } = ports;
  if (inbox?.context && drafts.some(({ event_type: type }) => type === 'compaction')) {
    conversation.replace(await inbox.context());
    calls.noteCompaction();
  }
  return drafts.some(({ event_type: type }) => type === 'message' || type === 'custom_message');
}
