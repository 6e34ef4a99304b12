import type { EventDraft } from '../../core/events.ts';
import { isTaintNote } from '../../policy/risk.ts';
import type { StartedThread } from './start.ts';

/** Marks a draft that a crash may lose, because a thread that has not begun starts over. */
export function repeatable(draft: EventDraft): EventDraft {
  return { ...draft, repeatable: true };
}

/** Returns the first events of a thread's log. */
export function announcement({ plan, document }: StartedThread): EventDraft[] {
  const { directive, model, limits, integrity, inputs, parent_thread_id: parent, warnings } = plan;
  return [
    {
      event_type: 'thread_started',
      payload: {
        directive: directive.id,
        model: model.id,
        provider: model.provider,
        limits: { ...limits },
        ...(plan.raised_limits ? { raised_limits: { ...plan.raised_limits } } : {}),
        integrity,
        inputs,
        // the stored plan has it: one that was read back may have gained new limits
        ...(document.plan_sha256 === undefined ? {} : { plan_sha256: document.plan_sha256 }),
      },
    },
    {
      event_type: 'budget',
      payload: { max_usd: limits.spend, ...(parent === null ? {} : { parent_thread_id: parent }) },
    },
    ...warnings
      .filter((warning) => !isTaintNote(warning))
      .map((warning): EventDraft => {
        return { event_type: 'note', payload: { text: `warning: ${warning}` } };
      }),
  ];
}
