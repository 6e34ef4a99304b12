import type { PlanChange } from '../../core/events.ts';
import type { Successor } from './successor.ts';

/** Records `plan_changed` once the run has begun; nothing if it follows the plan of the run before. */
export function recordingChanges(
  next: Successor,
  { changes, before }: { readonly changes: readonly PlanChange[]; readonly before: string },
): Successor {
  const { started, conversation } = next;
  if (changes.length === 0 || !conversation) return next;
  const after = started.document.plan_sha256 ?? before;
  return {
    ...next,
    conversation: {
      ...conversation,
      open: async (parts) => {
        const opening = await conversation.open(parts);
        const payload = { changes, before_sha256: before, after_sha256: after };
        parts.recorder.record([{ event_type: 'plan_changed', payload }]);
        return opening;
      },
    },
  };
}
